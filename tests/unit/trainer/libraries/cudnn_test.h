/*
 * What tests of cuDNN's engines share: engines for an H200 that is not here, described by its
 * properties, and problems of layers. Failures end the test through cmocka's assertions.
 */
#pragma once

#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include "trainer/device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

extern char cudnn_properties[4096]; /* JSON, once cudnn_test_found() was asked */

struct layer {
	uint32_t size, c, k, window, stride; /* size: of x, both ways */
	uint32_t groups;                     /* 0 counts as 1 */
};

/* What a net asks for. */
struct sweep {
	struct engines *engines;
	enum cuda_element element;
	uint32_t n;
	bool deterministic;
	unsigned planned, compiled;
};

void open_engines(struct engines *engines, const struct engines_options *options);
struct conv_problem problem_of(const struct sweep *sweep, const struct layer *layer,
			       enum conv_direction direction);
/* Counts it in the sweep. */
void expect_plan(struct sweep *sweep, const struct conv_problem *problem);
/* For main, before the tests: whether the libraries are installed; says why not. */
bool cudnn_test_found(void);
