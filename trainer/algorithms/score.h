/*
 * Cross-entropy and top-k of logits, computed on the host. Used by evaluations that combine several
 * forward passes per image, such as one of its mirror image: the device's loss covers only a single
 * pass. Pure functions.
 */
#pragma once

#include <stdint.h>

struct score {
	double loss; /* sum over labelled samples */
	uint64_t samples, top1, top5;
};

/*
 * Adds the loss and top-k counts of logits [count][classes], multiplied by `scale`. labels:
 * [count], -1 for unlabelled samples. Among equal logits, the lower class ranks first.
 */
void score_add(struct score *score, const float *logits, const int32_t *labels, uint32_t count,
	       uint32_t classes, double scale);
