#include "trainer/run/network/augment.h"

#include "trainer/algorithms/colout.h"
#include "trainer/algorithms/mix.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static void augment_free_mix(struct augment *augment)
{
	free(augment->blends);
	free(augment->labels2);
	free(augment->shares);
	free(augment->targets);
}

int augment_open(struct augment *augment)
{
	const struct recipe *recipe = augment->ctx->recipe;
	uint32_t share = data_train_share(augment->data), micro = data_micro_share(augment->data);
	if (!mix_is_on(&recipe->train))
		return 0;
	if (micro % 2)
		return run_fail(
			augment->ctx, -EINVAL,
			"%s blends pairs of samples, but data.batch_size = %llu is computed %u at "
			"a time (ranks, train.accumulate), an odd number: use twice as many",
			recipe->train.mixup > 0 ? "train.mixup" : "train.cutmix",
			(unsigned long long)recipe->data.batch_size, micro);
	augment_free_mix(augment);
	augment->blends = calloc(share, sizeof(*augment->blends));
	augment->labels2 = calloc(share, sizeof(*augment->labels2));
	augment->shares = calloc(share, sizeof(*augment->shares));
	augment->targets =
		calloc((size_t)share * data_target_numbers(augment->data), sizeof(float));
	if (!augment->blends || !augment->labels2 || !augment->shares || !augment->targets)
		return run_fail(augment->ctx, -ENOMEM, "out of memory");
	return 0;
}

void augment_close(struct augment *augment)
{
	augment_free_mix(augment);
	free(augment->lines);
}

int augment_colout(struct augment *augment, uint64_t step, const struct run_graph *graph,
		   struct device_batch *batch)
{
	const struct recipe *recipe = augment->ctx->recipe;
	if (!(recipe->data.colout > 0))
		return 0;
	uint32_t *lines = realloc(augment->lines, (graph->height + graph->width) * sizeof(*lines));
	if (!lines)
		return run_fail(augment->ctx, -ENOMEM, "out of memory");
	augment->lines = lines;
	batch->rows = lines;
	batch->columns = lines + graph->height;
	colout_draw(recipe->data.colout, recipe->train.seed, step, batch->height, batch->width,
		    lines, lines + graph->height);
	return 0;
}

/* Blends the targets of each sample with its partner's, unless one of them has none. */
static void augment_mix_targets(struct augment *augment, struct device_batch *batch)
{
	size_t outputs = augment->data->classes;
	for (uint32_t i = 0; i < batch->count; i++) {
		const float *own = batch->targets + i * outputs;
		const float *other = batch->targets + (i ^ 1) * outputs;
		float share = isnan(*own) || isnan(*other) ? 1 : augment->shares[i];
		float *mixed = augment->targets + i * outputs;
		for (size_t k = 0; k < outputs; k++)
			mixed[k] = share < 1 ? share * own[k] + (1 - share) * other[k] : own[k];
	}
	batch->targets = augment->targets;
}

void augment_mix(struct augment *augment, uint64_t step, const struct run_graph *graph,
		 struct device_batch *batch)
{
	const struct recipe_train *recipe = &augment->ctx->recipe->train;
	struct mix_batch of = {
		.seed = recipe->seed,
		.step = step,
		.first = augment->ctx->data_comm->rank * data_train_share(augment->data),
		.count = batch->count,
		.micro = graph->count,
		.height = graph->height,
		.width = graph->width,
	};
	if (!mix_is_on(recipe))
		return;
	mix_draw(recipe, &of, augment->blends, augment->shares);
	batch->blends = augment->blends;
	if (batch->targets) {
		augment_mix_targets(augment, batch);
		return;
	}
	for (uint32_t i = 0; i < batch->count; i++)
		augment->labels2[i] = batch->labels ? batch->labels[i ^ 1] : -1;
	batch->labels2 = augment->labels2;
	batch->shares = augment->shares;
}
