/*
 * Cross-entropy and top-k of logits on the host: for evaluations that combine several passes, such
 * as an image and its mirror image, where the device's own loss sees each pass alone. Plain
 * functions.
 */
#pragma once

#include <stdint.h>

struct score {
	double loss; /* summed over the samples that have a label */
	uint64_t samples, top1, top5;
};

/*
 * Adds count rows of logits [count][classes], times scale, with labels [count] (-1: none). A tie
 * goes to the lower class.
 */
void score_add(struct score *score, const float *logits, const int32_t *labels, uint32_t count,
	       uint32_t classes, double scale);
