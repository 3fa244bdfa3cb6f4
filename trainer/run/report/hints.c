/*
 * Hints about settings that work, but could be faster or more accurate. They are printed before the
 * first step; the one about waiting for data, after an epoch.
 */
#include "trainer/device/device.h"
#include "trainer/run/run_internal.h"

#include <stdio.h>

enum {
	HINT_MAX = 512,
	/*
	 * tensor cores need padding unless images and classes are multiples of this (NVIDIA, Deep
	 * Learning Performance Guide: multiples of 8 in fp16 and bf16)
	 */
	HINT_UNIT = 8,
	/* batch norms lose accuracy below this many images (Wu and He 2018, Group Normalization) */
	HINT_NORM = 16,
};

#define HINT_WAIT 0.1 /* fraction of time spent waiting for data */

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
		 "each GPU computes %u images at a time, but tensor cores are most efficient with "
		 "multiples of %d: %u images take about as long; the number follows from "
		 "data.batch_size, ranks and micro-batches",
		 count, HINT_UNIT, below + HINT_UNIT);
	return true;
}

static bool hint_precision(const struct run *run, char *text)
{
	if (!on_gpu(run) || device_info(run->ctx.device)->precision != DEVICE_FP32 ||
	    run->ctx.recipe->train.tf32)
		return false;
	snprintf(text, HINT_MAX,
		 "fp32 does not use the tensor cores: train.precision = bf16 is several times as "
		 "fast and needs half the memory; train.tf32 = yes uses them for matrix products "
		 "and convolutions only");
	return true;
}

static bool hint_norm(const struct run *run, char *text)
{
	uint32_t count = run->network.train.count;
	if (run->ctx.recipe->model.bn_sync)
		count *= run->ctx.data_comm->world;
	if (count >= HINT_NORM || run->ctx.recipe->model.ghost_batch ||
	    !network_has_batch_norms(&run->network))
		return false;
	snprintf(text, HINT_MAX,
		 "batch norms compute statistics over %u image%s, which are noisy below %d: use a "
		 "larger data.batch_size, fewer micro-batches, or with several ranks model.bn_sync "
		 "= yes",
		 count, count == 1 ? "" : "s", HINT_NORM);
	return true;
}

static bool hint_slow(const struct run *run, char *text)
{
	const struct run_options *options = &run->ctx.options;
	if (!options->detect_anomaly && !options->profile)
		return false;
	snprintf(text, HINT_MAX,
		 "--%s waits for every layer: times per layer are accurate, times per step are not",
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
			fprintf(file, "hint     %s\n", text);
}

void run_hint_data_wait(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	double share = state->train_seconds > 0 ? state->wait_seconds / state->train_seconds : 0;
	if (run->data_wait_hinted || share < HINT_WAIT)
		return;
	run->data_wait_hinted = true;
	progress_line(&run->ctx.progress,
		      "hint     %.0f %% of the time was spent waiting for data: loaderbench with "
		      "the same pipeline measures the loader's speed; see WHERE TIME GOES in "
		      "loaderd(1) for the causes",
		      100 * share);
}
