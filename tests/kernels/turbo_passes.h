/*
 * What libjpeg-turbo takes for the work of our kernels. It has no functions for that, but in its
 * buffered-image mode it makes picture after picture of the coefficients that it has read, so a
 * pass is what comes behind them: the inverse DCT alone where raw samples are asked for, and with
 * upsampling and colour where RGB is; the difference is what those two take, with what its
 * controllers add.
 */
#pragma once

#include <stdbool.h>

struct turbo_pass {
	int components, h, v; /* 1, or 3 with the sampling factors of luma */
	bool raw;             /* samples rather than RGB */
	unsigned denominator; /* of the scale: 1, 2, 4 or 8 */
};

enum { TURBO_PASS_WIDTH = 352, TURBO_PASS_HEIGHT = 32 };

/*
 * CPU time of a pass over a picture of that size, the least of many, in ns; negative, with a
 * message on standard error, when its pixels are not those of a plain decode.
 */
double turbo_pass_ns(const struct turbo_pass *pass);
