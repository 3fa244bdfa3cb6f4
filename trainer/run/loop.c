#include "format/base/system/clock.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Describes from which checkpoint the run can resume. */
static void loop_describe_checkpoint(const struct run *run, char *ret_text, size_t size)
{
	snprintf(ret_text, size, "no checkpoint was written yet");
	if (run->saved_step != RUN_NO_STEP)
		snprintf(ret_text, size, "the last checkpoint is of step %llu",
			 (unsigned long long)run->saved_step);
}

int run_fail_step(struct run *run, int code, const char *what)
{
	unsigned long long step = run->state.step + 1;
	char kept[64];
	if (code != -ENOMEM)
		return run_fail(run, code, "step %llu: %s: %s", step, what,
				run_device_text(run, code));
	/* planning and rehearsal had enough memory; it has been taken since */
	loop_describe_checkpoint(run, kept, sizeof(kept));
	return run_fail(run, code,
			"step %llu: %s: %s; %s. Remedies: end what else takes the device's memory "
			"since the run began, then --resume; train.accumulate=auto, which looks "
			"again for what fits; a lower train.memory_limit",
			step, what, run_device_text(run, code), kept);
}

/* ---- results ---- */

static int loop_fail_not_finite(struct run *run, const struct run_pending *pending, double loss)
{
	char kept[64], teacher[RUN_DIAGNOSIS_TEXT];
	loop_describe_checkpoint(run, kept, sizeof(kept));
	run_diagnose_teacher(run, teacher);
	return run_fail_everywhere(
		run, -EDOM,
		"step %llu (epoch %.3f): the loss is %f at lr %.4g, so training has "
		"diverged%s; %s. Remedies: a lower "
		"optim.lr, a longer schedule.warmup, train.precision = fp32; "
		"--detect-anomaly names the first "
		"tensor that is not finite",
		(unsigned long long)pending->step, run_epoch(run, pending->step - 1), loss,
		pending->lr, teacher, kept);
}

/*
 * Combines loss and counts of all micro-batches of an update; this is the last one of the first
 * pass.
 */
static void loop_join_parts(struct run *run, bool again, struct device_results *results)
{
	struct device_results *parts = &run->accum;
	if (again) {
		results->loss = parts->loss;
		results->samples = parts->samples;
		results->top1 = parts->top1;
		results->top5 = parts->top5;
	} else if (parts->samples) {
		double samples = (double)parts->samples + results->samples;
		results->loss =
			(parts->loss * parts->samples + results->loss * results->samples) / samples;
		results->samples += parts->samples;
		results->top1 += parts->top1;
		results->top5 += parts->top5;
	}
	*parts = (struct device_results){0};
}

int run_collect(struct run *run, unsigned down_to)
{
	while (run->pending_count) {
		struct run_pending pending = run->pending[0];
		struct device_results results;
		bool waits = run->pending_count > down_to;
		uint64_t begin = waits ? run_span_begin(run) : 0;
		int r = device_results(pending.graph, pending.device_step, waits, &results);
		run_span_end(run, begin, "results");
		if (r == -EAGAIN)
			return 0;
		if (r)
			return run_fail_step(run, r, "results");
		run->pending_count--;
		memmove(run->pending, run->pending + 1,
			run->pending_count * sizeof(run->pending[0]));
		loop_join_parts(run, pending.again, &results);
		if (!pending.last) {
			run->accum = results;
			continue;
		}
		if (!results.samples)
			return run_fail_everywhere(run, -EINVAL,
						   "step %llu: no sample of the batch has "
						   "a label; data.train = %s is "
						   "not for training a classifier",
						   (unsigned long long)pending.step,
						   run->recipe->data.train);
		if (!isfinite(results.loss) && !(run->find_rate > 0))
			return loop_fail_not_finite(run, &pending, results.loss);
		run->skipped += results.skipped;
		run->last_loss = results.loss;
		run->last_lr = pending.lr;
		run_add(&run->state.interval, &results);
		run_add(&run->state.whole, &results);
		if (pending.step % run->recipe->log.interval == 0) {
			r = run_step_line(run, &pending, &results);
			if (r)
				return r;
		}
	}
	return 0;
}

/* ---- one step ---- */

/* Releases batches whose copy is done; with wait, all of them. */
static int loop_release_inflight(struct run *run, bool wait)
{
	while (run->inflight_count) {
		int r = device_fed(run->train.graph, run->inflight[0].ticket, wait);
		if (r == -EAGAIN)
			return 0;
		if (r)
			return run_fail_step(run, r, "copying a batch");
		if (!run->options.overfit_batch)
			feed_release(run->feed.feed, &run->inflight[0].batch);
		run->inflight_count--;
		memmove(run->inflight, run->inflight + 1,
			run->inflight_count * sizeof(run->inflight[0]));
	}
	return 0;
}

static int loop_next_batch(struct run *run)
{
	char error[DATA_ERROR_MAX] = "";
	struct checkpoint_state *state = &run->state;
	if (!run->has_batch) {
		int r = run_next_batch(run, &run->feed, &run->batch, &state->wait_seconds, error);
		if (r == FEED_END)
			return run_fail(run, -EPROTO, "the feed ended at step %llu of %llu",
					(unsigned long long)state->step,
					(unsigned long long)run->steps);
		if (r == -EINTR)
			return r;
		if (r)
			return run_fail(run, r, "step %llu: %s",
					(unsigned long long)state->step + 1, error);
		run->has_batch = true;
	}
	uint32_t count = data_train_share(&run->data);
	if (run->options.overfit_batch)
		return 0;
	if (run->batch.epoch != state->epoch || run->batch.batch != state->batch ||
	    run->batch.count != count)
		return run_fail(run, -EPROTO,
				"the feed is at epoch %llu, batch %llu with %u samples; expected "
				"%llu, %llu with %u",
				(unsigned long long)run->batch.epoch,
				(unsigned long long)run->batch.batch, run->batch.count,
				(unsigned long long)state->epoch, (unsigned long long)state->batch,
				count);
	return 0;
}

/*
 * Votes on the next step: 0 if every rank has a batch and none wants to stop; -EINTR or RUN_LOST on
 * all ranks otherwise. Other errors are local to this rank.
 */
static int loop_agree_on_step(struct run *run)
{
	int r = *run->options.stop ? -EINTR : loop_next_batch(run);
	run->lost = r == -EINTR ? 0 : r;
	double votes[] = {r == -EINTR, run->lost != 0, r ? 0 : run->batch.bad};
	int failed = run_sum(run, votes, 3);
	if (failed)
		return failed;
	run->bad = (uint64_t)votes[2];
	if (votes[0] > 0)
		return -EINTR;
	return votes[1] > 0 ? RUN_LOST : 0;
}

/*
 * Writes samples.jsonl: sample ids of all ranks in batch order, which does not depend on the number
 * of ranks.
 */
static int loop_write_samples(struct run *run)
{
	int r = comm_gather(run->comm, run->batch.samples, run->batch.count * sizeof(uint64_t),
			    run->sample_ids);
	if (r)
		return run_fail(run, r, "%s", comm_error(run->comm));
	if (!run->samples)
		return 0;
	metrics_log_begin(run->samples, "samples", run->state.step + 1);
	metrics_log_counts(run->samples, "samples", run->sample_ids, run->recipe->data.batch_size);
	return run_end_line(run, run->samples, "samples.jsonl");
}

static void loop_advance(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	state->images += run->recipe->data.batch_size;
	state->bad += run->bad;
	state->step++;
	state->batch++;
	if (state->batch == state->batches_per_epoch) {
		state->batch = 0;
		state->epoch++;
	}
	double now = clock_s(CLOCK_MONOTONIC);
	state->train_seconds += now - run->mark;
	run->mark = now;
}

/* Votes on the graph: 0 if every rank has one for the batch, else RUN_LOST on all ranks. */
static int loop_agree_on_graph(struct run *run)
{
	int r = run_train_graph(run);
	double failed = r != 0;
	run->lost = r;
	r = run_sum(run, &failed, 1);
	return r ? r : failed > 0 ? RUN_LOST : 0;
}

int run_step(struct run *run)
{
	struct device_batch images;
	uint64_t ticket;
	int r = loop_agree_on_step(run);
	if (!r && run->recipe->log.samples)
		r = loop_write_samples(run);
	if (r)
		return r;
	bool freezes = run_freeze_is_due(run);
	if (!run_has_train_graph(run) || freezes) {
		/* The graph is replaced: no step may be pending in it. */
		r = run_collect(run, 0);
		if (!r)
			r = loop_release_inflight(run, true);
		if (!r && freezes)
			r = run_move_freeze(run);
		if (!r)
			r = loop_agree_on_graph(run);
		if (r)
			return r;
	}
	r = run_device_batch(run, &run->feed, &run->batch, "data.pipeline", &images);
	if (r)
		return r;
	if (run->inflight_count == run->inflight_max) {
		r = loop_release_inflight(run, true);
		if (r)
			return r;
	}
	r = run_update(run, &images, &ticket);
	if (r)
		return r;
	run->inflight[run->inflight_count++] = (struct run_inflight){run->batch, ticket};
	run->has_batch = run->options.overfit_batch;
	loop_advance(run);
	r = loop_release_inflight(run, false);
	return r ? r : run_collect(run, RUN_PENDING_MAX);
}

/* ---- between steps ---- */

/* Rank 0: writes the checkpoint. */
static int loop_write_checkpoint(struct run *run)
{
	char path[CHECKPOINT_PATH_MAX], error[CHECKPOINT_ERROR_MAX];
	int r = checkpoint_path(run->options.output, run->state.step, path);
	if (r)
		return run_fail(run, r, "--output is too long");
	/* Sync the logs first: a run resumed from the checkpoint appends to the lines up to it. */
	r = run_sync_logs(run);
	if (r)
		return r;
	struct checkpoint_about about = run_about(run);
	r = checkpoint_save(path, run->params, run->recipe, &run->state, &about, error);
	if (r)
		return run_fail_write(run, r, error);
	run->saved_step = run->state.step;
	r = checkpoint_prune(run->options.output, run->recipe->checkpoint.keep);
	if (r)
		return run_fail(run, r, "%s: %s", run->options.output, strerror(-r));
	metrics_log_begin(run->metrics, "checkpoint", run->state.step);
	metrics_log_text(run->metrics, "path", path);
	return run_end_line(run, run->metrics, "log.jsonl");
}

static int loop_save(struct run *run)
{
	if (run->saved_step == run->state.step)
		return 0;
	int r = run_collect(run, 0);
	if (!r && (r = device_params_get_state(run->params, &run->state.device)))
		return run_fail_step(run, r, "state of the device");
	if (!r && (r = ranks_check_params(run->comm, run->params, run->error)))
		run->agreed = true;
	if (!r && run->metrics)
		r = loop_write_checkpoint(run);
	if (!r)
		run->saved_step = run->state.step;
	return r;
}

static bool loop_due(const struct run *run, uint64_t every)
{
	uint64_t now = run->state.step;
	return now == run->steps || (now && every && now % every == 0);
}

/*
 * Does what is due at the current step, each once, also after a resume at this step: epoch line,
 * evaluation, checkpoint.
 */
static int loop_between(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	bool epoch_ends = state->batch == 0 && state->step;
	bool evaluate = *run->recipe->data.val && loop_due(run, run->eval_every) &&
			!(state->eval_samples && state->eval_step == state->step);
	uint64_t every_steps = run->recipe->checkpoint.every_steps;
	bool checkpoint =
		loop_due(run, run->checkpoint_every) || (every_steps && loop_due(run, every_steps));
	if (!epoch_ends && !evaluate && !checkpoint)
		return 0;
	bool updates_bn = state->step == run->steps && run_weights(run) == DEVICE_SWA &&
			  (evaluate || !*run->recipe->data.val);
	int r = run_collect(run, 0);
	if (!r && epoch_ends && state->whole.steps)
		r = run_epoch_line(run);
	if (!r && updates_bn && !(r = loop_release_inflight(run, true)))
		r = run_update_bn(run);
	uint64_t begin = run_span_begin(run);
	if (!r && evaluate) {
		r = run_evaluate(run);
		run_span_end(run, begin, "evaluation");
		begin = run_span_begin(run);
	}
	if (!r && checkpoint && state->step) {
		r = loop_save(run);
		run_span_end(run, begin, "checkpoint");
	}
	run->mark = clock_s(CLOCK_MONOTONIC);
	return r;
}

/* Makes the current step the last one, if the evaluation says so. */
static int loop_end_early(struct run *run)
{
	if (!run_stops_early(run))
		return 0;
	progress_line(&run->progress, "stops at epoch %.6g: %s", run_epoch(run, run->state.step),
		      run->why);
	run->steps = run->state.step;
	/* averaged weights are evaluated again with recomputed statistics */
	if (run_weights(run) == DEVICE_SWA)
		run->state.eval_samples = 0;
	return loop_between(run);
}

/* Rank 0: finishes the run. */
static int loop_finish(struct run *run, bool stopped)
{
	int r = 0;
	run->outcome = stopped ? "stopped" : "finished";
	if (!stopped) {
		r = run_export(run, "model.safetensors", NULL);
		if (r)
			return r;
	}
	r = run_put(run, "summary.json", run_print_summary);
	if (r)
		return r;
	metrics_log_begin(run->metrics, "end", run->state.step);
	metrics_log_text(run->metrics, "outcome", run->outcome);
	if (*run->why)
		metrics_log_text(run->metrics, "why", run->why);
	return run_end_line(run, run->metrics, "log.jsonl");
}

/* After a failure that prevents the next step: reports how to resume. */
static void loop_append_resumable(struct run *run)
{
	size_t length = strlen(run->error);
	if (length && run->error[length - 1] == '.')
		length--;
	snprintf(run->error + length, sizeof(run->error) - length,
		 "; what was trained is kept, and --resume goes on from step %llu",
		 (unsigned long long)run->state.step);
}

/*
 * Saves a checkpoint after a failed feed or a failed plan for larger images, since the state so far
 * is sound; Ctrl-C may simply have reached the daemon as well.
 */
static int loop_save_after(struct run *run, int outcome)
{
	int r = run->state.step ? loop_save(run) : 0;
	if (r || outcome == -EINTR)
		return r;
	double stopped = *run->options.stop;
	r = run_sum(run, &stopped, 1);
	if (r || stopped > 0)
		return r;
	run->agreed = true;
	r = ranks_agree(run->comm, run->lost, run->error);
	if (run->state.step)
		loop_append_resumable(run);
	return r;
}

int run_train(struct run *run)
{
	int r = 0;
	run->mark = clock_s(CLOCK_MONOTONIC);
	run->line_seconds = run->state.train_seconds;
	run->line_wait = run->state.wait_seconds;
	run->line_images = run->state.images;
	for (;;) {
		r = loop_between(run);
		if (!r)
			r = loop_end_early(run);
		if (r || run->state.step >= run->steps)
			break;
		run_trace_step(run);
		uint64_t begin = run_span_begin(run);
		r = run_step(run);
		run_span_end(run, begin, "step %llu", (unsigned long long)run->state.step);
		if (r)
			break;
		run_draw_progress(run);
	}
	run_end_trace(run);
	bool stopped = r == RUN_LOST || r == -EINTR;
	if (stopped)
		r = loop_save_after(run, r);
	if (!r && run->metrics)
		r = loop_finish(run, stopped);
	if (r && run->metrics)
		run_end_failed(run, r);
	return r ? r : stopped ? RUN_STOPPED : 0;
}
