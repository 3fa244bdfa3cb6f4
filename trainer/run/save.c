/* Checkpoints of a run, whole or sharded. */
#include "trainer/device/params.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <string.h>

/* What rank 0 tells the others about a sharded checkpoint. */
struct save_target {
	char temporary[CHECKPOINT_PATH_MAX];
	char id[CHECKPOINT_ID_MAX];
};

/* Rank 0: finds the path, and syncs the logs: a resumed run keeps their lines up to here. */
static int save_begin(struct run *run, bool sharded, char *ret_path)
{
	int r = checkpoint_path(run->ctx.options.output, run->state.step, sharded, ret_path);
	if (r < 0)
		return run_fail(&run->ctx, r, "--output is too long");
	return output_sync(&run->output);
}

/* Rank 0: removes older checkpoints and logs the new one. */
static int save_end(struct run *run, const char *path)
{
	const char *folder = run->ctx.options.output;
	struct output *output = &run->output;
	output_set_saved(output, run->state.step);
	int r = checkpoint_prune(folder, run->ctx.recipe->checkpoint.keep);
	if (r < 0)
		return run_fail(&run->ctx, r, "%s: %s", folder, strerror(-r));
	metrics_log_begin(output->metrics, "checkpoint", run->state.step);
	metrics_log_text(output->metrics, "path", path);
	return output_end_line(output);
}

/* ---- whole ---- */

/* Rank 0: writes the checkpoint. */
static int save_whole_lead(void *of)
{
	struct run *run = of;
	char path[CHECKPOINT_PATH_MAX], error[CHECKPOINT_ERROR_MAX];
	int r = save_begin(run, false, path);
	if (r < 0)
		return r;
	struct checkpoint_about about = run_about(run);
	r = checkpoint_save(path, run->network.params, run->ctx.recipe, &run->state, &about, error);
	return r < 0 ? output_fail_write(&run->output, r, error) : save_end(run, path);
}

/* ---- sharded ---- */

/* Rank 0: makes the folder. */
static int save_make_folder(struct run *run, const char *path, struct save_target *target)
{
	char sentence[CHECKPOINT_ERROR_MAX];
	int r = checkpoint_make_id(target->id);
	if (r == 0)
		r = checkpoint_begin_folder(path, target->temporary);
	if (r == 0)
		return 0;
	*target->temporary = '\0';
	snprintf(sentence, sizeof(sentence), "%.800s: cannot be made: %s", path, strerror(-r));
	return output_fail_write(&run->output, r, sentence);
}

/*
 * Each rank writes its part, rank 0 then the index. Returns on all ranks what failed on the first
 * that failed, with a sentence in `error`.
 */
static int save_parts(struct run *run, const struct save_target *target, char *error)
{
	struct run_context *ctx = &run->ctx;
	struct device_params *params = run->network.params;
	int r = checkpoint_save_part(target->temporary, params, target->id, run->state.step, error);
	if (r == -ENOENT && ctx->comm->rank)
		run_fail(ctx, r,
			 "%s: is not on this machine: checkpoint.format=sharded needs an --output "
			 "that all machines share; use checkpoint.format=whole",
			 target->temporary);
	else if (r < 0)
		run_fail(ctx, r, "%s", error);
	r = ranks_agree(ctx->comm, r, ctx->error);
	if (r == 0 && ctx->comm->rank == 0) {
		struct checkpoint_about about = run_about(run);
		r = checkpoint_save_index(target->temporary, params, target->id, ctx->recipe,
					  &run->state, &about, error);
	} else if (r < 0) {
		snprintf(error, CHECKPOINT_ERROR_MAX, "%.1000s", ctx->error);
	}
	return r;
}

/* Writes the checkpoint into a folder, which gets its name when all of it is on disk. */
static int save_sharded(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	struct save_target target = {{0}};
	char path[CHECKPOINT_PATH_MAX] = "", error[CHECKPOINT_ERROR_MAX] = "";
	bool leads = ctx->comm->rank == 0;
	int r = leads ? save_begin(run, true, path) : 0;
	if (r == 0 && leads)
		r = save_make_folder(run, path, &target);
	r = ranks_agree(ctx->comm, r, ctx->error);
	if (r < 0)
		return run_fail_agreed(ctx, r);
	r = comm_broadcast(ctx->comm, &target, sizeof(target), 0);
	r = r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->comm)) : save_parts(run, &target, error);
	if (leads) {
		int end = checkpoint_end_folder(target.temporary, path, r);
		if (r == 0 && end < 0)
			snprintf(error, sizeof(error), "%.800s: cannot be written: %s", path,
				 strerror(-end));
		r = end < 0 && *error ? output_fail_write(&run->output, end, error) : end;
		if (r == 0)
			r = save_end(run, path);
	}
	r = ranks_agree(ctx->comm, r, ctx->error);
	return r < 0 ? run_fail_agreed(ctx, r) : 0;
}

int run_save(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	if (run->output.saved_step == run->state.step || ctx->options.dry)
		return 0;
	int r = run_collect(run, 0);
	if (r < 0)
		return r;
	r = device_params_get_state(run->network.params, &run->state.device);
	if (r < 0)
		return run_fail_step(run, r, "state of the device");
	r = ranks_check_params(ctx->comm, run->network.params, ctx->error);
	if (r < 0)
		return run_fail_agreed(ctx, r);
	if (ctx->recipe->checkpoint.format == RECIPE_CHECKPOINT_SHARDED)
		r = save_sharded(run);
	else
		r = ranks_lead(ctx->comm, run->network.params, save_whole_lead, run, ctx->error);
	if (r == 0)
		output_set_saved(&run->output, run->state.step);
	return r;
}
