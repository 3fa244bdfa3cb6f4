/*
 * What checkpoints of the fuzz target hold: a store of one small parameter of each kind, with an
 * optimizer and an average.
 */
#pragma once

#include "trainer/device/device.h"

/* Both belong to the caller, and are freed in the other order. Negative errno. */
int checkpoint_case_open(struct device **ret_device, struct device_params **ret_params);
