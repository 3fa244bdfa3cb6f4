/*
 * Advice printed before the first step and after the first epoch: settings that work, but could be
 * faster or more accurate. Each table row is one piece of advice.
 */
#include "trainer/run/run_internal.h"

#include <stdio.h>

enum {
	HINT_MAX = 512,
	/*
	 * tensor cores need no padding for multiples of this many images or classes (NVIDIA, Deep
	 * Learning Performance Guide: multiples of 8 in fp16 and bf16)
	 */
	HINT_UNIT = 8,
	/* batch norms lose accuracy with fewer images (Wu and He 2018, Group Normalization) */
	HINT_NORM = 16,
};

#define HINT_WAIT 0.1 /* share of time */

static bool on_gpu(const struct run *run)
{
	return !device_info(run->ctx.device)->threads;
}

static bool hint_unit(const struct run *run, char *text)
{
	uint32_t count = run->network.train.count, below = count - count % HINT_UNIT;
	if (!on_gpu(run) || device_info(run->ctx.device)->precision == DEVICE_FP32 ||
	    count % HINT_UNIT == 0)
		return false;
	snprintf(text, HINT_MAX,
		 "a GPU computes %u images at a time, and its tensor cores work on multiples of "
		 "%d: %u take about as long; data.batch_size, and the number of ranks and "
		 "micro-batches, make that number",
		 count, HINT_UNIT, below + HINT_UNIT);
	return true;
}

static bool hint_precision(const struct run *run, char *text)
{
	if (!on_gpu(run) || device_info(run->ctx.device)->precision != DEVICE_FP32 ||
	    run->ctx.recipe->train.tf32)
		return false;
	snprintf(text, HINT_MAX,
		 "fp32 leaves the tensor cores unused: train.precision = bf16 is several times as "
		 "fast and takes half the memory; train.tf32 = yes keeps fp32 everywhere but in "
		 "products");
	return true;
}

static bool hint_norm(const struct run *run, char *text)
{
	uint32_t count = run->network.train.count;
	if (run->ctx.recipe->model.bn_sync)
		count *= run->ctx.comm->world;
	if (count >= HINT_NORM || run->ctx.recipe->model.ghost_batch ||
	    !network_has_batch_norms(&run->network))
		return false;
	snprintf(text, HINT_MAX,
		 "batch norms normalise by %u image%s at a time, and below %d their statistics are "
		 "noisy: take a larger data.batch_size, fewer micro-batches, or with several ranks "
		 "model.bn_sync = yes",
		 count, count == 1 ? "" : "s", HINT_NORM);
	return true;
}

static bool hint_slow(const struct run *run, char *text)
{
	const struct run_options *options = &run->ctx.options;
	if (!options->detect_anomaly && !options->profile)
		return false;
	snprintf(
		text, HINT_MAX,
		"--%s waits for every layer: its times per layer are right, those of steps are not",
		options->detect_anomaly ? "detect-anomaly" : "profile");
	return true;
}

static bool (*const hints[])(const struct run *run, char *text) = {
	hint_unit,
	hint_precision,
	hint_norm,
	hint_slow,
};

void run_print_hints(const struct run *run, FILE *file)
{
	char text[HINT_MAX];
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (hints[i](run, text))
			fprintf(file, "advice   %s\n", text);
}

void run_hint_data_wait(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	double share = state->train_seconds > 0 ? state->wait_seconds / state->train_seconds : 0;
	if (run->data_wait_hinted || share < HINT_WAIT)
		return;
	run->data_wait_hinted = true;
	progress_line(&run->ctx.progress,
		      "advice   %.0f %% of the time went into waiting for data: loaderbench with "
		      "the same pipeline says how fast it comes, loaderd(1), WHERE TIME GOES, "
		      "what takes it",
		      100 * share);
}
