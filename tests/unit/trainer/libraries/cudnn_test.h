/*
 * Shared code for tests of cuDNN's engines: engines for an H200 that is described by its properties
 * and need not be present, and problems of layers. A failure ends the test through cmocka's
 * assertions.
 */
#pragma once

#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include "tests/test.h"

extern char cudnn_properties[4096]; /* JSON; valid after cudnn_test_found() */

struct layer {
	uint32_t size, c, k, window, stride; /* size: height and width of x */
	uint32_t groups;                     /* 0 counts as 1 */
};

/* Settings shared by the convolutions of a network, and counts of the plans found for them. */
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
/* Asserts that the problem has a plan, and counts it in the sweep. */
void expect_plan(struct sweep *sweep, const struct conv_problem *problem);
/*
 * For main(), before the tests: returns true if the libraries are installed, else prints why not.
 */
bool cudnn_test_found(void);
