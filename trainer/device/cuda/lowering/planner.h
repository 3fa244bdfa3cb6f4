/*
 * A device that only plans: its parameters have no memory, and planning a graph creates the program
 * that a GPU would run. Used by `trainer --plan` and by tests of the lowering.
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

int planner_open(const struct program_options *options, struct device **ret_device);
/* Program of a planned graph, which owns it. */
const struct cuda_program *planner_program(const struct device_graph *graph);
