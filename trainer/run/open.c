/*
 * Preparation before the first step or the evaluation, in stages that all ranks pass together:
 * device, data, model, checkpoint, first batch, plan.
 */
#include "trainer/algorithms/layer_decay.h"
#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/optim.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int run_open_mix(struct run *run)
{
	uint32_t share = data_train_share(&run->data), micro = data_micro_share(&run->data);
	if (!mix_is_on(&run->recipe->train))
		return 0;
	if (micro % 2)
		return run_fail(
			run, -EINVAL,
			"%s blends pairs of samples, and data.batch_size = %llu is of %u at "
			"a time (ranks, train.accumulate): take twice as many",
			run->recipe->train.mixup > 0 ? "train.mixup" : "train.cutmix",
			(unsigned long long)run->recipe->data.batch_size, micro);
	free(run->mix.blends);
	free(run->mix.labels2);
	free(run->mix.shares);
	run->mix.blends = calloc(share, sizeof(*run->mix.blends));
	run->mix.labels2 = calloc(share, sizeof(*run->mix.labels2));
	run->mix.shares = calloc(share, sizeof(*run->mix.shares));
	return run->mix.blends && run->mix.labels2 && run->mix.shares
		       ? 0
		       : run_fail(run, -ENOMEM, "out of memory");
}

static int open_check_share(struct run *run)
{
	uint64_t batch = run->recipe->data.batch_size, world = run->comm->world;
	uint64_t parts = recipe_accumulate(run->recipe), equal = world * parts;
	uint64_t next = (batch + equal - 1) / equal * equal;
	uint64_t ghost = run->recipe->model.ghost_batch;
	if (batch % equal == 0 && ghost > batch / equal)
		return run_fail(run, -EINVAL,
				"model.ghost_batch = %llu is more than the %llu samples that a "
				"batch norm sees at a time (data.batch_size, ranks, "
				"train.accumulate): take at most as many, or 0",
				(unsigned long long)ghost, (unsigned long long)(batch / equal));
	if (batch % equal == 0)
		return 0;
	if (parts == 1)
		return run_fail(run, -EINVAL,
				"data.batch_size = %llu does not divide by %llu ranks: it is the "
				"batch of all ranks together, so take %llu",
				(unsigned long long)batch, (unsigned long long)world,
				(unsigned long long)next);
	return run_fail(run, -EINVAL,
			"data.batch_size = %llu does not divide by train.accumulate = %llu and "
			"%llu rank%s: it is all micro-batches together, so take %llu",
			(unsigned long long)batch, (unsigned long long)parts,
			(unsigned long long)world, world == 1 ? "" : "s", (unsigned long long)next);
}

/*
 * Opens the checkpoint to resume from; NULL if there is none. If the newest is damaged, tries the
 * one before; other read errors are fatal, since the file may be sound.
 */
static int open_find_checkpoint(struct run *run)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t step = UINT64_MAX;
	if (!run->options.resume)
		return 0;
	struct stat status;
	if (run->options.resume_path && !stat(run->options.resume_path, &status) &&
	    S_ISDIR(status.st_mode))
		return run_fail(run, -EISDIR,
				"--resume=%s is a folder: --resume --output=%s takes the newest "
				"checkpoint in it",
				run->options.resume_path, run->options.resume_path);
	if (run->options.resume_path)
		return checkpoint_open(run->options.resume_path, &run->checkpoint, run->error);
	int failed = 0;
	while (!checkpoint_newest(run->options.output, step, &step, path)) {
		failed = checkpoint_open(path, &run->checkpoint, run->error);
		if (failed != -EBADMSG)
			return failed;
		progress_line(&run->progress, "%s; trying the checkpoint before it", run->error);
	}
	if (!failed && run->options.evaluate)
		return run_fail(run, -ENOENT, "--evaluate --resume: %s holds no checkpoint",
				run->options.output);
	if (!failed)
		progress_line(&run->progress,
			      "%s holds no checkpoint yet: starting from the beginning",
			      run->options.output);
	return failed;
}

/* With more threads than CPUs, threads wait for each other at every barrier. */
static void open_check_threads(struct run *run)
{
	const struct device_info *device = device_info(run->device);
	if (device->cpus && device->threads > device->cpus)
		progress_line(&run->progress,
			      "train.threads = %u, but there %s %u CPU%s for %s: threads that take "
			      "turns are slower; train.threads=0 takes as many as there are CPUs",
			      device->threads, device->cpus == 1 ? "is" : "are", device->cpus,
			      device->cpus == 1 ? "" : "s",
			      run->comm->world > 1 ? "each rank" : "them");
}

static int open_device(struct run *run)
{
	static const char *const backends[] = {NULL, "cpu", "cuda"};
	char error[DEVICE_ERROR_MAX] = "";
	struct device_options options = {
		.precision = (enum device_precision)run->recipe->train.precision,
		.threads = (unsigned)run->recipe->train.threads,
		.index = run->options.device_index,
		.comm = run->comm,
		.detect_anomaly = run->options.detect_anomaly,
		.profile = run->options.profile,
		.fusion = (enum device_fusion)run->recipe->train.fusion,
		.autotune = run->recipe->train.autotune,
		.tf32 = run->recipe->train.tf32,
		.deterministic = run->recipe->train.deterministic,
		.arena_bytes_max = (uint64_t)(run->recipe->train.memory_limit * (1 << 30)),
	};
	int r = device_open(backends[run->recipe->train.device], &options, &run->device, error);
	if (r)
		return run_fail(run, r, "train.device = %s: %s",
				backends[run->recipe->train.device]
					? backends[run->recipe->train.device]
					: "auto",
				*error ? error : strerror(-r));
	if (*error)
		progress_line(&run->progress, "passed over: %s", error);
	if (*device_error(run->device))
		progress_line(&run->progress, "device: %s", device_error(run->device));
	open_check_threads(run);
	return 0;
}

/* All ranks must compute in the same precision, since they sum gradients. */
static int open_check_precision(struct run *run)
{
	enum device_precision mine = device_info(run->device)->precision;
	unsigned rank;
	int r = ranks_compare(run->comm, &mine, sizeof(mine), &rank, run->error);
	if (r)
		return r;
	if (rank < run->comm->world)
		return run_fail(run, -EINVAL,
				"rank %u would compute in another precision than rank 0: set "
				"train.precision",
				rank);
	return 0;
}

static int open_data(struct run *run)
{
	unsigned threads = data_daemon_threads(&run->recipe->data, run->comm,
					       device_info(run->device)->threads > 0);
	return data_open(&run->data, run->recipe, run->comm, run->options.socket, threads,
			 run->options.evaluate ? &run->weights : NULL, run->error);
}

/* All ranks must see the same datasets, or samples would be skipped and others duplicated. */
static int open_check_data(struct run *run)
{
	static const char *const keys[] = {"train", "val"};
	const struct uuid *const found[] = {&run->data.train_uuid, &run->data.val_uuid};
	for (int i = 0; i < 2; i++) {
		struct uuid first = *found[i];
		unsigned rank;
		int r = comm_broadcast(run->comm, &first, sizeof(first), 0);
		if (r)
			return run_fail(run, r, "%s", comm_error(run->comm));
		/* an unknown UUID matches any */
		struct uuid mine = uuid_differ(found[i], &first) ? *found[i] : first;
		r = ranks_compare(run->comm, &mine, sizeof(mine), &rank, run->error);
		if (r)
			return r;
		if (rank < run->comm->world)
			return run_fail(
				run, -EINVAL,
				"rank %u finds another dataset under data.%s than rank 0: every "
				"machine needs the same one, as packimg info shows by its UUID",
				rank, keys[i]);
	}
	return 0;
}

static int open_freeze(struct run *run)
{
	int r = freeze_init(&run->freeze, run->recipe, run->params, run->error);
	if (r)
		return r;
	r = freeze_layers_init(&run->freeze_layers, &run->recipe->train, run->params);
	return r ? run_fail(run, r, "out of memory") : 0;
}

static int open_model(struct run *run)
{
	struct device_optimizer_spec optimizer;
	optim_spec(run->recipe, &optimizer);
	int r = device_params_new(run->device, &run->params);
	if (r)
		return run_fail(run, r, "parameters: %s", device_error(run->device));
	r = run->options.evaluate ? 0
				  : loss_check(&run->recipe->train, run->data.classes, run->error);
	if (r)
		return r;
	r = model_new(&run->recipe->model, run->data.classes, run->params, &run->model, run->error);
	if (r)
		return r;
	r = run->options.evaluate ? 0 : open_freeze(run);
	if (r)
		return r;
	r = layer_decay_apply(run->recipe, run->model, run->params);
	if (r)
		return run_fail(run, r, "optim.layer_decay: %s", device_error(run->device));
	r = device_params_allocate(run->params, &optimizer);
	return r ? run_fail(run, r, "memory for the parameters: %s", device_error(run->device)) : 0;
}

/*
 * Checks that a dataset is the one of the checkpoint; key names it in the recipe, now and then are
 * paths. A moved file is accepted.
 */
static int open_check_dataset(struct run *run, const char *key, const char *now,
			      const struct uuid *found, const char *then, const struct uuid *saved)
{
	char found_text[UUID_TEXT], saved_text[UUID_TEXT];
	if (run->options.allow_changes || !uuid_differ(found, saved))
		return 0;
	uuid_write(found->bytes, found_text);
	uuid_write(saved->bytes, saved_text);
	return run_fail(run, -EINVAL,
			"%s = %.600s holds another dataset (%s) than %.600s did (%s) when the "
			"checkpoint was written: the run would not be that of an unbroken one; "
			"--allow-changes goes on all the same",
			key, now, found_text, then, saved_text);
}

static int open_check_checkpoint(struct run *run)
{
	const struct checkpoint_state *state = &run->checkpoint->state;
	enum recipe_resume least = run->options.evaluate        ? RECIPE_WEIGHTS
				   : run->options.allow_changes ? RECIPE_FIXED
								: RECIPE_TRAJECTORY;
	int r = recipe_compare(run->recipe, &run->checkpoint->recipe, least, run->error);
	if (r)
		return r;
	if (!run->options.evaluate && state->dataset_samples != run->data.samples)
		return run_fail(run, -EINVAL,
				"data.train has %llu sample%s, but had %llu when the checkpoint "
				"was written",
				(unsigned long long)run->data.samples,
				run->data.samples == 1 ? "" : "s",
				(unsigned long long)state->dataset_samples);
	const struct recipe_data *now = &run->recipe->data, *then = &run->checkpoint->recipe.data;
	r = open_check_dataset(run, "data.train", now->train, &run->data.train_uuid, then->train,
			       &state->dataset_uuid);
	if (!r)
		r = open_check_dataset(run, "data.val", now->val, &run->data.val_uuid, then->val,
				       &state->val_uuid);
	if (!r && !run->options.evaluate)
		r = run_check_teacher(run);
	if (r)
		return r;
	if (state->classes != run->data.classes)
		return run_fail(
			run, -EINVAL,
			"the model has %u class%s, but had %u when the checkpoint was written",
			run->data.classes, run->data.classes == 1 ? "" : "es", state->classes);
	if (state->precision != device_info(run->device)->precision && !run->options.allow_changes)
		return run_fail(run, -EINVAL,
				"the device's precision is not that of the checkpoint: the losses "
				"would differ from an "
				"unbroken run; --allow-changes goes on all the same");
	return 0;
}

/*
 * A different thread count is allowed, since a run may have to move; but partial sums are per
 * thread, so rounding differs.
 */
static void open_compare_threads(struct run *run)
{
	uint32_t then = run->checkpoint->state.threads;
	uint32_t now = device_info(run->device)->threads;
	if (run->options.evaluate || !then || !now || then == now)
		return;
	progress_line(
		&run->progress,
		"the checkpoint was written with %u thread%s, and this run has %u: its losses "
		"are as good, but not bitwise those of an unbroken run; with train.threads=%u "
		"they are",
		then, then == 1 ? "" : "s", now, then);
}

/* Rank 0: determines where to resume. */
static int open_begin(struct run *run)
{
	run->state = (struct checkpoint_state){.best_top1 = -1};
	if (!run->checkpoint)
		return 0;
	int r = open_check_checkpoint(run);
	run->state = run->checkpoint->state;
	if (!r)
		r = run_check_later(run, run->state.step);
	if (!r)
		open_compare_threads(run);
	run->saved_step = run->state.step;
	run->resumed = true;
	return r;
}

/* All ranks run the same build, so structures can be broadcast as bytes. */
static int open_share_state(struct run *run)
{
	struct {
		struct checkpoint_state state;
		uint64_t saved_step;
		bool resumed;
	} shared = {run->state, run->saved_step, run->resumed};
	int r = comm_broadcast(run->comm, &shared, sizeof(shared), 0);
	run->state = shared.state;
	run->saved_step = shared.saved_step;
	run->resumed = shared.resumed;
	return r ? run_fail(run, r, "%s", comm_error(run->comm)) : 0;
}

static int open_first_batch(struct run *run)
{
	char error[DATA_ERROR_MAX] = "";
	uint64_t then = run->state.batches_per_epoch;
	struct feed_info info = {.size = sizeof(info)};
	if (run->recipe->data.batch_size > run->data.samples)
		return run_fail(run, -EINVAL,
				"data.batch_size = %llu is more than the %llu sample%s of %s",
				(unsigned long long)run->recipe->data.batch_size,
				(unsigned long long)run->data.samples,
				run->data.samples == 1 ? "" : "s", run->recipe->data.train);
	int r = run_open_feed(run, DATA_TRAIN, run->state.epoch, run->state.batch, &run->feed);
	if (r)
		return r;
	feed_info(run->feed.feed, &info);
	run->state.batches_per_epoch = info.batches_per_epoch;
	run->inflight_max = info.slots > RUN_INFLIGHT_MAX ? RUN_INFLIGHT_MAX : info.slots - 1;
	if (run->resumed && then != run->state.batches_per_epoch)
		return run_fail(
			run, -EINVAL,
			"an epoch has %llu batches, but had %llu when the checkpoint was written",
			(unsigned long long)run->state.batches_per_epoch, (unsigned long long)then);
	double wait = 0;
	r = run_next_batch(run, &run->feed, &run->batch, &wait, error);
	if (r == FEED_END)
		return run_fail(run, -EPROTO, "the feed ended before its first batch");
	if (r)
		return run_fail(run, r, "%s",
				r == -EINTR ? "stopped before the first step" : error);
	run->has_batch = true;
	return 0;
}

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
	if (model_wants_images(run->model) && !pixels)
		return run_fail(run, -EINVAL,
				"model.whiten needs u8 images from data.pipeline: leave to() and "
				"layout() out");
	int r = model_initialize(run->model, run->recipe->train.seed, pixels ? &images : NULL);
	return r ? run_fail(run, r, "initial weights: %s", strerror(-r)) : 0;
}

/*
 * Initialises from the whole first batch with all pipeline steps applied, as a single rank would;
 * this rank's feed has only a share of it, or defers steps to the device.
 */
static int open_initialize_from_whole(struct run *run)
{
	struct feed *feed;
	struct feed_batch batch;
	double wait = 0;
	int r = data_feed(&run->data, DATA_WHOLE, run->state.epoch, run->state.batch, &feed,
			  run->error);
	if (r)
		return r;
	r = data_next(&run->data, feed, run->options.stop, &batch, &wait, run->error);
	if (r == -EINTR)
		run_fail(run, r, "stopped before the first step");
	else if (!r)
		r = open_initialize_from(run, &batch);
	feed_close(feed);
	return r;
}

/* Loads the weights of model.pretrained. */
static int open_take_weights(struct run *run)
{
	const char *file = run->recipe->model.pretrained;
	char error[CHECKPOINT_ERROR_MAX];
	struct checkpoint_import_result result;
	/* for an evaluation, data.c compares class names with data.val's */
	const char *class_names = run->options.evaluate ? NULL : run->data.class_names;
	int r = checkpoint_import(file, class_names, run->params, &result, error);
	if (r)
		return run_fail(run, r, "model.pretrained: %s", error);
	if (run->options.evaluate && result.head_kept)
		return run_fail(
			run, -EINVAL,
			"--evaluate: %s has no last layer of %u classes: fine-tune it first", file,
			run->data.classes);
	if (run->options.evaluate && result.unknown_count)
		return run_fail(run, -EINVAL,
				"--evaluate: %s is of another network than model.name = %s: it has "
				"tensor %s%s that this one has not",
				file, run->recipe->model.name, result.unknown,
				result.unknown_count > 1 ? " and others" : "");
	progress_line(&run->progress, "weights from %s%s%s%s%s", file,
		      result.resized ? ", its position embeddings resized" : "",
		      result.layout ? ", in the names of " : "", result.layout ? result.layout : "",
		      result.head_kept ? "; its last layer has other classes and starts afresh"
				       : "");
	if (result.unknown_count)
		progress_line(&run->progress, "left out of %s, for the model has none: tensor %s%s",
			      file, result.unknown, result.unknown_count > 1 ? " and others" : "");
	return 0;
}

/* Weights to evaluate must all be in the file, except constants. */
static int open_initialize(struct run *run)
{
	bool own = run->comm->world == 1 && !run->feed.deferred;
	bool whole = !own && model_wants_images(run->model);
	int r = run->options.evaluate ? model_initialize_constants(run->model)
		: whole               ? open_initialize_from_whole(run)
				      : open_initialize_from(run, &run->batch);
	if (r || !*run->recipe->model.pretrained)
		return r;
	return open_take_weights(run);
}

/* Initialises Lookahead's slow weights with the weights. */
static int open_begin_slow(struct run *run)
{
	float *values = malloc(device_params_largest(run->params) * sizeof(*values));
	int r = values ? 0 : -ENOMEM;
	for (size_t i = 0; i < device_params_count(run->params) && !r; i++) {
		struct device_param *param = device_params_at(run->params, i);
		if (!device_param_has(param, DEVICE_SLOW))
			continue;
		r = device_param_read(param, DEVICE_VALUE, values);
		if (!r)
			r = device_param_write(param, DEVICE_SLOW, values);
	}
	free(values);
	return r ? run_fail(run, r, "slow weights: %s", run_device_text(run, r)) : 0;
}

/* Rank 0: fills in the weights and, on a resume, the rest of the checkpoint. */
static int open_fill_params(struct run *run)
{
	if (!run->checkpoint) {
		int made = open_initialize(run);
		return made ? made : open_begin_slow(run);
	}
	int r = checkpoint_restore(run->checkpoint, run->params, run->error);
	if (!r && run->options.evaluate)
		progress_line(&run->progress, "weights from %s", run->checkpoint->path);
	return r;
}

static int open_share_params(struct run *run)
{
	int r = ranks_share_params(run->comm, run->params, false, run->error);
	if (!r && run->resumed)
		r = device_params_set_state(run->params, &run->state.device);
	return r;
}

static uint64_t in_steps(const struct run *run, double epochs)
{
	uint64_t steps = (uint64_t)llround(epochs * (double)run->state.batches_per_epoch);
	return epochs > 0 && !steps ? 1 : steps;
}

static int open_plan(struct run *run)
{
	struct device_batch images;
	run->state.dataset_samples = run->data.samples;
	run->state.dataset_uuid = run->data.train_uuid;
	run->state.val_uuid = run->data.val_uuid;
	run->state.teacher = run->teacher.mark;
	run->state.classes = run->data.classes;
	run->state.precision = device_info(run->device)->precision;
	run->state.threads = device_info(run->device)->threads;
	run->steps = in_steps(run, run->recipe->train.epochs);
	run->eval_every = in_steps(run, run->recipe->train.eval_every);
	run->checkpoint_every = in_steps(run, run->recipe->checkpoint.every);
	schedule_init(&run->schedule, run->recipe);
	run->schedule.plateau = &run->state.plateau;
	run->sample_ids = calloc(run->recipe->data.batch_size, sizeof(*run->sample_ids));
	if (!run->sample_ids)
		return run_fail(run, -ENOMEM, "out of memory");
	int r = run_device_batch(run, &run->feed, &run->batch, "data.pipeline", &images);
	if (!r)
		r = run_open_mix(run);
	if (!r)
		r = run_open_selection(run);
	if (!r)
		r = run_move_freeze(run);
	return r ? r : run_train_graph(run);
}

/* Both graphs are in memory together, so the training graph may have to shrink again. */
static int open_plan_both(struct run *run)
{
	int r = run->options.evaluate ? 0 : run_train_graph(run);
	return r ? r : run_try_evaluation(run);
}

static int open_try_evaluation(struct run *run)
{
	return run_plan_to_fit(run, open_plan_both);
}

enum purpose { ALWAYS, TO_TRAIN, TO_EVALUATE };

static const struct stage {
	int (*function)(struct run *run);
	bool first_alone;     /* run on rank 0 first */
	enum purpose purpose; /* skipped in runs of another purpose */
} stages[] = {
	{open_check_share, false, TO_TRAIN},
	{run_check_results, true, ALWAYS},
	{run_check_folder, true, TO_TRAIN},
	{open_find_checkpoint, true, ALWAYS},
	{run_find_weights, true, TO_EVALUATE},
	{run_share_weights, false, TO_EVALUATE},
	{open_device, false, ALWAYS},
	{open_check_precision, false, ALWAYS},
	{open_data, false, ALWAYS},
	{open_check_data, false, ALWAYS},
	{run_report_unlabelled, true, ALWAYS},
	{open_model, false, ALWAYS},
	{run_init_class_weights, false, TO_TRAIN},
	{run_find_teacher, true, TO_TRAIN},
	{run_make_teacher, false, TO_TRAIN},
	{run_fill_teacher, true, TO_TRAIN},
	{run_share_teacher, false, TO_TRAIN},
	{open_begin, true, ALWAYS},
	{open_share_state, false, ALWAYS},
	{run_init_grad_accum, false, ALWAYS},
	{open_first_batch, false, TO_TRAIN},
	{open_fill_params, true, ALWAYS},
	{open_share_params, false, ALWAYS},
	{open_plan, false, TO_TRAIN},
	{run_open_trace, true, TO_TRAIN},
	{open_try_evaluation, false, ALWAYS},
	{run_open_output, true, TO_TRAIN},
};

/* Ranks agree after each stage, so that none starts one that another cannot reach. */
static int open_pass_stages(struct run *run)
{
	enum purpose other = run->options.evaluate ? TO_TRAIN : TO_EVALUATE;
	int r = 0;
	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]) && !r; i++) {
		if (stages[i].purpose == other)
			continue;
		if (!stages[i].first_alone || run->comm->rank == 0)
			r = stages[i].function(run);
		r = ranks_agree(run->comm, r, run->error);
	}
	return r;
}

int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options)
{
	*run = (struct run){.recipe = &run->recipe_copy,
			    .recipe_copy = *recipe,
			    .options = *options,
			    .comm = options->comm,
			    .saved_step = RUN_NO_STEP};
	progress_init(&run->progress, run->comm->rank ? RECIPE_PROGRESS_OFF
						      : (enum recipe_progress)recipe->log.progress);
	int r = open_pass_stages(run);
	run->agreed = r;
	if (!r && run->resumed && !options->evaluate)
		progress_line(&run->progress, "resumed at step %llu (epoch %llu, batch %llu)%s",
			      (unsigned long long)run->state.step,
			      (unsigned long long)run->state.epoch,
			      (unsigned long long)run->state.batch,
			      run->state.step < run->steps
				      ? ""
				      : ", its last: --allow-changes with a larger train.epochs "
					"goes on");
	checkpoint_close(run->checkpoint);
	run->checkpoint = NULL;
	return r;
}
