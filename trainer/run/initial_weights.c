/* The initial weights of a run: random, or read from a weights file or a checkpoint. */
#include "trainer/device/params.h"
#include "trainer/run/open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int open_initialize_from(struct run *run, const struct feed_batch *batch)
{
	struct model_images images = {
		.pixels = batch->images,
		.count = batch->count,
		.height = batch->height,
		.width = batch->width,
		.channels = batch->channels,
	};
	memcpy(images.mean, run->data.mean, sizeof(images.mean));
	memcpy(images.std, run->data.std, sizeof(images.std));
	bool pixels = batch->element == FEED_U8 && batch->layout == FEED_NHWC;
	if (model_needs_images(run->network.model) && !pixels)
		return run_fail(&run->ctx, -EINVAL,
				"model.whiten needs u8 images from data.pipeline: remove to() and "
				"layout()");
	int r = model_initialize(run->network.model, run->ctx.recipe->train.seed,
				 pixels ? &images : NULL);
	return r < 0 ? run_fail(&run->ctx, r, "initial weights: %s", strerror(-r)) : 0;
}

/*
 * Initialises weights from whole batches with all transforms applied, as a single rank gets them.
 * This rank's training feed delivers only a part, or leaves transforms to the device.
 */
static int open_initialize_from_whole(struct run *run)
{
	struct feed *feed;
	struct feed_batch batch;
	double wait = 0;
	int r = data_feed(&run->data, DATA_WHOLE, run->state.epoch, run->state.batch, &feed,
			  run->ctx.error);
	if (r < 0)
		return r;
	r = data_next(&run->data, feed, run->ctx.options.stop, &batch, &wait, run->ctx.error);
	if (r == -EINTR)
		run_fail(&run->ctx, r, "stopped before the first step");
	else if (r == 0)
		r = open_initialize_from(run, &batch);
	feed_close(feed);
	return r;
}

/* Loads the weights of model.pretrained. */
static int open_take_weights(struct run *run)
{
	const char *file = run->ctx.recipe->model.pretrained;
	char error[CHECKPOINT_ERROR_MAX];
	struct checkpoint_import_result result;
	/* in an evaluation, data.c has compared the class names with data.val's */
	const char *class_names = run->ctx.options.evaluate ? NULL : run->data.class_names;
	int r = checkpoint_import(file, class_names, run->network.params, &result, error);
	if (r < 0)
		return run_fail(&run->ctx, r, "model.pretrained: %s", error);
	if (run->ctx.options.evaluate && result.head_kept)
		return run_fail(
			&run->ctx, -EINVAL,
			"--evaluate: %s has no last layer with %u classes: fine-tune it first",
			file, run->data.classes);
	if (run->ctx.options.evaluate && result.unknown_count)
		return run_fail(&run->ctx, -EINVAL,
				"--evaluate: %s does not match model.name = %s: the model has no "
				"tensor %s%s",
				file, run->ctx.recipe->model.name, result.unknown,
				result.unknown_count > 1 ? " and others" : "");
	progress_line(&run->ctx.progress, "weights from %s%s%s%s%s", file,
		      result.resized ? ", position embeddings resized" : "",
		      result.layout ? ", in the names of " : "", result.layout ? result.layout : "",
		      result.head_kept
			      ? "; the last layer has other classes and is initialised anew"
			      : "");
	if (result.unknown_count)
		progress_line(&run->ctx.progress,
			      "%s: ignored tensors that the model does not have: %s%s", file,
			      result.unknown, result.unknown_count > 1 ? " and others" : "");
	return 0;
}

/* Initialises the weights. A file to evaluate must contain all parameters except constants. */
static int open_initialize(struct run *run)
{
	bool own = run->ctx.data_comm->world == 1 && !run->input.feed.deferred;
	bool whole = !own && model_needs_images(run->network.model);
	int r = run->ctx.options.evaluate ? model_initialize_constants(run->network.model)
		: whole                   ? open_initialize_from_whole(run)
					  : open_initialize_from(run, &run->input.batch);
	if (r < 0 || !*run->ctx.recipe->model.pretrained)
		return r;
	return open_take_weights(run);
}

static int open_copy_slow(const struct device_params *params, float *values)
{
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		if (!device_param_has(param, DEVICE_SLOW))
			continue;
		int r = device_param_read(param, DEVICE_VALUE, values);
		if (r < 0)
			return r;
		r = device_param_write(param, DEVICE_SLOW, values);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Initialises Lookahead's slow weights to the weights. */
static int open_begin_slow(struct run *run)
{
	const struct device_params *params = run->network.params;
	float *values = malloc(device_params_largest(params) * sizeof(*values));
	int r = values ? open_copy_slow(params, values) : -ENOMEM;
	free(values);
	if (r < 0)
		return run_fail(&run->ctx, r, "slow weights: %s", run_device_text(&run->ctx, r));
	return 0;
}

/* Rank 0. */
static int open_fill_all(void *of)
{
	struct run *run = of;
	if (!run->checkpoint) {
		int r = open_initialize(run);
		return r < 0 ? r : open_begin_slow(run);
	}
	int r = checkpoint_restore(run->checkpoint, run->network.params, run->ctx.error);
	if (r < 0)
		return r;
	if (run->ctx.options.evaluate)
		progress_line(&run->ctx.progress, "weights from %s", run->checkpoint->path);
	return 0;
}

/* What rank 0 tells the others about a sharded checkpoint to restore. */
struct fill_source {
	char path[CHECKPOINT_PATH_MAX];
	char id[CHECKPOINT_ID_MAX];
};

/* Each rank reads its part of divided slots; rank 0 all of the others, which it shares later. */
static int open_fill_parts(struct run *run, const struct fill_source *source)
{
	char error[CHECKPOINT_ERROR_MAX];
	if (run->ctx.comm->rank == 0)
		return open_fill_all(run);
	int r = checkpoint_restore_part(source->path, source->id, run->network.params, error);
	return r < 0 ? run_fail(&run->ctx, r, "%s", error) : 0;
}

int open_fill_params(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	struct fill_source source = {{0}};
	if (run->checkpoint && checkpoint_is_sharded(run->checkpoint)) {
		snprintf(source.path, sizeof(source.path), "%s", run->checkpoint->path);
		snprintf(source.id, sizeof(source.id), "%s", checkpoint_id(run->checkpoint));
	}
	int r = comm_broadcast(ctx->comm, &source, sizeof(source), 0);
	if (r < 0)
		return run_fail(ctx, r, "%s", comm_error(ctx->comm));
	return *source.id
		       ? open_fill_parts(run, &source)
		       : ranks_lead(ctx->comm, run->network.params, open_fill_all, run, ctx->error);
}

int open_share_params(struct run *run)
{
	int r = ranks_share_params(run->ctx.comm, run->network.params, false, run->ctx.error);
	if (r < 0 || !run->resumed)
		return r;
	return device_params_set_state(run->network.params, &run->state.device);
}
