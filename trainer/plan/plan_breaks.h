/*
 * Fusion breaks: operations between others that would otherwise be one pass over memory, such as a
 * gate between norm and sum, and their cost per step: their own passes, at the roofline.
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
