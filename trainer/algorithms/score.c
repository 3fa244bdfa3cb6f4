#include "trainer/algorithms/score.h"

#include <math.h>

/*
 * Returns the number of classes ranked before `label`. If the label's logit is not finite, returns
 * the number of classes: comparisons with NaN are false, so the label would count as correct.
 */
static uint32_t rank_of(const float *logits, uint32_t label, uint32_t classes)
{
	uint32_t rank = 0;
	if (!isfinite(logits[label]))
		return classes;
	for (uint32_t c = 0; c < classes; c++)
		rank += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
	return rank;
}

static double cross_entropy(const float *logits, uint32_t label, uint32_t classes, double scale)
{
	double largest = logits[0], sum = 0;
	for (uint32_t c = 1; c < classes; c++)
		largest = fmax(largest, logits[c]);
	for (uint32_t c = 0; c < classes; c++)
		sum += exp(scale * (logits[c] - largest));
	return log(sum) - scale * (logits[label] - largest);
}

void score_add(struct score *score, const float *logits, const int32_t *labels, uint32_t count,
	       uint32_t classes, double scale)
{
	for (uint32_t i = 0; i < count; i++) {
		const float *row = logits + (uint64_t)i * classes;
		/*
		 * Read each label once: a feed's memory may change at any time. -1 converts to an
		 * invalid class.
		 */
		uint32_t label = (uint32_t)((const volatile int32_t *)labels)[i];
		if (label >= classes)
			continue;
		uint32_t rank = rank_of(row, label, classes);
		score->loss += cross_entropy(row, label, classes, scale);
		score->samples++;
		score->top1 += rank < 1;
		score->top5 += rank < 5;
	}
}
