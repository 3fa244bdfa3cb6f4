/*
 * Opens a run: prepares the first step or the evaluation in stages, which all ranks pass together:
 * device, data, model, checkpoint, first batch, plan.
 */
#include "trainer/run/open.h"

#include "trainer/device/device.h"
#include "trainer/device/steps.h"
#include "trainer/run/input/labels.h"
#include "trainer/run/output/result_files.h"

#include <errno.h>
#include <string.h>

static int open_check_share(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	uint64_t batch = ctx->recipe->data.batch_size, world = ctx->data_comm->world;
	uint64_t parts = recipe_accumulate(ctx->recipe), equal = world * parts;
	uint64_t next = (batch + equal - 1) / equal * equal;
	uint64_t ghost = ctx->recipe->model.ghost_batch;
	if (batch % equal == 0 && ghost > batch / equal)
		return run_fail(ctx, -EINVAL,
				"model.ghost_batch = %llu exceeds the %llu samples that a batch "
				"norm sees at a time (data.batch_size, ranks, train.accumulate): "
				"use at most that number, or 0",
				(unsigned long long)ghost, (unsigned long long)(batch / equal));
	if (batch % equal == 0)
		return 0;
	if (parts == 1)
		return run_fail(ctx, -EINVAL,
				"data.batch_size = %llu is not a multiple of %llu ranks: it is the "
				"total over all ranks; the next multiple is %llu",
				(unsigned long long)batch, (unsigned long long)world,
				(unsigned long long)next);
	return run_fail(
		ctx, -EINVAL,
		"data.batch_size = %llu is not a multiple of train.accumulate = %llu times %llu "
		"rank%s: it is the total over all micro-batches; the next multiple is %llu",
		(unsigned long long)batch, (unsigned long long)parts, (unsigned long long)world,
		world == 1 ? "" : "s", (unsigned long long)next);
}

/* Warns about more threads than CPUs: threads then wait for each other at every barrier. */
static void open_check_threads(struct run_context *ctx)
{
	const struct device_info *device = device_info(ctx->device);
	if (device->cpus && device->threads > device->cpus)
		progress_line(&ctx->progress,
			      "train.threads = %u, but there %s only %u CPU%s for %s: threads that "
			      "share a CPU are slower; train.threads=0 uses one thread per CPU",
			      device->threads, device->cpus == 1 ? "is" : "are", device->cpus,
			      device->cpus == 1 ? "" : "s",
			      ctx->comm->world > 1 ? "each rank" : "them");
}

static int open_device(struct run *run)
{
	static const char *const backends[] = {NULL, "cpu", "cuda"};
	struct run_context *ctx = &run->ctx;
	const struct recipe_train *recipe = &ctx->recipe->train;
	const char *backend = backends[recipe->device];
	char error[DEVICE_ERROR_MAX] = "";
	struct device_options options = {
		.precision = (enum device_precision)recipe->precision,
		.threads = (unsigned)recipe->threads,
		.index = ctx->options.device_index,
		.comm = ctx->data_comm,
		.group = ctx->group_comm,
		.detect_anomaly = ctx->options.detect_anomaly,
		.profile = ctx->options.profile,
		.fusion = (enum device_fusion)recipe->fusion,
		.autotune = recipe->autotune,
		.tf32 = recipe->tf32,
		.deterministic = recipe->deterministic,
		.arena_bytes_max = (uint64_t)(recipe->memory_limit * (1 << 30)),
	};
	int r = device_open(backend, &options, &ctx->device, error);
	if (r < 0)
		return run_fail(ctx, r, "train.device = %s: %s", backend ? backend : "auto",
				*error ? error : strerror(-r));
	if (*error)
		progress_line(&ctx->progress, "skipped: %s", error);
	if (*device_error(ctx->device))
		progress_line(&ctx->progress, "device: %s", device_error(ctx->device));
	open_check_threads(ctx);
	return 0;
}

/* Checks that all ranks compute in the same precision, since they sum gradients. */
static int open_check_precision(struct run *run)
{
	enum device_precision mine = device_info(run->ctx.device)->precision;
	unsigned rank;
	int r = ranks_compare(run->ctx.comm, &mine, sizeof(mine), &rank, run->ctx.error);
	if (r < 0)
		return r;
	if (rank < run->ctx.comm->world)
		return run_fail(
			&run->ctx, -EINVAL,
			"rank %u would use another precision than rank 0: set train.precision",
			rank);
	return 0;
}

/* data.say */
static void say_line(void *context, const char *line)
{
	progress_line(context, "%s", line);
}

/*
 * The ranks of a group compute what is not divided each for itself, to the same bits; on CPUs these
 * depend on the number of threads.
 */
static int open_check_group(struct run *run)
{
	unsigned threads = device_info(run->ctx.device)->threads, other = threads, rank;
	if (!run->ctx.group_comm)
		return 0;
	int r = ranks_compare(run->ctx.comm, &threads, sizeof(threads), &rank, run->ctx.error);
	if (r < 0 || rank == run->ctx.comm->world)
		return r;
	r = comm_broadcast(run->ctx.comm, &other, sizeof(other), rank);
	if (r < 0)
		return run_fail(&run->ctx, r, "%s", comm_error(run->ctx.comm));
	return run_fail(&run->ctx, -EINVAL,
			"train.tensor = %u: rank %u would use %u thread%s, other ranks another "
			"number: set train.threads to one that all have",
			(unsigned)run->ctx.recipe->train.tensor, rank, other,
			other == 1 ? "" : "s");
}

static int open_data(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	const struct run_options *options = &ctx->options;
	unsigned threads = data_daemon_threads(&ctx->recipe->data, ctx->comm,
					       device_info(ctx->device)->threads > 0);
	int r = data_open(&run->data, ctx->recipe, ctx->comm, ctx->data_comm, options->socket,
			  threads, options->evaluate ? &run->evaluation.weights : NULL, ctx->error);
	run->data.say = say_line;
	run->data.say_context = &run->ctx.progress;
	return r;
}

/* Checks that all ranks use the same datasets; otherwise they would skip and repeat samples. */
static int open_check_data(struct run *run)
{
	static const char *const keys[] = {"train", "val"};
	const struct uuid *const found[] = {&run->data.train_uuid, &run->data.val_uuid};
	for (int i = 0; i < 2; i++) {
		struct uuid first = *found[i];
		unsigned rank;
		int r = comm_broadcast(run->ctx.comm, &first, sizeof(first), 0);
		if (r < 0)
			return run_fail(&run->ctx, r, "%s", comm_error(run->ctx.comm));
		/* an unknown UUID matches any */
		struct uuid mine = uuid_differ(found[i], &first) ? *found[i] : first;
		r = ranks_compare(run->ctx.comm, &mine, sizeof(mine), &rank, run->ctx.error);
		if (r < 0)
			return r;
		if (rank < run->ctx.comm->world)
			return run_fail(
				&run->ctx, -EINVAL,
				"rank %u has another dataset as data.%s than rank 0: every machine "
				"needs the same one; compare the UUIDs that packimg info shows",
				rank, keys[i]);
	}
	return 0;
}

/*
 * Checks that the feed continues the order of the checkpoint. Recipe and datasets have been
 * compared before, so that only the daemon can be the cause of another order.
 */
static int open_check_order(struct run *run, const struct feed_info *info)
{
	const struct checkpoint_state *then = &run->state;
	if (then->batches_per_epoch != info->batches_per_epoch)
		return run_fail(
			&run->ctx, -EINVAL,
			"an epoch has %llu batches, but had %llu when the checkpoint was written",
			(unsigned long long)info->batches_per_epoch,
			(unsigned long long)then->batches_per_epoch);
	if (then->order_hash != info->order_hash && !run->ctx.options.allow_changes)
		return run_fail(&run->ctx, -EINVAL,
				"the daemon orders the samples of data.train otherwise than when "
				"the checkpoint was written, so the run would differ from an "
				"uninterrupted one; use the loaderd of then, or --allow-changes to "
				"resume anyway");
	return 0;
}

static int open_first_batch(struct run *run)
{
	struct feed_info info;
	int r = input_open(&run->input, &run->state, &info);
	if (r == 0 && run->resumed)
		r = open_check_order(run, &info);
	if (r < 0)
		return r;
	run->state.batches_per_epoch = info.batches_per_epoch;
	run->state.order_hash = info.order_hash;
	return input_first(&run->input);
}

/* Stores in the state what checkpoints record about the run. */
static void open_describe_state(struct run *run)
{
	const struct device_info *device = device_info(run->ctx.device);
	struct checkpoint_state *state = &run->state;
	state->dataset_samples = run->data.samples;
	state->dataset_uuid = run->data.train_uuid;
	state->val_uuid = run->data.val_uuid;
	state->teacher = run->teacher.mark;
	state->classes = run->data.classes;
	state->precision = device->precision;
	state->threads = device->threads;
}

static int open_plan(struct run *run)
{
	struct device_batch images;
	open_describe_state(run);
	run_length_init(&run->length, run->ctx.recipe, &run->state.plateau,
			run->state.batches_per_epoch);
	int r = output_init_samples(&run->output);
	if (r < 0)
		return r;
	r = run_train_batch(run, &run->input.feed, &run->input.batch, &images);
	if (r < 0)
		return r;
	r = augment_open(&run->augment);
	if (r < 0)
		return r;
	r = selection_open(&run->selection);
	if (r < 0)
		return r;
	r = run_move_freeze(run);
	return r < 0 ? r : run_plan_train(run);
}

/*
 * Plans the training and evaluation graphs. Both are in memory together, so the training graph may
 * need smaller micro-batches.
 */
static int open_plan_both(struct run *run)
{
	int r = run->ctx.options.evaluate ? 0 : run_plan_train(run);
	return r < 0 ? r : run_try_evaluation(run);
}

static int open_try_evaluation(struct run *run)
{
	return grad_accum_fit(run, open_plan_both);
}

static int open_print_recipe(const void *recipe, FILE *file)
{
	return recipe_write(recipe, file);
}

static int open_output(struct run *run)
{
	if (run->ctx.options.dry)
		return 0;
	int r = output_open(&run->output, run->resumed);
	if (r < 0)
		return r;
	r = run_start_line(run);
	if (r < 0)
		return r;
	r = output_clear(&run->output, run->resumed);
	/* the complete recipe, for people and for reruns */
	if (r == 0)
		r = output_write_text(&run->output, "recipe.ini", open_print_recipe,
				      run->ctx.recipe);
	if (r < 0)
		output_end_failed(&run->output, r);
	return r;
}

/* ---- stages ---- */

#define STAGE(name, call)                                                                          \
	static int name(struct run *run)                                                           \
	{                                                                                          \
		return call;                                                                       \
	}

STAGE(open_mesh, run_open_mesh(&run->ctx))
STAGE(open_check_results, result_files_check(&run->ctx))
STAGE(open_check_folder, output_check_folder(&run->output))
STAGE(open_share_weights,
      ranks_share_metadata(run->ctx.comm, &run->evaluation.weights, run->ctx.error))
STAGE(open_report_labels,
      run->data.target.outputs ? 0 : labels_report_missing(&run->ctx, &run->data))
STAGE(open_network, network_init(&run->network))
STAGE(open_class_weights, network_init_class_weights(&run->network))
STAGE(open_find_teacher, teacher_find(&run->teacher))
STAGE(open_teacher, teacher_init(&run->teacher))
STAGE(open_load_teacher, teacher_load(&run->teacher))
STAGE(open_share_teacher, teacher_share(&run->teacher))
STAGE(open_tracer, tracer_open(&run->tracer, run->state.step, run->length.steps))
#undef STAGE

enum purpose { ALWAYS, TO_TRAIN, TO_EVALUATE };

static const struct stage {
	int (*function)(struct run *run);
	bool rank0_only;      /* only rank 0 runs the stage */
	enum purpose purpose; /* runs of another purpose skip the stage */
} stages[] = {
	{open_mesh, false, ALWAYS},
	{open_check_share, false, TO_TRAIN},
	{open_check_results, true, ALWAYS},
	{open_check_folder, true, TO_TRAIN},
	{open_find_checkpoint, true, ALWAYS},
	{run_find_weights, true, TO_EVALUATE},
	{open_share_weights, false, TO_EVALUATE},
	{open_device, false, ALWAYS},
	{open_check_precision, false, ALWAYS},
	{open_check_group, false, ALWAYS},
	{open_data, false, ALWAYS},
	{open_check_data, false, ALWAYS},
	{open_report_labels, true, ALWAYS},
	{open_network, false, ALWAYS},
	{open_class_weights, false, TO_TRAIN},
	{open_find_teacher, true, TO_TRAIN},
	{open_teacher, false, TO_TRAIN},
	{open_load_teacher, true, TO_TRAIN},
	{open_share_teacher, false, TO_TRAIN},
	{open_begin, true, ALWAYS},
	{open_share_state, false, ALWAYS},
	{grad_accum_init, false, ALWAYS},
	{open_first_batch, false, TO_TRAIN},
	{open_fill_params, false, ALWAYS},
	{open_share_params, false, ALWAYS},
	{open_plan, false, TO_TRAIN},
	{open_tracer, true, TO_TRAIN},
	{open_try_evaluation, false, ALWAYS},
	{open_output, true, TO_TRAIN},
};

/*
 * Runs the stages. The ranks agree after each, so that none begins a stage that another cannot
 * reach.
 */
static int open_pass_stages(struct run *run)
{
	enum purpose other = run->ctx.options.evaluate ? TO_TRAIN : TO_EVALUATE;
	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
		int r = 0;
		if (stages[i].purpose == other)
			continue;
		if (!stages[i].rank0_only || run->ctx.comm->rank == 0)
			r = stages[i].function(run);
		r = ranks_agree(run->ctx.comm, r, run->ctx.error);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Gives each part of the run pointers to the parts that it uses. */
static void open_wire(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	const struct data *data = &run->data;
	run->ctx.recipe = &run->ctx.recipe_copy;
	run->tracer.ctx = ctx;
	run->output.ctx = ctx;
	run->output.state = &run->state;
	run->feeds.ctx = ctx;
	run->feeds.data = &run->data;
	run->feeds.tracer = &run->tracer;
	run->feeds.output = &run->output;
	run->feeds.queue = &run->queue;
	run->input.feeds = &run->feeds;
	run->network.ctx = ctx;
	run->network.data = data;
	run->teacher.ctx = ctx;
	run->teacher.data = data;
	run->teacher.student = &run->network;
	run->augment.ctx = ctx;
	run->augment.data = data;
	run->selection.ctx = ctx;
	run->selection.data = data;
	run->selection.network = &run->network;
}

static void open_report_resumed(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	progress_line(&run->ctx.progress, "resumed at step %llu (epoch %llu, batch %llu)%s",
		      (unsigned long long)state->step, (unsigned long long)state->epoch,
		      (unsigned long long)state->batch,
		      state->step < run->length.steps ? ""
						      : ", the last one: use --allow-changes with "
							"a larger train.epochs to continue");
}

int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options)
{
	*run = (struct run){
		.ctx = {.recipe_copy = *recipe, .options = *options, .comm = options->comm}};
	open_wire(run);
	output_set_saved(&run->output, RUN_NO_STEP);
	progress_init(&run->ctx.progress, options->comm->rank
						  ? RECIPE_PROGRESS_OFF
						  : (enum recipe_progress)recipe->log.progress);
	int r = open_pass_stages(run);
	if (r < 0)
		run_fail_agreed(&run->ctx, r);
	if (r == 0 && run->resumed && !options->evaluate)
		open_report_resumed(run);
	checkpoint_close(run->checkpoint);
	run->checkpoint = NULL;
	return r;
}
