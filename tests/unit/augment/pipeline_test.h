/*
 * Fixture of the tests of pipeline_apply(): runs pipelines on random images through fake_decoder.h
 * with every available instruction set, with canaries around the output, and compares the result
 * with reference.h. Also checks that the regions announced by pipeline_batched_decode() match those
 * decoded later. A failure ends the test through cmocka's assertions. The state is global, so use
 * it on one thread only.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/random.h"
#include "tests/test.h"
#include "tests/unit/augment/fake_decoder.h"

#include <stdbool.h>

extern struct random_stream rng;
extern struct pipeline_scratch *scratches[]; /* by instruction set */
extern size_t misalignment; /* offset of the next outputs from a cache line, in bytes */

/* cmocka group functions. */
int pipeline_setup(void **state);
int pipeline_teardown(void **state);

struct pipeline *parse(const char *text);
/* Returns RGB pixels. The caller frees them. */
uint8_t *random_pixels(uint32_t width, uint32_t height);
struct packimg_sample make_sample(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t index);

/*
 * Returns the finished sample, which the caller frees. Fails the test unless every instruction set
 * gives the same bytes, whatever ran before.
 */
uint8_t *apply_all(const struct pipeline *pipeline, const struct packimg_sample *sample,
		   uint64_t seed, uint64_t epoch);
/*
 * Compares the folded geometry with the reference, which runs one transform at a time. The results
 * are equal where pixels only move; otherwise they differ by at most one rounding per resize.
 */
void compare(const char *text, const struct pipeline *pipeline, uint32_t width, uint32_t height,
	     uint64_t epoch);
