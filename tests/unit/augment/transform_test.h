/*
 * What tests of transform_apply share: pipelines on random images over fake_decoder.h, with every
 * instruction set that there is, between canaries, and compared with naive.h. What
 * transform_ahead() says of a sample is compared with what is decoded then. Failures end the test
 * through cmocka's assertions. One thread; state is global.
 */
#pragma once

#include "format/base/random.h"
#include "loaderd/augment/transform.h"
#include "tests/unit/augment/fake_decoder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

extern struct random_stream rng;
extern struct transform_scratch *scratches[]; /* by instruction set */
extern size_t misalignment;                   /* of the next outputs, to a line */

/* cmocka group functions. */
int transform_setup(void **state);
int transform_teardown(void **state);

struct transform *parse(const char *text);
/* RGB, for the caller to free. */
uint8_t *random_pixels(uint32_t width, uint32_t height);
struct packimg_sample make_sample(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t index);

/*
 * The finished sample, the same bytes from every set, after whatever came before; for the caller to
 * free.
 */
uint8_t *apply_all(const struct transform *transform, const struct packimg_sample *sample,
		   uint64_t seed, uint64_t epoch);
/* Step by step and folded: equal where pixels are only moved, within a rounding for each resize. */
void compare(const char *text, const struct transform *transform, uint32_t width, uint32_t height,
	     uint64_t epoch);
