/*
 * Recomputes batch norm statistics for weights averaged by SWA, with which no step was made. Runs
 * forward passes over the training batches that would come next, and weights the statistics of all
 * batches equally, as torch.optim.swa_utils.update_bn().
 */
#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/run/network/micro_batch.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct bn_update {
	struct run *run;
	struct run_feed feed;
	float *values;  /* values of all parameters before the update */
	float *one;     /* [elements of the largest parameter] */
	double *sums;   /* sums of all buffers over the forward passes */
	size_t buffers; /* number of buffer elements visited so far */
	uint64_t passes;
};

static bool bn_update_is_buffer(const struct device_param *param)
{
	const struct device_param_spec *spec = device_param_spec(param);
	return spec->kind == DEVICE_BUFFER && !spec->frozen;
}

static int bn_update_fail(struct run *run, int code, const char *text)
{
	return run_fail(&run->ctx, code, "batch norm statistics of the averaged weights: %s", text);
}

/* Calls the function for each parameter, with the parameter's range of update->values. */
static int bn_update_walk(struct bn_update *update,
			  int (*function)(struct bn_update *update, struct device_param *param,
					  float *values))
{
	struct run *run = update->run;
	struct device_params *params = run->network.params;
	float *values = update->values;
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		int r = function(update, param, values);
		if (r < 0)
			return bn_update_fail(run, r, run_device_text(&run->ctx, r));
		values += device_param_elements(param);
	}
	return 0;
}

/* Saves the weights and replaces them with the SWA average. */
static int bn_update_swap_in_mean(struct bn_update *update, struct device_param *param,
				  float *values)
{
	int r = device_param_read(param, DEVICE_VALUE, values);
	if (r < 0)
		return r;
	r = device_param_read(param, DEVICE_SWA, update->one);
	return r < 0 ? r : device_param_write(param, DEVICE_VALUE, update->one);
}

static int bn_update_restore(struct bn_update *update, struct device_param *param, float *values)
{
	return device_param_write(param, DEVICE_VALUE, values);
}

static int bn_update_clear(struct bn_update *update, struct device_param *param, float *values)
{
	if (!bn_update_is_buffer(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		update->one[i] = 0;
	return device_param_write(param, DEVICE_VALUE, update->one);
}

/*
 * Adds the running statistics of one pass. They were zero before the pass, so they are those of the
 * batch times bn_update_momentum().
 */
static int bn_update_add(struct bn_update *update, struct device_param *param, float *values)
{
	if (!bn_update_is_buffer(param))
		return 0;
	int r = device_param_read(param, DEVICE_VALUE, update->one);
	if (r < 0)
		return r;
	for (size_t i = 0; i < device_param_elements(param); i++)
		update->sums[update->buffers + i] += (double)update->one[i];
	update->buffers += device_param_elements(param);
	return 0;
}

/* Weight of one pass in the running statistics, which a pass updates once for each ghost batch. */
static double bn_update_momentum(const struct run *run)
{
	const struct recipe_model *recipe = &run->ctx.recipe->model;
	uint32_t each, groups = device_norm_groups(data_micro_share(&run->data),
						   (uint32_t)recipe->ghost_batch, &each);
	float momentum = (float)recipe->bn_momentum;
	return groups == 1 ? (double)momentum
			   : 1 - pow(1 - (double)(momentum / (float)groups), groups);
}

static int bn_update_write(struct bn_update *update, struct device_param *param, float *values)
{
	const struct run *run = update->run;
	double passes = (double)update->passes * run->ctx.comm->world;
	double share = 1 / (passes * bn_update_momentum(run));
	if (!bn_update_is_buffer(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		update->one[i] = (float)(update->sums[update->buffers + i] * share);
	update->buffers += device_param_elements(param);
	return device_param_write(param, DEVICE_SWA, update->one);
}

static int bn_update_pass(struct bn_update *update, const struct device_batch *batch)
{
	struct run *run = update->run;
	uint64_t step;
	int r = bn_update_walk(update, bn_update_clear);
	if (r < 0)
		return r;
	r = micro_batch_forward(run->network.train.graph, batch, true, &step);
	if (r < 0)
		return bn_update_fail(run, r, run_device_text(&run->ctx, r));
	update->buffers = 0;
	update->passes++;
	return bn_update_walk(update, bn_update_add);
}

static int bn_update_batch(struct bn_update *update, const struct feed_batch *batch)
{
	struct run *run = update->run;
	struct run_graph *graph = &run->network.train;
	struct device_batch images;
	int r = network_plan(&run->network, graph, DEVICE_TRAIN, data_micro_share(&run->data),
			     batch->height, batch->width);
	if (r < 0)
		return r;
	r = run_train_batch(run, &update->feed, batch, &images);
	if (r < 0)
		return r;
	teacher_attach_logits(&run->teacher, &images);
	for (uint32_t part = 0; part < run->ctx.recipe->train.accumulate; part++) {
		struct device_batch slice =
			micro_batch(&images, run->data.classes, graph->count, part);
		r = bn_update_pass(update, &slice);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Fetches a batch on all ranks or on none, because a forward pass may wait for the other ranks. */
static int bn_update_next(struct bn_update *update, struct feed_batch *batch)
{
	struct run *run = update->run;
	char error[DATA_ERROR_MAX] = "";
	double wait = 0;
	int r = run_feed_next(&run->feeds, &update->feed, batch, &wait, error);
	/* the graph has a fixed number of samples, but fits any image size */
	uint32_t count = data_train_share(&run->data);
	if (r == 0 && batch->count != count)
		r = sentence_fail(error, DATA_ERROR_MAX, -EPROTO,
				  "the feed has a batch of %u samples; expected %u", batch->count,
				  count);
	if (r && r != -EINTR)
		bn_update_fail(run, r, error);
	return run_vote(&run->ctx, r, NULL);
}

static int bn_update_sum_batches(struct bn_update *update)
{
	struct feed_batch batch;
	for (uint64_t i = 0; i < update->run->ctx.recipe->train.swa_batches; i++) {
		int r = bn_update_next(update, &batch);
		if (r)
			return r;
		r = bn_update_batch(update, &batch);
		feed_release(update->feed.feed, &batch);
		if (r < 0)
			return r;
	}
	return 0;
}

static int bn_update_run(struct bn_update *update)
{
	struct run *run = update->run;
	int r = bn_update_walk(update, bn_update_swap_in_mean);
	if (r == 0)
		r = bn_update_sum_batches(update);
	int restored = bn_update_walk(update, bn_update_restore);
	if (r || restored < 0)
		return r ? r : restored;
	r = run_sum(&run->ctx, update->sums, update->buffers);
	if (r < 0)
		return r;
	update->buffers = 0;
	return bn_update_walk(update, bn_update_write);
}

static size_t bn_update_count(const struct device_params *params, bool only_buffers)
{
	size_t count = 0;
	for (size_t i = 0; i < device_params_count(params); i++) {
		const struct device_param *param = device_params_at(params, i);
		if (!only_buffers || bn_update_is_buffer(param))
			count += device_param_elements(param);
	}
	return count;
}

int run_update_bn(struct run *run)
{
	struct bn_update update = {.run = run};
	const struct device_params *params = run->network.params;
	const struct recipe *recipe = run->ctx.recipe;
	size_t buffers = bn_update_count(params, true);
	if (!buffers || !recipe->train.swa_batches || !(recipe->model.bn_momentum > 0))
		return 0;
	update.values = malloc(bn_update_count(params, false) * sizeof(*update.values));
	update.one = malloc(device_params_largest(params) * sizeof(*update.one));
	update.sums = calloc(buffers, sizeof(*update.sums));
	int r = update.values && update.one && update.sums
			? run_feed_open(&run->feeds, DATA_TRAIN, run->state.epoch, run->state.batch,
					&update.feed)
			: run_fail(&run->ctx, -ENOMEM, "out of memory");
	if (r == 0)
		r = bn_update_run(&update);
	run_feed_close(&run->feeds, &update.feed);
	free(update.values);
	free(update.one);
	free(update.sums);
	return r;
}
