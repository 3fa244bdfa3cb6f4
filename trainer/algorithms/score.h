/*
 * Cross-entropy and top-k of logits on the host, for evaluations that combine several passes, such
 * as an image and its mirror image: the device's loss sees each pass separately. Pure functions.
 */
#pragma once

#include <stdint.h>

struct score {
	double loss; /* sum over labelled samples */
	uint64_t samples, top1, top5;
};

/*
 * Adds logits [count][classes], times scale, with labels [count] (-1 for none). Ties go to the
 * lower class.
 */
void score_add(struct score *score, const float *logits, const int32_t *labels, uint32_t count,
	       uint32_t classes, double scale);
