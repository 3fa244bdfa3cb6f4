#include "trainer/run/step_queue.h"

#include <string.h>

void step_queue_push(struct step_queue *queue, const struct pending_step *pending)
{
	queue->pending[queue->count++] = *pending;
}

struct pending_step step_queue_pop(struct step_queue *queue)
{
	struct pending_step oldest = queue->pending[0];
	queue->count--;
	memmove(queue->pending, queue->pending + 1, queue->count * sizeof(queue->pending[0]));
	return oldest;
}

bool step_queue_combine(struct step_queue *queue, const struct pending_step *pending,
			struct device_results *results)
{
	const struct device_results *sums = &queue->sums;
	if (pending->again) {
		/* the second pass uses perturbed weights: report the loss of the first pass */
		results->loss = sums->loss;
		results->samples = sums->samples;
		results->top1 = sums->top1;
		results->top5 = sums->top5;
	} else if (sums->samples) {
		double samples = (double)sums->samples + results->samples;
		results->loss =
			(sums->loss * sums->samples + results->loss * results->samples) / samples;
		results->samples += sums->samples;
		results->top1 += sums->top1;
		results->top5 += sums->top5;
	}
	queue->sums = pending->last ? (struct device_results){0} : *results;
	return pending->last;
}

uint64_t step_queue_collected(const struct step_queue *queue, uint64_t step)
{
	return queue->count ? queue->pending[0].step - 1 : step;
}
