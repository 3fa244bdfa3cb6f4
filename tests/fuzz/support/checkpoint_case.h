/*
 * The store of the checkpoint fuzz target: one small parameter of each kind, with an optimizer and
 * an averaged copy of the weights.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/device/params.h"

/*
 * Opens a device and a store on it. The caller owns both and frees the store first. Returns a
 * negative errno on failure.
 */
int checkpoint_case_open(struct device **ret_device, struct device_params **ret_params);
