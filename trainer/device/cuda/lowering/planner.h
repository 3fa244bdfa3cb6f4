/*
 * A device that only plans: its parameters have no memory, and planning a graph on it makes the
 * program that a GPU would run. For `trainer --plan`, and for tests of the lowering.
 *
 * Recording is device.h's as ever; what would run fails with -ENOTSUP. `options` and the engines in
 * it outlive the device.
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

int planner_open(const struct program_options *options, struct device **ret_device);
/* Of a planned graph; owned by it. */
const struct cuda_program *planner_program(const struct device_graph *graph);
