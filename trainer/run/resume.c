/* The start of a run: fresh, or from a checkpoint that matches recipe, datasets and device. */
#include "trainer/device/device.h"
#include "trainer/run/open.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

/* Opens the folder's newest checkpoint; if that is damaged, the one before. */
static int resume_open_newest(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	const char *folder = ctx->options.output;
	char path[CHECKPOINT_PATH_MAX];
	uint64_t step = UINT64_MAX;
	int r = 0;
	while (checkpoint_newest(folder, step, &step, path) == 0) {
		r = checkpoint_open(path, &run->checkpoint, ctx->error);
		/* other errors are fatal, since the file may be intact */
		if (r != -EBADMSG)
			return r;
		progress_line(&ctx->progress, "%s; trying the previous checkpoint", ctx->error);
	}
	if (r < 0)
		return r;
	if (ctx->options.evaluate)
		return run_fail(ctx, -ENOENT, "--evaluate --resume: %s contains no checkpoint",
				folder);
	progress_line(&ctx->progress, "%s contains no checkpoint: starting from the beginning",
		      folder);
	return 0;
}

int open_find_checkpoint(struct run *run)
{
	const char *path = run->ctx.options.resume_path;
	struct stat status;
	if (!run->ctx.options.resume)
		return 0;
	if (!path)
		return resume_open_newest(run);
	if (stat(path, &status) == 0 && S_ISDIR(status.st_mode) && !checkpoint_is_folder(path))
		return run_fail(&run->ctx, -EISDIR,
				"--resume=%s is a folder: use --resume --output=%s for its newest "
				"checkpoint",
				path, path);
	return checkpoint_open(path, &run->checkpoint, run->ctx.error);
}

/*
 * Checks that a dataset is the checkpoint's. A moved file is accepted. key: recipe key of the
 * dataset; now, then: current and recorded path.
 */
static int resume_check_dataset(struct run_context *ctx, const char *key, const char *now,
				const struct uuid *found, const char *then,
				const struct uuid *saved)
{
	char found_text[UUID_TEXT], saved_text[UUID_TEXT];
	if (ctx->options.allow_changes || !uuid_differ(found, saved))
		return 0;
	uuid_write(found->bytes, found_text);
	uuid_write(saved->bytes, saved_text);
	return run_fail(ctx, -EINVAL,
			"%s = %.600s contains another dataset (%s) than %.600s did (%s) when the "
			"checkpoint was written, so the run would differ from an uninterrupted "
			"one; use --allow-changes to resume anyway",
			key, now, found_text, then, saved_text);
}

static int resume_check_data(struct run *run)
{
	const struct checkpoint_state *state = &run->checkpoint->state;
	const struct data *data = &run->data;
	const struct recipe_data *now = &run->ctx.recipe->data;
	const struct recipe_data *then = &run->checkpoint->recipe.data;
	if (!run->ctx.options.evaluate && state->dataset_samples != data->samples)
		return run_fail(&run->ctx, -EINVAL,
				"data.train has %llu sample%s, but had %llu when the checkpoint "
				"was written",
				(unsigned long long)data->samples, data->samples == 1 ? "" : "s",
				(unsigned long long)state->dataset_samples);
	int r = resume_check_dataset(&run->ctx, "data.train", now->train, &data->train_uuid,
				     then->train, &state->dataset_uuid);
	if (r < 0)
		return r;
	return resume_check_dataset(&run->ctx, "data.val", now->val, &data->val_uuid, then->val,
				    &state->val_uuid);
}

static int resume_check(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	const struct checkpoint_state *state = &run->checkpoint->state;
	enum recipe_resume fixed = ctx->options.evaluate        ? RECIPE_WEIGHTS
				   : ctx->options.allow_changes ? RECIPE_FIXED
								: RECIPE_TRAJECTORY;
	int r = recipe_compare(ctx->recipe, &run->checkpoint->recipe, fixed, ctx->error);
	if (r < 0)
		return r;
	r = resume_check_data(run);
	if (r < 0)
		return r;
	r = ctx->options.evaluate ? 0 : teacher_check_mark(&run->teacher, state->teacher);
	if (r < 0)
		return r;
	if (state->classes != run->data.classes)
		return run_fail(
			ctx, -EINVAL,
			"the model has %u class%s, but had %u when the checkpoint was written",
			run->data.classes, run->data.classes == 1 ? "" : "es", state->classes);
	if (state->precision != device_info(ctx->device)->precision && !ctx->options.allow_changes)
		return run_fail(ctx, -EINVAL,
				"the device uses another precision than the checkpoint, so losses "
				"would differ from those of an uninterrupted run; use "
				"--allow-changes to resume anyway");
	return output_check_later(&run->output, state->step);
}

/*
 * Reports a changed number of threads. It is permitted, so that a run can move to another machine,
 * but changes rounding, because each thread computes partial sums.
 */
static void resume_compare_threads(struct run *run)
{
	uint32_t then = run->checkpoint->state.threads;
	uint32_t now = device_info(run->ctx.device)->threads;
	if (run->ctx.options.evaluate || !then || !now || then == now)
		return;
	progress_line(&run->ctx.progress,
		      "the checkpoint was written with %u thread%s, and this run has %u: its "
		      "losses are equivalent to those of an uninterrupted run, but not bitwise "
		      "equal; use train.threads=%u for bitwise equality",
		      then, then == 1 ? "" : "s", now, then);
}

int open_begin(struct run *run)
{
	run->state = (struct checkpoint_state){.best_score = -INFINITY};
	if (!run->checkpoint)
		return 0;
	int r = resume_check(run);
	if (r < 0)
		return r;
	resume_compare_threads(run);
	run->state = run->checkpoint->state;
	output_set_saved(&run->output, run->state.step);
	run->resumed = true;
	return 0;
}

/* Broadcasts structures as bytes, since all ranks run the same build. */
int open_share_state(struct run *run)
{
	struct {
		struct checkpoint_state state;
		uint64_t saved_step;
		bool resumed;
	} shared = {run->state, run->output.saved_step, run->resumed};
	int r = comm_broadcast(run->ctx.comm, &shared, sizeof(shared), 0);
	if (r < 0)
		return run_fail(&run->ctx, r, "%s", comm_error(run->ctx.comm));
	run->state = shared.state;
	output_set_saved(&run->output, shared.saved_step);
	run->resumed = shared.resumed;
	return 0;
}
