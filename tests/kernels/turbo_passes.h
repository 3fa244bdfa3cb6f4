/*
 * Measures libjpeg-turbo's equivalents of our kernels. It exposes no such functions, but in
 * buffered-image mode it outputs the same coefficients any number of times, so one pass measures
 * the work after entropy decoding: only the inverse DCT with raw output, and upsampling and colour
 * conversion as well with RGB output. The difference is the cost of those two, including the
 * overhead of libjpeg-turbo's controllers.
 */
#pragma once

#include <stdbool.h>

struct turbo_pass {
	int components, h, v; /* components is 1, or 3 with luma sampling factors h and v */
	bool raw;             /* output component samples instead of RGB */
	unsigned denominator; /* scale is 1 / denominator: 1, 2, 4 or 8 */
};

enum { TURBO_PASS_WIDTH = 352, TURBO_PASS_HEIGHT = 32 };

/*
 * Returns the CPU time of a pass over a picture of that size in ns, the minimum of many passes.
 * Returns a negative value, and prints a message to stderr, if the pixels differ from a plain
 * decode.
 */
double turbo_pass_ns(const struct turbo_pass *pass);
