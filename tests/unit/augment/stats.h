/*
 * Distribution tests for random augmentation decisions over many samples. Seeds are fixed, so
 * results are reproducible. Bounds are five standard deviations: a correct distribution exceeds
 * them for about one seed in a million.
 */
#pragma once

#include "format/augment/kernels/effects.h"

enum { STATS_WIDTH = 37, STATS_HEIGHT = 26 };

/*
 * Draws the effects of a pipeline's only transform for a sample of STATS_WIDTH x STATS_HEIGHT
 * pixels.
 */
void stats_draw(const char *text, uint64_t sample, struct effect_list *list);
/* Chi-square test: fails unless counts match the probabilities (uniform if NULL). */
void stats_expect(const unsigned *counts, const double *probabilities, unsigned size);
void stats_expect_uniform(const unsigned *counts, unsigned size);
