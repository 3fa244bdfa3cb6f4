/*
 * What random decisions come to over many samples. Seeds are fixed, so a result never changes;
 * bounds are five standard deviations, which a right distribution would break once in a million
 * choices of seeds.
 */
#pragma once

#include "loaderd/augment/kernels/effects.h"

enum { STATS_WIDTH = 37, STATS_HEIGHT = 26 };

/*
 * The effects that the only step of a pipeline decides on for a sample of STATS_WIDTH x
 * STATS_HEIGHT.
 */
void stats_draw(const char *text, uint64_t sample, struct effect_list *list);
/* Fails the test unless counts go with probabilities (NULL: all alike), by chi-square. */
void stats_expect(const unsigned *counts, const double *probabilities, unsigned size);
void stats_expect_uniform(const unsigned *counts, unsigned size);
