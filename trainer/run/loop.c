#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int run_fail_step(struct run *run, int code, const char *what)
{
	struct run_context *ctx = &run->ctx;
	unsigned long long step = run->state.step + 1;
	char saved[64];
	if (code != -ENOMEM)
		return run_fail(ctx, code, "step %llu: %s: %s", step, what,
				run_device_text(ctx, code));
	/* planning and warm-up had enough memory, so others have allocated it since */
	output_describe_saved(&run->output, saved, sizeof(saved));
	return run_fail(
		ctx, code,
		"step %llu: %s: %s; %s. Remedies: end other programs that have taken device memory "
		"since the run started, then --resume; train.accumulate=auto, which searches again "
		"for what fits; a lower train.memory_limit",
		step, what, run_device_text(ctx, code), saved);
}

/* ---- results ---- */

void run_add(struct checkpoint_totals *totals, const struct device_results *results)
{
	totals->loss += results->loss * results->samples;
	totals->samples += results->samples;
	totals->top1 += results->top1;
	totals->top5 += results->top5;
	totals->steps++;
}

static int loop_fail_not_finite(struct run *run, const struct pending_step *pending, double loss)
{
	char saved[64], teacher[TEACHER_DIAGNOSIS_MAX];
	output_describe_saved(&run->output, saved, sizeof(saved));
	teacher_diagnose(&run->teacher, teacher);
	return run_fail_everywhere(
		&run->ctx, -EDOM,
		"step %llu (epoch %.3f): the loss is %f at lr %.4g, so training has "
		"diverged%s; %s. Remedies: a lower "
		"optim.lr, a longer schedule.warmup, train.precision = fp32; "
		"--detect-anomaly names the first "
		"tensor that is not finite",
		(unsigned long long)pending->step, run_epoch(run, pending->step - 1), loss,
		pending->lr, teacher, saved);
}

/* Records the results of a complete update. */
static int loop_record(struct run *run, const struct pending_step *pending,
		       const struct device_results *results)
{
	if (!results->samples)
		return run_fail_everywhere(&run->ctx, -EINVAL,
					   "step %llu: no sample of the batch has %s; data.train = "
					   "%s cannot train a network",
					   (unsigned long long)pending->step,
					   run->data.target.outputs ? "the value of data.target"
								    : "a label",
					   run->ctx.recipe->data.train);
	if (!isfinite(results->loss) && !(run->hook.lr_factor > 0))
		return loop_fail_not_finite(run, pending, results->loss);
	meter_add(&run->meter, results, pending->lr);
	run_add(&run->state.interval, results);
	run_add(&run->state.whole, results);
	if (pending->step % run->ctx.recipe->log.interval != 0)
		return 0;
	return run_step_line(run, pending, results);
}

int run_collect(struct run *run, unsigned down_to)
{
	struct step_queue *queue = &run->queue;
	while (queue->count) {
		const struct pending_step *oldest = &queue->pending[0];
		struct device_results results;
		bool waits = queue->count > down_to;
		uint64_t begin = waits ? tracer_span_begin(&run->tracer) : 0;
		int r = device_results(oldest->graph, oldest->device_step, waits, &results);
		tracer_span_end(&run->tracer, begin, "results");
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return run_fail_step(run, r, "results");
		struct pending_step pending = step_queue_pop(queue);
		if (!step_queue_combine(queue, &pending, &results))
			continue;
		r = loop_record(run, &pending, &results);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- one step ---- */

static int loop_release(struct run *run, bool wait)
{
	int r = input_release(&run->input, run->network.train.graph, wait);
	return r < 0 ? run_fail_step(run, r, "copying a batch") : 0;
}

int run_release_input(struct run *run)
{
	return loop_release(run, true);
}

/*
 * Votes on the next step. Returns 0 if every rank has a batch and none is asked to stop; else
 * -EINTR or RUN_LOST, on all ranks. Other errors are local to this rank.
 */
static int loop_agree_on_step(struct run *run, uint64_t *ret_bad)
{
	int r = *run->ctx.options.stop ? -EINTR
				       : input_next(&run->input, &run->state, run->length.steps,
						    &run->state.wait_seconds);
	double bad = r < 0 ? 0 : run->input.batch.bad;
	r = run_vote(&run->ctx, r, &bad);
	*ret_bad = (uint64_t)bad;
	return r;
}

static void loop_advance(struct run *run, uint64_t bad)
{
	struct checkpoint_state *state = &run->state;
	state->images += run->ctx.recipe->data.batch_size;
	state->bad += bad;
	state->step++;
	state->batch++;
	if (state->batch == state->batches_per_epoch) {
		state->batch = 0;
		state->epoch++;
	}
	state->train_seconds += meter_lap(&run->meter);
}

/*
 * Replaces the training graph if the next step needs another. RUN_LOST if any rank fails to plan
 * it.
 */
static int loop_prepare_graph(struct run *run)
{
	bool freezes = network_freeze_is_due(&run->network, &run->state, run->length.steps);
	if (run_has_train_graph(run) && !freezes)
		return 0;
	/* the old graph must have no pending steps */
	int r = run_collect(run, 0);
	if (r < 0)
		return r;
	r = run_release_input(run);
	if (r < 0)
		return r;
	if (freezes) {
		r = run_move_freeze(run);
		if (r < 0)
			return r;
	}
	return run_vote(&run->ctx, run_plan_train(run), NULL);
}

/* Records the bytes that this rank sent in a step that began at begin_ns, with counters `before`.
 */
static void loop_count_sent(struct run *run, const struct comm_sent *before, uint64_t begin_ns)
{
	struct comm_sent sent = run->ctx.comm->sent;
	comm_sent_add(&sent, before, -1);
	meter_add_sent(&run->meter, &sent);
	tracer_add_sent(&run->tracer, begin_ns, &sent);
}

int run_step(struct run *run)
{
	struct comm_sent before = run->ctx.comm->sent;
	uint64_t begin_ns = tracer_span_begin(&run->tracer);
	struct device_batch images;
	uint64_t ticket, bad;
	int r = loop_agree_on_step(run, &bad);
	if (r)
		return r;
	if (run->ctx.recipe->log.samples) {
		r = output_write_sample_ids(&run->output, run->state.step + 1,
					    run->input.batch.samples, run->input.batch.count);
		if (r < 0)
			return r;
	}
	r = loop_prepare_graph(run);
	if (r)
		return r;
	r = run_train_batch(run, &run->input.feed, &run->input.batch, &images);
	if (r < 0)
		return r;
	if (input_is_full(&run->input)) {
		r = run_release_input(run);
		if (r < 0)
			return r;
	}
	r = run_update(run, &images, &ticket);
	if (r < 0)
		return r;
	input_queued(&run->input, ticket);
	loop_advance(run, bad);
	loop_count_sent(run, &before, begin_ns);
	r = loop_release(run, false);
	return r < 0 ? r : run_collect(run, STEP_QUEUE_MAX);
}

/* ---- between steps ---- */

static int loop_evaluate(struct run *run)
{
	uint64_t begin = tracer_span_begin(&run->tracer);
	int r = run_evaluate(run);
	tracer_span_end(&run->tracer, begin, "evaluation");
	return r;
}

static int loop_checkpoint(struct run *run)
{
	uint64_t begin = tracer_span_begin(&run->tracer);
	int r = run_save(run);
	tracer_span_end(&run->tracer, begin, "checkpoint");
	return r;
}

/* Recomputes the batch norm statistics of the averaged weights. */
static int loop_update_bn(struct run *run)
{
	int r = run_release_input(run);
	return r < 0 ? r : run_update_bn(run);
}

/* Actions due at a step. */
struct due_actions {
	bool epoch_line, bn_update, evaluation, checkpoint;
};

static struct due_actions loop_due(const struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	const struct run_length *length = &run->length;
	uint64_t step = state->step, every_steps = run->ctx.recipe->checkpoint.every_steps;
	bool has_val = *run->ctx.recipe->data.val;
	struct due_actions due = {
		.epoch_line = state->batch == 0 && step,
		.evaluation = has_val && run_length_is_due(length, step, length->eval_every) &&
			      !(state->eval_samples && state->eval_step == step),
		.checkpoint = run_length_is_due(length, step, length->checkpoint_every) ||
			      (every_steps && run_length_is_due(length, step, every_steps)),
	};
	due.bn_update = step == length->steps &&
			network_eval_slot(&run->network, state) == DEVICE_SWA &&
			(due.evaluation || !has_val);
	return due;
}

static int loop_run_due(struct run *run, const struct due_actions *due)
{
	int r = run_collect(run, 0);
	if (r < 0)
		return r;
	if (due->epoch_line && run->state.whole.steps) {
		r = run_epoch_line(run);
		if (r < 0)
			return r;
	}
	if (due->bn_update) {
		r = loop_update_bn(run);
		if (r)
			return r;
	}
	if (due->evaluation) {
		r = loop_evaluate(run);
		if (r)
			return r;
	}
	return due->checkpoint && run->state.step ? loop_checkpoint(run) : 0;
}

/*
 * Performs the actions due at the current step: epoch line, evaluation, checkpoint. Performs each
 * only once, even if the run resumes at this step.
 */
static int loop_between(struct run *run)
{
	struct due_actions due = loop_due(run);
	if (!due.epoch_line && !due.evaluation && !due.checkpoint)
		return 0;
	int r = loop_run_due(run, &due);
	meter_skip(&run->meter);
	return r;
}

/* Makes the current step the last one, if the last evaluation ends the run early. */
static int loop_end_early(struct run *run)
{
	if (!early_stopping_is_due(&run->early_stopping, &run->ctx.recipe->train,
				   &run_metrics(run)->metric[0], &run->state, &run->length))
		return 0;
	progress_line(&run->ctx.progress, "stopping at epoch %.6g: %s",
		      run_epoch(run, run->state.step), run->early_stopping.reason);
	run_length_stop_at(&run->length, run->state.step);
	/* evaluate again, after the averaged weights' statistics were recomputed */
	if (network_eval_slot(&run->network, &run->state) == DEVICE_SWA)
		run->state.eval_samples = 0;
	return loop_between(run);
}

static int loop_finish(struct run *run, bool stopped)
{
	int r = stopped ? 0 : run_export(run, "model.safetensors", NULL);
	if (r < 0 || !run->output.metrics)
		return r;
	return run_end_line(run, stopped ? "stopped" : "finished");
}

/* Appends to the error how to resume, after a failure that prevents the next step. */
static void loop_append_resumable(struct run *run)
{
	char *error = run->ctx.error;
	size_t length = strlen(error);
	if (length && error[length - 1] == '.')
		length--;
	snprintf(error + length, sizeof(run->ctx.error) - length,
		 "; a checkpoint was saved, and --resume continues from step %llu",
		 (unsigned long long)run->state.step);
}

/*
 * Saves a checkpoint when the run was stopped or lost a feed or a plan, since the state is sound.
 * Then returns the failure, unless any rank was asked to stop: Ctrl-C may also have ended the
 * daemon.
 */
static int loop_save_after(struct run *run, int outcome)
{
	int r = run->state.step ? run_save(run) : 0;
	if (r < 0 || outcome == -EINTR)
		return r;
	double stopped = *run->ctx.options.stop;
	r = run_sum(&run->ctx, &stopped, 1);
	if (r < 0 || stopped > 0)
		return r;
	r = run_report_lost(&run->ctx);
	if (run->state.step)
		loop_append_resumable(run);
	return r;
}

/* Trains to the end. Returns -EINTR or RUN_LOST if it ended earlier with a sound state. */
static int loop_run(struct run *run)
{
	for (;;) {
		int r = loop_between(run);
		if (r)
			return r;
		r = loop_end_early(run);
		if (r || run->state.step >= run->length.steps)
			return r;
		tracer_step(&run->tracer, run->state.step);
		uint64_t begin = tracer_span_begin(&run->tracer);
		r = run_step(run);
		tracer_span_end(&run->tracer, begin, "step %llu",
				(unsigned long long)run->state.step);
		if (r)
			return r;
		run_draw_progress(run);
	}
}

int run_train(struct run *run)
{
	meter_start(&run->meter, &run->state);
	int r = loop_run(run);
	tracer_close(&run->tracer, run->state.step);
	bool stopped = r == RUN_LOST || r == -EINTR;
	if (stopped)
		r = loop_save_after(run, r);
	if (r == 0)
		r = loop_finish(run, stopped);
	if (r < 0 && run->output.metrics)
		output_end_failed(&run->output, r);
	if (r < 0)
		return r;
	return stopped ? RUN_STOPPED : 0;
}
