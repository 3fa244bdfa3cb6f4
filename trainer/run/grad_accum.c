/*
 * Finds the number of micro-batches (train.accumulate = auto), as Composer does with
 * device_train_microbatch_size="auto". If a batch does not fit into device memory, tries at least
 * twice as many micro-batches, all of the same size. All ranks use the largest number that any of
 * them needs.
 *
 * Planning does not account for memory that libraries and drivers allocate on first use. So a
 * warm-up (device_warmup()) computes part of the batch before its step and leaves the state
 * unchanged. The step then cannot run out of memory: nothing needs to be undone, and no rank waits
 * in a collective for one that failed during a step.
 *
 * The number is stored in the run's recipe and so in checkpoints; a resumed run starts with it. It
 * may increase during a run, when images grow or frozen layers thaw.
 */
#include "trainer/algorithms/mix.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <stdio.h>

void grad_accum_set(struct run_context *ctx, uint64_t batch_size, uint64_t parts)
{
	ctx->recipe_copy.data.batch_size = batch_size;
	ctx->recipe_copy.train.accumulate = parts;
	ctx->auto_accum = false;
}

int grad_accum_init(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	uint64_t found = run->checkpoint ? run->checkpoint->recipe.train.accumulate : 0;
	if (ctx->recipe->train.accumulate)
		return 0;
	ctx->auto_accum = true;
	int r = comm_broadcast(ctx->comm, &found, sizeof(found), 0);
	ctx->recipe_copy.train.accumulate = found ? found : 1;
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->comm)) : 0;
}

static int grad_accum_fail(struct run *run, int code, const char *why)
{
	return run_fail(&run->ctx, code,
			"data.batch_size = %llu does not fit into device memory even with the "
			"smallest micro-batches, of %u samples (train.accumulate = auto): %.1000s. "
			"Remedies: smaller images, train.recompute=1, a smaller model, "
			"train.precision=bf16 or fp16, more ranks",
			(unsigned long long)run->ctx.recipe->data.batch_size,
			data_micro_share(&run->data), why);
}

/* Reports the new number of micro-batches and the reason. */
static int grad_accum_report(struct run *run, uint64_t before, const char *why)
{
	const struct recipe *recipe = run->ctx.recipe;
	struct progress *progress = &run->ctx.progress;
	struct metrics_log *metrics = run->output.metrics;
	progress_line(progress,
		      "train.accumulate = auto: computing batches of %llu in %llu micro-batches of "
		      "%u per device, since larger ones do not fit: %s%s",
		      (unsigned long long)recipe->data.batch_size,
		      (unsigned long long)recipe->train.accumulate, data_micro_share(&run->data),
		      why,
		      network_has_batch_norms(&run->network) && !recipe->model.bn_sync
			      ? "; batch norms use the statistics of micro-batches, so losses "
				"differ from those of whole batches"
			      : "");
	if (run->checkpoint) /* not NULL while the run opens */
		progress_line(progress,
			      "%llu micro-batches were enough when the checkpoint was written: the "
			      "losses are equivalent to those of an uninterrupted run, but not "
			      "bitwise equal",
			      (unsigned long long)before);
	if (!metrics)
		return 0;
	metrics_log_begin(metrics, "micro_batches", run->state.step);
	metrics_log_count(metrics, "accumulate", recipe->train.accumulate);
	metrics_log_text(metrics, "why", why);
	return output_end_line(&run->output);
}

/*
 * Votes on a plan. Returns -ENOMEM if it does not fit on some rank, 0 if it fits on every rank.
 * After any other failure, sets *ret_done and returns this rank's result, which may be 0.
 */
static int grad_accum_vote(struct run_context *ctx, int planned, bool *ret_done)
{
	double votes[] = {planned == -ENOMEM, planned < 0 && planned != -ENOMEM};
	int r = run_sum(ctx, votes, 2);
	*ret_done = r < 0 || votes[1] > 0;
	if (*ret_done)
		return r < 0 ? r : planned;
	return votes[0] > 0 ? -ENOMEM : 0;
}

int grad_accum_fit(struct run *run, int (*plan)(struct run *run))
{
	struct run_context *ctx = &run->ctx;
	uint64_t before = ctx->recipe->train.accumulate;
	char why[RUN_ERROR_MAX] = "another rank has less memory";
	for (;;) {
		bool done;
		int planned = plan(run);
		if (!ctx->auto_accum)
			return planned;
		if (planned == -ENOMEM)
			snprintf(why, sizeof(why), "%s", ctx->error);
		int r = grad_accum_vote(ctx, planned, &done);
		if (done)
			return r;
		if (r == 0)
			return before == ctx->recipe->train.accumulate
				       ? 0
				       : grad_accum_report(run, before, why);
		uint32_t next = mix_parts_after(&ctx->recipe->train, recipe_accumulate(ctx->recipe),
						data_train_share(&run->data));
		if (!next)
			return planned < 0 ? grad_accum_fail(run, planned, why) : 0;
		ctx->recipe_copy.train.accumulate = next;
	}
}
