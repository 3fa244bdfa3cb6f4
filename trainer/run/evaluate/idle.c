#include "trainer/run/evaluate/idle.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int idle_vote(struct run *run, int outcome, bool *ret_idle)
{
	double votes[] = {outcome == 0, outcome && outcome != FEED_END};
	*ret_idle = false;
	if (!device_params_are_gathered(run->network.params))
		return outcome;
	bool leaves = votes[1] > 0;
	int r = run_sum_batch(&run->ctx, votes, 2);
	if (r < 0 || leaves)
		return r < 0 ? r : outcome;
	if (votes[1] > 0) {
		run->ctx.lost = 0;
		return RUN_LOST;
	}
	*ret_idle = outcome == FEED_END && votes[0] > 0;
	return outcome;
}

int idle_batch_init(struct idle_batch *idle, const struct run *run, const struct device_batch *like)
{
	static const int32_t no_label = -1;
	uint32_t classes = run->data.classes;
	idle->batch = (struct device_batch){
		.labels = like->labels ? &no_label : NULL,
		.count = 1,
		.channels = like->channels,
		.height = like->height,
		.width = like->width,
		.element = like->element,
	};
	idle->image = calloc(1, device_batch_image(&idle->batch));
	idle->targets = malloc(classes * sizeof(float));
	if (!idle->image || !idle->targets)
		return -ENOMEM;
	for (uint32_t i = 0; i < classes; i++)
		idle->targets[i] = NAN;
	idle->batch.images = idle->image;
	idle->batch.targets = like->targets ? idle->targets : NULL;
	return 0;
}

void idle_batch_deinit(struct idle_batch *idle)
{
	free(idle->image);
	free(idle->targets);
}
