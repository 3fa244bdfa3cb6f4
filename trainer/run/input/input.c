#include "trainer/run/input/input.h"

#include "trainer/device/steps.h"

#include <errno.h>
#include <string.h>

int input_open(struct input *input, const struct checkpoint_state *state,
	       struct feed_info *ret_info)
{
	struct data *data = input->feeds->data;
	const struct recipe_data *recipe = &data->recipe->data;
	struct feed_info info = {.size = sizeof(info)};
	/* of other orders the daemon knows the length of an epoch, and refuses the batch size */
	if (!data->order->chooses && recipe->batch_size > data->samples)
		return run_fail(input->feeds->ctx, -EINVAL,
				"data.batch_size = %llu exceeds the %llu sample%s of %s",
				(unsigned long long)recipe->batch_size,
				(unsigned long long)data->samples, data->samples == 1 ? "" : "s",
				data->order->datasets[0].path);
	int r = run_feed_open(input->feeds, DATA_TRAIN, state->epoch, state->batch, &input->feed);
	if (r < 0)
		return r;
	feed_info(input->feed.feed, &info);
	data->epoch_samples = data->order->chooses ? info.epoch_samples : data->samples;
	input->inflight_max = info.slots > INPUT_INFLIGHT_MAX ? INPUT_INFLIGHT_MAX : info.slots - 1;
	*ret_info = info;
	return 0;
}

void input_close(struct input *input)
{
	run_feed_close(input->feeds, &input->feed);
}

int input_first(struct input *input)
{
	struct run_context *ctx = input->feeds->ctx;
	char error[DATA_ERROR_MAX] = "";
	double wait = 0;
	int r = run_feed_next(input->feeds, &input->feed, &input->batch, &wait, error);
	if (r == FEED_END)
		return run_fail(ctx, -EPROTO, "the feed ended before its first batch");
	if (r < 0)
		return run_fail(ctx, r, "%s",
				r == -EINTR ? "stopped before the first step" : error);
	input->has_batch = true;
	return 0;
}

static int input_fetch(struct input *input, const struct checkpoint_state *state, uint64_t steps,
		       double *wait_seconds)
{
	struct run_context *ctx = input->feeds->ctx;
	char error[DATA_ERROR_MAX] = "";
	int r = run_feed_next(input->feeds, &input->feed, &input->batch, wait_seconds, error);
	if (r == FEED_END)
		return run_fail(ctx, -EPROTO, "the feed ended at step %llu of %llu",
				(unsigned long long)state->step, (unsigned long long)steps);
	if (r == -EINTR)
		return r;
	if (r < 0)
		return run_fail(ctx, r, "step %llu: %s", (unsigned long long)state->step + 1,
				error);
	input->has_batch = true;
	return 0;
}

int input_next(struct input *input, const struct checkpoint_state *state, uint64_t steps,
	       double *wait_seconds)
{
	struct run_context *ctx = input->feeds->ctx;
	const struct feed_batch *batch = &input->batch;
	if (!input->has_batch) {
		int r = input_fetch(input, state, steps, wait_seconds);
		if (r < 0)
			return r;
	}
	uint32_t count = data_train_share(input->feeds->data);
	if (ctx->options.overfit_batch)
		return 0;
	if (batch->epoch != state->epoch || batch->batch != state->batch || batch->count != count)
		return run_fail(ctx, -EPROTO,
				"the feed is at epoch %llu, batch %llu with %u samples; expected "
				"%llu, %llu with %u",
				(unsigned long long)batch->epoch, (unsigned long long)batch->batch,
				batch->count, (unsigned long long)state->epoch,
				(unsigned long long)state->batch, count);
	return 0;
}

void input_queued(struct input *input, uint64_t ticket)
{
	input->inflight[input->inflight_count++] = (struct inflight_batch){input->batch, ticket};
	input->has_batch = input->feeds->ctx->options.overfit_batch;
}

bool input_is_full(const struct input *input)
{
	return input->inflight_count == input->inflight_max;
}

int input_release(struct input *input, struct device_graph *graph, bool wait)
{
	while (input->inflight_count) {
		int r = device_upload_done(graph, input->inflight[0].ticket, wait);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		if (!input->feeds->ctx->options.overfit_batch)
			feed_release(input->feed.feed, &input->inflight[0].batch);
		input->inflight_count--;
		memmove(input->inflight, input->inflight + 1,
			input->inflight_count * sizeof(input->inflight[0]));
	}
	return 0;
}

void input_set_size(struct input *input, uint32_t height, uint32_t width)
{
	input->batch.height = height;
	input->batch.width = width;
}
