/*
 * What stands between operations that would be one pass over memory without it, as a gate between
 * norm and sum, and what that costs in a step: the passes that it makes of its own, at the
 * roofline.
 */
#pragma once

#include "trainer/device/cuda/lowering/roofline.h"

#include <stdio.h>

/*
 * A line for each that the program has, none where it has none. times: that its operations run in
 * a step; seconds: of the whole step.
 */
void plan_print_breaks(const struct roofline_device *device, const struct cuda_program *program,
		       double times, double seconds, FILE *file);
