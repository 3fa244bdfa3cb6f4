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

struct settling {
	struct run *run;
	struct run_feed feed;
	float *values;  /* original values of all parameters */
	float *one;     /* [elements of the largest parameter] */
	double *sums;   /* sums of all buffers over the forward passes */
	size_t buffers; /* total elements of the buffers */
	uint64_t passes;
};

static bool settle_is_moved(const struct device_param *param)
{
	const struct device_param_spec *spec = device_param_spec(param);
	return spec->kind == DEVICE_BUFFER && !spec->frozen;
}

/* Calls function for each parameter, with its offset among all. */
static int settle_walk(struct settling *settling,
		       int (*function)(struct settling *settling, struct device_param *param,
				       float *place))
{
	struct device_params *params = settling->run->params;
	size_t at = 0;
	int r = 0;
	for (size_t i = 0; i < device_params_count(params) && !r; i++) {
		struct device_param *param = device_params_at(params, i);
		r = function(settling, param, settling->values + at);
		at += device_param_elements(param);
	}
	return r ? run_fail(settling->run, r, "statistics of the mean: %s",
			    run_device_text(settling->run, r))
		 : 0;
}

/* Saves the values and replaces them with the mean. */
static int settle_take_mean(struct settling *settling, struct device_param *param, float *place)
{
	int r = device_param_read(param, DEVICE_VALUE, place);
	if (!r)
		r = device_param_read(param, DEVICE_SWA, settling->one);
	return r ? r : device_param_write(param, DEVICE_VALUE, settling->one);
}

static int settle_give_back(struct settling *settling, struct device_param *param, float *place)
{
	return device_param_write(param, DEVICE_VALUE, place);
}

static int settle_clear(struct settling *settling, struct device_param *param, float *place)
{
	if (!settle_is_moved(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		settling->one[i] = 0;
	return device_param_write(param, DEVICE_VALUE, settling->one);
}

/* Adds running statistics; they started at zero, so they are the batch's, times settle_moved(). */
static int settle_add(struct settling *settling, struct device_param *param, float *place)
{
	if (!settle_is_moved(param))
		return 0;
	int r = device_param_read(param, DEVICE_VALUE, settling->one);
	for (size_t i = 0; i < device_param_elements(param) && !r; i++)
		settling->sums[settling->buffers + i] += (double)settling->one[i];
	settling->buffers += device_param_elements(param);
	return r;
}

/* Weight of one pass in the running statistics, which move once per group of a batch norm. */
static double settle_moved(const struct run *run)
{
	uint32_t each, groups = device_norm_groups(data_micro_share(&run->data),
						   (uint32_t)run->recipe->model.ghost_batch, &each);
	float momentum = (float)run->recipe->model.bn_momentum;
	return groups == 1 ? (double)momentum
			   : 1 - pow(1 - (double)(momentum / (float)groups), groups);
}

static int settle_write(struct settling *settling, struct device_param *param, float *place)
{
	const struct run *run = settling->run;
	double share = 1 / ((double)settling->passes * run->comm->world * settle_moved(run));
	if (!settle_is_moved(param))
		return 0;
	for (size_t i = 0; i < device_param_elements(param); i++)
		settling->one[i] = (float)(settling->sums[settling->buffers + i] * share);
	settling->buffers += device_param_elements(param);
	return device_param_write(param, DEVICE_SWA, settling->one);
}

static int settle_pass(struct settling *settling, const struct device_batch *batch)
{
	struct run *run = settling->run;
	uint64_t ticket, step;
	int r = settle_walk(settling, settle_clear);
	if (r)
		return r;
	r = device_feed(run->train.graph, batch, &ticket);
	if (!r)
		r = device_forward(run->train.graph, true, &step);
	if (!r)
		r = device_fed(run->train.graph, ticket, true);
	if (r)
		return run_fail(run, r, "statistics of the mean: %s", run_device_text(run, r));
	settling->buffers = 0;
	settling->passes++;
	return settle_walk(settling, settle_add);
}

static int settle_batch(struct settling *settling, const struct feed_batch *batch)
{
	struct run *run = settling->run;
	struct device_batch images;
	int r = run_graph_for(run, DEVICE_TRAIN, data_micro_share(&run->data), batch->height,
			      batch->width);
	if (!r)
		r = run_device_batch(run, &settling->feed, batch, "data.pipeline", &images);
	if (!r)
		run_teach_nothing(run, &images);
	for (uint32_t part = 0; part < run->recipe->train.accumulate && !r; part++) {
		struct device_batch slice = run_slice(run, &images, part);
		r = settle_pass(settling, &slice);
	}
	return r;
}

/* Fetches a batch on all ranks, or on none: forward passes may wait for each other. */
static int settle_next(struct settling *settling, struct feed_batch *batch)
{
	struct run *run = settling->run;
	char error[DATA_ERROR_MAX] = "";
	double wait = 0;
	int r = run_next_batch(run, &settling->feed, batch, &wait, error);
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

static int settle_with_mean(struct settling *settling)
{
	struct run *run = settling->run;
	struct feed_batch batch;
	int r = settle_walk(settling, settle_take_mean);
	for (uint64_t i = 0; i < run->recipe->train.swa_batches && !r; i++) {
		r = settle_next(settling, &batch);
		if (r)
			break;
		r = settle_batch(settling, &batch);
		feed_release(settling->feed.feed, &batch);
	}
	int given = settle_walk(settling, settle_give_back);
	r = r ? r : given;
	if (!r)
		r = run_sum(run, settling->sums, settling->buffers);
	settling->buffers = 0;
	return r ? r : settle_walk(settling, settle_write);
}

static size_t settle_count(const struct run *run, bool buffers)
{
	size_t count = 0;
	for (size_t i = 0; i < device_params_count(run->params); i++) {
		const struct device_param *param = device_params_at(run->params, i);
		if (!buffers || settle_is_moved(param))
			count += device_param_elements(param);
	}
	return count;
}

int run_settle(struct run *run)
{
	struct settling settling = {.run = run};
	size_t buffers = settle_count(run, true);
	if (!buffers || !run->recipe->train.swa_batches || !(run->recipe->model.bn_momentum > 0))
		return 0;
	settling.values = malloc(settle_count(run, false) * sizeof(*settling.values));
	settling.one = malloc(device_params_largest(run->params) * sizeof(*settling.one));
	settling.sums = calloc(buffers, sizeof(*settling.sums));
	int r = settling.values && settling.one && settling.sums
			? run_open_feed(run, DATA_TRAIN, run->state.epoch, run->state.batch,
					&settling.feed)
			: run_fail(run, -ENOMEM, "out of memory");
	if (!r)
		r = settle_with_mean(&settling);
	run_close_feed(run, &settling.feed);
	free(settling.values);
	free(settling.one);
	free(settling.sums);
	return r;
}
