/*
 * Recommends how to store a dataset, given each variant's measured bytes and images/s. Pure
 * functions on plain values.
 */
#pragma once

#include "tools/packimg/estimate/encoding_bench.h"

#include <stdio.h>

struct recommend_request {
	const struct encoding_variant *variants; /* the measured variants */
	uint32_t count;
	double cores;
	double wanted; /* required images/s; 0 if there is no target */
};

/*
 * Returns the index of the variant with the least loss that reaches the rate; UINT32_MAX if none
 * does.
 */
uint32_t recommend_choose(const struct recommend_request *request, double images_per_s);
/* Returns the index of the variant with the highest rate; UINT32_MAX if nothing was measured. */
uint32_t recommend_fastest(const struct recommend_request *request);
/* Writes a recommendation and its reason as complete lines. The caller checks ferror(). */
void recommend_write(const struct recommend_request *request, FILE *file);
