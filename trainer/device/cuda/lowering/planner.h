/*
 * A device that only plans: parameters have no memory, and planning a graph on it makes the program
 * that a GPU would run. For `trainer --plan`, and for tests of the lowering.
 *
 * Recording works as in device.h; running fails with -ENOTSUP. `options` and its engines must
 * outlive the device.
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

int planner_open(const struct program_options *options, struct device **ret_device);
/* Program of a planned graph, which owns it. */
const struct cuda_program *planner_program(const struct device_graph *graph);
