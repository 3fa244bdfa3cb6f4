/*
 * Finds the number of micro-batches (train.accumulate = auto), as Composer does with
 * device_train_microbatch_size="auto": if a batch does not fit into device memory, tries at least
 * twice as many micro-batches, all of one size. All ranks use the largest number that any of them
 * needs.
 *
 * Planning does not see all allocations: libraries and drivers allocate on first use. So the batch
 * is rehearsed (device_rehearse()) before its step. The step then starts from the same state and
 * cannot run out of memory; nothing needs to be undone, and no rank waits in a sum for one that
 * failed in mid-step.
 *
 * The result goes into the run's recipe, and so into checkpoints: a resumed run starts with it. It
 * may increase during a run, when images grow or frozen layers thaw.
 */
#include "trainer/algorithms/mix.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int run_init_grad_accum(struct run *run)
{
	uint64_t found = run->checkpoint ? run->checkpoint->recipe.train.accumulate : 0;
	if (run->recipe_copy.train.accumulate)
		return 0;
	run->auto_accum = true;
	int r = comm_broadcast(run->comm, &found, sizeof(found), 0);
	run->recipe_copy.train.accumulate = found ? found : 1;
	return r ? run_fail(run, r, "%s", comm_error(run->comm)) : 0;
}

bool run_has_batch_norms(const struct run *run)
{
	for (size_t i = 0; i < device_params_count(run->params); i++)
		if (device_param_spec(device_params_at(run->params, i))->kind == DEVICE_BUFFER)
			return true;
	return false;
}

static int grad_accum_fail(struct run *run, int code, const char *why)
{
	return run_fail(run, code,
			"data.batch_size = %llu does not fit into the device's memory, not even in "
			"the smallest micro-batches, of %u (train.accumulate = auto): %.1000s. "
			"Remedies: smaller images, train.recompute=1, a smaller model, "
			"train.precision=bf16 or fp16, "
			"more ranks",
			(unsigned long long)run->recipe->data.batch_size,
			data_micro_share(&run->data), why);
}

/* Reports the new number and the reason. */
static int grad_accum_report(struct run *run, uint64_t before, const char *why)
{
	const struct recipe *recipe = run->recipe;
	progress_line(&run->progress,
		      "train.accumulate = auto: batches of %llu are computed in %llu micro-batches "
		      "of %u on each device, for more do not fit: %s%s",
		      (unsigned long long)recipe->data.batch_size,
		      (unsigned long long)recipe->train.accumulate, data_micro_share(&run->data),
		      why,
		      run_has_batch_norms(run) && !recipe->model.bn_sync
			      ? "; batch norms normalise by micro-batches, and losses differ from "
				"those of whole batches"
			      : "");
	if (run->checkpoint) /* not NULL while the run opens */
		progress_line(&run->progress,
			      "%llu micro-batches were enough when the checkpoint was written: "
			      "losses are as good, but not bitwise those of an unbroken run",
			      (unsigned long long)before);
	if (!run->metrics)
		return 0;
	metrics_log_begin(run->metrics, "micro_batches", run->state.step);
	metrics_log_count(run->metrics, "accumulate", recipe->train.accumulate);
	metrics_log_text(run->metrics, "why", why);
	return run_end_line(run, run->metrics, "log.jsonl");
}

int run_plan_to_fit(struct run *run, int (*plan)(struct run *run))
{
	uint64_t before = run->recipe->train.accumulate;
	char why[RUN_ERROR_MAX] = "another rank has less memory";
	for (;;) {
		int r = plan(run);
		if (!run->auto_accum)
			return r;
		double votes[] = {r == -ENOMEM, r && r != -ENOMEM};
		if (r == -ENOMEM)
			snprintf(why, sizeof(why), "%s", run->error);
		int failed = run_sum(run, votes, 2);
		if (failed)
			return failed;
		if (votes[1] > 0 || (!(votes[0] > 0) && before == run->recipe->train.accumulate))
			return r;
		if (!(votes[0] > 0))
			return grad_accum_report(run, before, why);
		uint32_t next = mix_parts_after(&run->recipe->train, recipe_accumulate(run->recipe),
						data_train_share(&run->data));
		if (!next)
			return r ? grad_accum_fail(run, r, why) : 0;
		run->recipe_copy.train.accumulate = next;
	}
}
