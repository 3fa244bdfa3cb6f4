/*
 * Recomputes running statistics for the weights averaged by SWA, with which no step was made:
 * forward passes over training batches, each with equal weight, as in
 * torch.optim.swa_utils.update_bn(). Uses the batches that would have come next.
 */
#include "trainer/run/run.h"

#include "format/base/text/sentence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct bn_update {
	struct run *run;
	struct run_feed feed;
	float *values;  /* original values of all parameters */
	float *one;     /* [elements of the largest parameter] */
	double *sums;   /* sums of all buffers over the forward passes */
	size_t buffers; /* total elements of the buffers */
	uint64_t passes;
};

static bool bn_update_is_moved(const struct device_param *param)
{
	const struct device_param_spec *spec = device_param_spec(param);
	return spec->kind == DEVICE_BUFFER && !spec->frozen;
}

/* Calls function for each parameter, with its offset among all. */
static int bn_update_walk(struct bn_update *update,
			  int (*function)(struct bn_update *update, struct device_param *param,
					  float *place))
{
	struct device_params *params = update->run->params;
	size_t at = 0;
	int r = 0;
	for (size_t i = 0; i < device_params_count(params) && !r; i++) {
		struct device_param *param = device_params_at(params, i);
		r = function(update, param, update->values + at);
		at += device_param_elements(param);
	}
	return r ? run_fail(update->run, r, "statistics of the mean: %s",
			    run_device_text(update->run, r))
		 : 0;
}

/* Saves the values and replaces them with the mean. */
static int bn_update_take_mean(struct bn_update *update, struct device_param *param, float *place)
{
	int r = device_param_read(param, DEVICE_VALUE, place);
	if (!r)
		r = device_param_read(param, DEVICE_SWA, update->one);
	return r ? r : device_param_write(param, DEVICE_VALUE, update->one);
}

static int bn_update_give_back(struct bn_update *update, struct device_param *param, float *place)
{
	return device_param_write(param, DEVICE_VALUE, place);
}

static int bn_update_clear(struct bn_update *update, struct device_param *param, float *place)
{
	if (!bn_update_is_moved(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		update->one[i] = 0;
	return device_param_write(param, DEVICE_VALUE, update->one);
}

/* Adds running statistics; they started at zero, so they are the batch's, times bn_update_moved().
 */
static int bn_update_add(struct bn_update *update, struct device_param *param, float *place)
{
	if (!bn_update_is_moved(param))
		return 0;
	int r = device_param_read(param, DEVICE_VALUE, update->one);
	for (size_t i = 0; i < device_param_elements(param) && !r; i++)
		update->sums[update->buffers + i] += (double)update->one[i];
	update->buffers += device_param_elements(param);
	return r;
}

/* Weight of one pass in the running statistics, which move once per group of a batch norm. */
static double bn_update_moved(const struct run *run)
{
	uint32_t each, groups = device_norm_groups(data_micro_share(&run->data),
						   (uint32_t)run->recipe->model.ghost_batch, &each);
	float momentum = (float)run->recipe->model.bn_momentum;
	return groups == 1 ? (double)momentum
			   : 1 - pow(1 - (double)(momentum / (float)groups), groups);
}

static int bn_update_write(struct bn_update *update, struct device_param *param, float *place)
{
	const struct run *run = update->run;
	double share = 1 / ((double)update->passes * run->comm->world * bn_update_moved(run));
	if (!bn_update_is_moved(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		update->one[i] = (float)(update->sums[update->buffers + i] * share);
	update->buffers += device_param_elements(param);
	return device_param_write(param, DEVICE_SWA, update->one);
}

static int bn_update_pass(struct bn_update *update, const struct device_batch *batch)
{
	struct run *run = update->run;
	uint64_t ticket, step;
	int r = bn_update_walk(update, bn_update_clear);
	if (r)
		return r;
	r = device_feed(run->train.graph, batch, &ticket);
	if (!r)
		r = device_forward(run->train.graph, true, &step);
	if (!r)
		r = device_fed(run->train.graph, ticket, true);
	if (r)
		return run_fail(run, r, "statistics of the mean: %s", run_device_text(run, r));
	update->buffers = 0;
	update->passes++;
	return bn_update_walk(update, bn_update_add);
}

static int bn_update_batch(struct bn_update *update, const struct feed_batch *batch)
{
	struct run *run = update->run;
	struct device_batch images;
	int r = run_graph_for(run, DEVICE_TRAIN, data_micro_share(&run->data), batch->height,
			      batch->width);
	if (!r)
		r = run_device_batch(run, &update->feed, batch, "data.pipeline", &images);
	if (!r)
		run_attach_teacher_logits(run, &images);
	for (uint32_t part = 0; part < run->recipe->train.accumulate && !r; part++) {
		struct device_batch slice = run_slice(run, &images, part);
		r = bn_update_pass(update, &slice);
	}
	return r;
}

/* Fetches a batch on all ranks, or on none: forward passes may wait for each other. */
static int bn_update_next(struct bn_update *update, struct feed_batch *batch)
{
	struct run *run = update->run;
	char error[DATA_ERROR_MAX] = "";
	double wait = 0;
	int r = run_next_batch(run, &update->feed, batch, &wait, error);
	/* the graph's sample count; any image size */
	uint32_t count = data_train_share(&run->data);
	if (!r && batch->count != count)
		r = sentence_fail(error, DATA_ERROR_MAX, -EPROTO,
				  "the feed has a batch of %u samples; expected %u", batch->count,
				  count);
	run->lost = r == -EINTR ? 0 : r;
	if (run->lost)
		run_fail(run, r, "statistics of the mean: %s", error);
	double votes[] = {r == -EINTR, run->lost != 0};
	int failed = run_sum(run, votes, 2);
	if (failed)
		return failed;
	return votes[0] > 0 ? -EINTR : votes[1] > 0 ? RUN_LOST : 0;
}

static int bn_update_with_mean(struct bn_update *update)
{
	struct run *run = update->run;
	struct feed_batch batch;
	int r = bn_update_walk(update, bn_update_take_mean);
	for (uint64_t i = 0; i < run->recipe->train.swa_batches && !r; i++) {
		r = bn_update_next(update, &batch);
		if (r)
			break;
		r = bn_update_batch(update, &batch);
		feed_release(update->feed.feed, &batch);
	}
	int given = bn_update_walk(update, bn_update_give_back);
	r = r ? r : given;
	if (!r)
		r = run_sum(run, update->sums, update->buffers);
	update->buffers = 0;
	return r ? r : bn_update_walk(update, bn_update_write);
}

static size_t bn_update_count(const struct run *run, bool buffers)
{
	size_t count = 0;
	for (size_t i = 0; i < device_params_count(run->params); i++) {
		const struct device_param *param = device_params_at(run->params, i);
		if (!buffers || bn_update_is_moved(param))
			count += device_param_elements(param);
	}
	return count;
}

int run_update_bn(struct run *run)
{
	struct bn_update update = {.run = run};
	size_t buffers = bn_update_count(run, true);
	if (!buffers || !run->recipe->train.swa_batches || !(run->recipe->model.bn_momentum > 0))
		return 0;
	update.values = malloc(bn_update_count(run, false) * sizeof(*update.values));
	update.one = malloc(device_params_largest(run->params) * sizeof(*update.one));
	update.sums = calloc(buffers, sizeof(*update.sums));
	int r = update.values && update.one && update.sums
			? run_open_feed(run, DATA_TRAIN, run->state.epoch, run->state.batch,
					&update.feed)
			: run_fail(run, -ENOMEM, "out of memory");
	if (!r)
		r = bn_update_with_mean(&update);
	run_close_feed(run, &update.feed);
	free(update.values);
	free(update.one);
	free(update.sums);
	return r;
}
