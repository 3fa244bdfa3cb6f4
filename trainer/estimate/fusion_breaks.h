/*
 * Fusion breaks: operations that split what could otherwise be a single pass over memory, such as a
 * gate between norm and sum. Computes their cost per step: the time of their own passes on the
 * roofline.
 */
#pragma once

#include "trainer/device/cuda/lowering/roofline.h"

#include <stdio.h>

/*
 * Prints one line per kind of break in the program, and nothing if there are none. `times` is the
 * number of runs of the program per step; `seconds` is the time of the whole step.
 */
void fusion_breaks_print(const struct roofline_device *device, const struct cuda_program *program,
			 double times, double seconds, FILE *file);
