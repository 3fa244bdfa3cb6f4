/*
 * Words from figures: which way to store a dataset, given what each costs in bytes and gives in
 * images/s. Pure functions on plain values.
 */
#pragma once

#include "tools/packimg/advise/encoding_bench.h"

#include <stdio.h>

struct recommend_request {
	const struct encoding_variant *variants; /* measured */
	uint32_t count;
	double cores;
	double wanted; /* images/s, 0: not said */
};

/*
 * Which way is best where that rate is needed: the most faithful one that gives it; UINT32_MAX:
 * none does.
 */
uint32_t recommend_choose(const struct recommend_request *request, double images_per_s);
/* The way that gives most images/s; UINT32_MAX: nothing was measured. */
uint32_t recommend_fastest(const struct recommend_request *request);
/*
 * A recommendation and its reason, lines that end in line feeds. What fails is left to ferror().
 */
void recommend_write(const struct recommend_request *request, FILE *file);
