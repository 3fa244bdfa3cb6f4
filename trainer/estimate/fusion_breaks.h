/*
 * Fusion breaks: operations that split what could otherwise be a single pass over memory, such as a
 * gate between a norm and a sum. Estimates the time per step of the additional passes, on the
 * roofline.
 */
#pragma once

#include "trainer/device/cuda/lowering/roofline.h"

#include <stdio.h>

/*
 * Prints one line per kind of fusion break in the program, or nothing. `times` is how often the
 * program runs per step; `seconds` is the time of the whole step.
 */
void fusion_breaks_print(const struct roofline_device *device, const struct cuda_program *program,
			 double times, double seconds, FILE *file);
