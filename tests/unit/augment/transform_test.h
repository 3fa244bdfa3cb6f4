/*
 * Shared by the tests of transform_apply(): runs pipelines on random images through fake_decoder.h
 * with every available instruction set, with canaries around the output, and compares the result
 * with reference.h. Also checks that the regions transform_ahead() announces match those that are
 * decoded later. A failure ends the test through cmocka's assertions. Global state, so one thread
 * only.
 */
#pragma once

#include "format/augment/transform.h"
#include "format/base/random.h"
#include "tests/unit/augment/fake_decoder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

extern struct random_stream rng;
extern struct transform_scratch *scratches[]; /* by instruction set */
extern size_t misalignment;                   /* offset of the next outputs from a cache line */

/* cmocka group functions. */
int transform_setup(void **state);
int transform_teardown(void **state);

struct transform *parse(const char *text);
/* Returns RGB pixels. The caller frees them. */
uint8_t *random_pixels(uint32_t width, uint32_t height);
struct packimg_sample make_sample(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t index);

/*
 * Returns the finished sample. Fails the test unless every instruction set gives the same bytes,
 * whatever ran before. The caller frees the result.
 */
uint8_t *apply_all(const struct transform *transform, const struct packimg_sample *sample,
		   uint64_t seed, uint64_t epoch);
/*
 * Compares the folded plan with the reference, which runs step by step: exact where pixels only
 * move, within one rounding per resize otherwise.
 */
void compare(const char *text, const struct transform *transform, uint32_t width, uint32_t height,
	     uint64_t epoch);
