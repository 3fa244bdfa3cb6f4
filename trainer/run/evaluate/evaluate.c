#include "format/base/system/clock.h"
#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/score.h"
#include "trainer/algorithms/views.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/run/evaluate/idle.h"
#include "trainer/run/evaluate/predictions.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct metrics *run_metrics(const struct run *run)
{
	return run->data.target.kind == TARGET_CLASS        ? &metrics_of_classes
	       : run->data.target.kind == TARGET_MULTILABEL ? &metrics_of_labels
							    : &metrics_of_numbers;
}

static int evaluate_fail(struct run *run, int code)
{
	return run_fail(&run->ctx, code, "evaluation: %s", run_device_text(&run->ctx, code));
}

/* A batch in flight. */
struct inflight_evaluation {
	struct feed_batch batch; /* the batch being evaluated */
	uint64_t ticket, step;
};

/*
 * Maximum number of batches in flight: while one is computed, the next is fetched, copied and
 * queued. A feed has at least as many slots.
 */
enum { FLIGHTS_MAX = 2 };

/* One pass over this rank's part of the evaluation set. */
struct pass {
	struct run *run;
	struct run_feed feed;
	struct view views[VIEWS_MAX];
	unsigned view_count;
	struct inflight_evaluation flights[FLIGHTS_MAX]; /* oldest first */
	unsigned count;
	struct checkpoint_totals *totals;
	struct device_batch last; /* the last batch, whose pointers may be invalid by now */
	bool ended;               /* this rank has no more batches */
};

/* Copies a batch to the device and queues its forward pass. */
static int evaluate_queue(struct run *run, const struct device_batch *batch,
			  struct inflight_evaluation *flight)
{
	struct device_graph *graph = run->network.eval.graph;
	int r = device_upload(graph, batch, &flight->ticket);
	if (r < 0)
		return evaluate_fail(run, r);
	/* a sharded average is in the place of the values */
	r = device_evaluate(graph,
			    device_params_are_sharded(run->network.params)
				    ? DEVICE_VALUE
				    : network_eval_slot(&run->network, &run->state),
			    &flight->step);
	if (r < 0) {
		evaluate_fail(run, r);
		/* wait for the copy, so that the batch's memory may be released */
		device_upload_done(graph, flight->ticket, true);
	}
	return r;
}

static int evaluate_wait(struct run *run, const struct inflight_evaluation *flight,
			 struct device_results *results)
{
	int r = device_results(run->network.eval.graph, flight->step, true, results);
	/*
	 * The results imply that the copy is done, but device_upload() requires a query of the
	 * ticket.
	 */
	if (r == 0)
		r = device_upload_done(run->network.eval.graph, flight->ticket, true);
	return r < 0 ? evaluate_fail(run, r) : 0;
}

/* Buffers to evaluate several views of a batch. */
struct view_buffers {
	float *sum, *logits; /* [run->network.eval.count][classes] */
	void *moved;         /* shifted images; NULL if no view is shifted */
};

/*
 * Evaluates one view of a batch and adds its weighted logits to buffers->sum. If the view is
 * shifted, uses buffers->moved.
 */
static int evaluate_add_view(struct run *run, const struct view *view,
			     const struct device_batch *batch, struct view_buffers *buffers)
{
	struct device_batch images = *batch;
	struct device_results results;
	struct inflight_evaluation flight;
	if (view->shift)
		images.images = buffers->moved;
	images.flip = view->flip;
	int r = evaluate_queue(run, &images, &flight);
	if (r < 0)
		return r;
	r = evaluate_wait(run, &flight, &results);
	if (r < 0)
		return r;
	r = device_logits(run->network.eval.graph, buffers->logits);
	if (r < 0)
		return evaluate_fail(run, r);
	size_t values = (size_t)run->network.eval.count * run->data.classes;
	for (size_t i = 0; i < values; i++)
		buffers->sum[i] += view->weight * buffers->logits[i];
	return 0;
}

static int evaluate_add_views(struct pass *pass, const struct device_batch *batch,
			      struct view_buffers *buffers)
{
	struct run *run = pass->run;
	const struct view *views = pass->views;
	struct views_images images = {
		.pixels = batch->images,
		.count = batch->count,
		.height = run->network.eval.height,
		.width = run->network.eval.width,
		.pixel_size = batch->channels * device_element_size(batch->element),
	};
	size_t values = (size_t)run->network.eval.count * run->data.classes;
	bool shifts = run->ctx.recipe->train.eval_shift > 0;
	buffers->sum = calloc(values, sizeof(float));
	buffers->logits = calloc(values, sizeof(float));
	if (shifts)
		buffers->moved = calloc((size_t)images.count * images.height * images.width,
					images.pixel_size);
	if (!buffers->sum || !buffers->logits || (shifts && !buffers->moved))
		return run_fail(&run->ctx, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < pass->view_count; i++) {
		if (views[i].shift && views[i].shift != views[i - 1].shift)
			views_move(&images, views[i].shift, buffers->moved);
		int r = evaluate_add_view(run, &views[i], batch, buffers);
		if (r < 0)
			return r;
	}
	return 0;
}

static void evaluate_add_score(struct pass *pass, const struct device_batch *batch,
			       const float *logits)
{
	struct checkpoint_totals *totals = pass->totals;
	struct score score = {0};
	score_add(&score, logits, batch->labels, batch->count, pass->run->data.classes,
		  model_logit_scale(pass->run->network.model));
	totals->loss += score.loss;
	totals->samples += score.samples;
	totals->top1 += score.top1;
	totals->top5 += score.top5;
}

/* With data.target: keeps outputs and targets for evaluate_score_targets(). */
static int evaluate_add_targets(struct pass *pass, const struct feed_batch *fed,
				const struct device_batch *batch, const float *logits)
{
	struct run *run = pass->run;
	int r = target_scores_add(&run->evaluation.scores, fed->samples, batch->count, logits,
				  model_logit_scale(run->network.model), batch->targets);
	return r < 0 ? run_fail(&run->ctx, r, "evaluation: out of memory") : 0;
}

/* Computes loss and top-k, or keeps outputs, of the weighted sum of the views' logits. */
static int evaluate_score_views(struct pass *pass, const struct feed_batch *fed,
				const struct device_batch *batch)
{
	struct predictions *predictions = pass->run->evaluation.predictions;
	struct view_buffers buffers = {0};
	int r = evaluate_add_views(pass, batch, &buffers);
	if (r == 0 && batch->targets) {
		r = evaluate_add_targets(pass, fed, batch, buffers.sum);
	} else if (r == 0) {
		evaluate_add_score(pass, batch, buffers.sum);
		if (predictions && predictions_add(predictions, fed, buffers.sum) < 0)
			r = run_fail(&pass->run->ctx, -ENOMEM, "--predictions: out of memory");
	}
	free(buffers.sum);
	free(buffers.logits);
	free(buffers.moved);
	return r;
}

/* Plans the graph and describes the batch for the device. */
static int evaluate_prepare(struct run *run, const struct run_feed *feed,
			    const struct feed_batch *batch, struct device_batch *ret_images)
{
	uint64_t shift = run->ctx.recipe->train.eval_shift;
	int r = run_feed_device_batch(&run->ctx, feed, batch, "data.val_pipeline", ret_images);
	if (r < 0)
		return r;
	run->evaluation.bytes = batch->element == FEED_U8;
	if (shift >= batch->height || shift >= batch->width)
		return run_fail(&run->ctx, -EINVAL,
				"train.eval_shift = %llu is too large for the images of data.val, "
				"%u x %u: use at most %u",
				(unsigned long long)shift, batch->width, batch->height,
				(batch->width < batch->height ? batch->width : batch->height) - 1);
	return run_plan_eval(run, batch->height, batch->width);
}

/* Adds up results in batch order until at most `down_to` batches are in flight. */
static int evaluate_collect(struct pass *pass, unsigned down_to)
{
	while (pass->count > down_to) {
		struct device_results results;
		int r = evaluate_wait(pass->run, &pass->flights[0], &results);
		if (r < 0)
			return r;
		feed_release(pass->feed.feed, &pass->flights[0].batch);
		pass->count--;
		memmove(pass->flights, pass->flights + 1, pass->count * sizeof(pass->flights[0]));
		run_add(pass->totals, &results);
	}
	return 0;
}

/* Aborts a pass: waits until the device no longer reads the feed's memory. */
static void evaluate_abandon(struct pass *pass)
{
	for (unsigned i = 0; i < pass->count; i++)
		device_upload_done(pass->run->network.eval.graph, pass->flights[i].ticket, true);
	pass->count = 0;
}

/* Queues a batch and collects finished ones. Evaluates several views of a batch synchronously. */
static int evaluate_batch(struct pass *pass, const struct feed_batch *batch)
{
	struct run *run = pass->run;
	const struct run_graph *graph = &run->network.eval;
	struct device_batch images;
	if (batch->height != graph->height || batch->width != graph->width) {
		/* the graph may be replaced only when no step is pending */
		int r = evaluate_collect(pass, 0);
		if (r < 0)
			return r;
	}
	int r = evaluate_prepare(run, &pass->feed, batch, &images);
	if (r < 0)
		return r;
	pass->last = images;
	if (pass->view_count > 1 || run->evaluation.predictions || images.targets) {
		r = evaluate_score_views(pass, batch, &images);
		feed_release(pass->feed.feed, batch);
		return r;
	}
	struct inflight_evaluation *flight = &pass->flights[pass->count];
	flight->batch = *batch;
	r = evaluate_queue(run, &images, flight);
	if (r < 0)
		return r;
	pass->count++;
	return evaluate_collect(pass, FLIGHTS_MAX - 1);
}

/* Takes the steps of a batch that other ranks have. */
static int evaluate_idle(struct pass *pass)
{
	struct run *run = pass->run;
	struct idle_batch idle = {0};
	int r = evaluate_collect(pass, 0);
	if (r == 0 && idle_batch_init(&idle, run, &pass->last) < 0)
		r = run_fail(&run->ctx, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < pass->view_count && r == 0; i++) {
		struct device_results results;
		struct inflight_evaluation flight;
		r = evaluate_queue(run, &idle.batch, &flight);
		if (r == 0)
			r = evaluate_wait(run, &flight, &results);
	}
	idle_batch_deinit(&idle);
	return r;
}

/* Opens the feed; sets ret_feed->feed to NULL if this rank gets no samples. */
static int evaluate_open_feed(struct run *run, struct run_feed *ret_feed)
{
	/* use the pipeline of the epoch just trained, not of the next one */
	uint64_t epoch = run->state.step ? (run->state.step - 1) / run->state.batches_per_epoch : 0;
	return run_feed_open(&run->feeds, DATA_VAL, epoch, 0, ret_feed);
}

/* Without training: checks that the element type of batches matches the weights' metadata. */
static int evaluate_check_normalisation(struct run *run, bool bytes)
{
	if (bytes && !run->data.normalises)
		return run_fail(&run->ctx, -EINVAL,
				"data.val_pipeline delivers u8, but %s has no normalisation: set "
				"data.mean and data.std%s",
				run->evaluation.weights.file,
				run->evaluation.weights.named
					? ", or deliver floats as in training"
					: ", or data.train, whose dataset records them");
	if (!bytes && run->evaluation.weights.normalised)
		return run_fail(&run->ctx, -EINVAL,
				"%s was trained on u8, normalised by its trainer.mean and "
				"trainer.std, but data.val_pipeline delivers floats, which are not "
				"normalised again: remove to() and normalize()",
				run->evaluation.weights.file);
	return 0;
}

/*
 * Checks that training and evaluation use the same element type. Bytes are normalised and floats
 * are not, so images of different types rarely match.
 */
static int evaluate_check_element(struct run *run, const struct feed_batch *batch)
{
	bool bytes = run->input.batch.element == FEED_U8;
	if (run->ctx.options.evaluate)
		return evaluate_check_normalisation(run, batch->element == FEED_U8);
	if (bytes == (batch->element == FEED_U8))
		return 0;
	return run_fail(&run->ctx, -EINVAL,
			"data.pipeline delivers %s, data.val_pipeline %s: u8 is normalised by "
			"data.mean and data.std, floats are not, so use the same normalize() and "
			"to() in both, or in neither",
			bytes ? "u8" : "floats", bytes ? "floats" : "u8");
}

static int evaluate_try(struct run *run, struct run_feed *feed)
{
	char error[DATA_ERROR_MAX] = "";
	struct feed_batch batch;
	struct device_batch images;
	double wait = 0;
	int r = run_feed_next(&run->feeds, feed, &batch, &wait, error);
	if (r < 0)
		return run_fail(&run->ctx, r, "data.val, data.val_pipeline: %s",
				r == -EINTR ? "stopped before the first step" : error);
	if (r == FEED_END)
		return 0;
	r = evaluate_check_element(run, &batch);
	return r < 0 ? r : evaluate_prepare(run, feed, &batch, &images);
}

int run_try_evaluation(struct run *run)
{
	struct run_feed feed = {0};
	if (!*run->ctx.recipe->data.val)
		return 0;
	int r = evaluate_open_feed(run, &feed);
	if (r == 0 && !feed.feed && device_params_are_gathered(run->network.params))
		return run_fail(&run->ctx, -EINVAL,
				"train.shard = parameters: every rank evaluates, but data.val = %s "
				"has no image for this one; use fewer ranks or "
				"train.shard=gradients",
				run->ctx.recipe->data.val);
	if (r < 0 || !feed.feed)
		return r;
	r = evaluate_try(run, &feed);
	run_feed_close(&run->feeds, &feed);
	return r;
}

/* The next batch, or FEED_END; -EINTR to stop. */
static int evaluate_next(struct pass *pass, struct feed_batch *batch, char *error)
{
	struct run *run = pass->run;
	double wait = 0;
	if (*run->ctx.options.stop)
		return -EINTR;
	int r = pass->ended ? FEED_END
			    : run_feed_next(&run->feeds, &pass->feed, batch, &wait, error);
	pass->ended = r == FEED_END;
	return r;
}

/* Evaluates the batches of an open feed. */
static int evaluate_feed(struct pass *pass)
{
	struct run *run = pass->run;
	char error[DATA_ERROR_MAX] = "";
	struct feed_batch batch;
	for (;;) {
		bool idles;
		int r = evaluate_next(pass, &batch, error);
		int voted = idle_vote(run, run_vote_group(&run->ctx, r), &idles);
		if (voted != r)
			return voted;
		if (idles) {
			r = evaluate_idle(pass);
			if (r < 0)
				return r;
			continue;
		}
		if (r == FEED_END)
			return evaluate_collect(pass, 0);
		if (r == -EINTR)
			return r;
		if (r < 0)
			return run_set_lost(&run->ctx,
					    run_fail(&run->ctx, r, "evaluation: %s", error));
		r = evaluate_batch(pass, &batch);
		if (r < 0)
			return r;
	}
}

/* Evaluates this rank's part of the evaluation set. */
static int evaluate_share(struct run *run, struct checkpoint_totals *totals)
{
	struct pass pass = {.run = run, .totals = totals};
	bool idles;
	int r = evaluate_open_feed(run, &pass.feed);
	int voted = idle_vote(run, run_vote_group(&run->ctx, r), &idles);
	if (r < 0 || !pass.feed.feed)
		return run_set_lost(&run->ctx, r);
	if (voted) {
		run_feed_close(&run->feeds, &pass.feed);
		return voted;
	}
	pass.view_count = views_of(&run->ctx.recipe->train, pass.views);
	r = evaluate_feed(&pass);
	evaluate_abandon(&pass);
	run_feed_close(&run->feeds, &pass.feed);
	return r;
}

/* Of a sharded store: puts the average to evaluate in the place of the values, or takes it away. */
static int evaluate_exchange(struct run *run)
{
	enum device_slot slot = network_eval_slot(&run->network, &run->state);
	if (slot == DEVICE_VALUE || !device_params_are_sharded(run->network.params))
		return 0;
	int r = device_params_exchange(run->network.params, slot);
	return r < 0 ? evaluate_fail(run, r) : 0;
}

/* Sums results over the ranks that share batches, and the two votes at the end over all ranks. */
static int evaluate_sum(struct run_context *ctx, double sums[6])
{
	int r = run_sum_batch(ctx, sums, 6);
	if (r < 0 || !ctx->group_comm)
		return r;
	r = comm_sum(ctx->group_comm, sums + 4, 2, COMM_DOUBLE);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->group_comm)) : 0;
}

/* Evaluates on all ranks and sums the results. */
static int evaluate_all(struct run *run, struct checkpoint_totals *totals)
{
	struct run_context *ctx = &run->ctx;
	struct checkpoint_totals own = {0};
	if (!ctx->recipe->model.bn_sync) {
		/*
		 * running statistics differ between ranks; use rank 0's, which checkpoints contain
		 */
		int r = ranks_share_params(ctx->comm, run->network.params, true, ctx->error);
		if (r < 0)
			return r;
	}
	int r = evaluate_exchange(run);
	if (r < 0)
		return r;
	r = evaluate_share(run, &own);
	int restored = evaluate_exchange(run);
	if (r < 0 && r != -EINTR)
		return r;
	if (restored < 0)
		return restored;
	double sums[] = {own.loss,         (double)own.samples, (double)own.top1,
			 (double)own.top5, r == -EINTR,         r == RUN_LOST};
	int failed = evaluate_sum(ctx, sums);
	if (failed < 0)
		return failed;
	*totals = (struct checkpoint_totals){.loss = sums[0],
					     .samples = (uint64_t)sums[1],
					     .top1 = (uint64_t)sums[2],
					     .top5 = (uint64_t)sums[3]};
	return sums[4] > 0 ? -EINTR : sums[5] > 0 ? RUN_LOST : 0;
}

/* Prints and logs the evaluation in the state. */
static int evaluate_report(struct run *run, double seconds)
{
	enum device_slot slot = network_eval_slot(&run->network, &run->state);
	const struct checkpoint_state *state = &run->state;
	const struct metrics *measured = run_metrics(run);
	double epoch = run_epoch(run, state->step);
	char text[METRICS_TEXT];
	metrics_text(measured, state->eval_metric, false, text);
	progress_line(&run->ctx.progress,
		      "epoch %.6g  evaluation: loss %.4f  %s  (%llu images, %.1f s%s)", epoch,
		      state->eval_loss, text, (unsigned long long)state->eval_samples, seconds,
		      slot != DEVICE_VALUE ? ", averaged weights" : "");
	struct metrics_log *metrics = run->output.metrics;
	if (!metrics)
		return 0;
	metrics_log_begin(metrics, "eval", state->step);
	metrics_log_number(metrics, "epoch", epoch);
	metrics_log_exact(metrics, "loss", state->eval_loss);
	for (unsigned i = 0; i < measured->count; i++)
		metrics_log_number(metrics, measured->metric[i].key, state->eval_metric[i]);
	metrics_log_count(metrics, "samples", state->eval_samples);
	metrics_log_text(metrics, "weights",
			 slot == DEVICE_SWA     ? "swa"
			 : slot != DEVICE_VALUE ? "ema"
						: "value");
	metrics_log_number(metrics, "seconds", seconds);
	return output_end_line(&run->output);
}

static int evaluate_record(struct run *run, const struct checkpoint_totals *totals)
{
	struct checkpoint_state *state = &run->state;
	if (!totals->samples)
		return run_fail_everywhere(&run->ctx, -EINVAL,
					   "data.val = %s has no sample with a label",
					   run->ctx.recipe->data.val);
	double n = (double)totals->samples;
	state->eval_step = state->step;
	state->eval_samples = totals->samples;
	state->eval_loss = totals->loss / n;
	state->eval_metric[0] = (double)totals->top1 / n;
	state->eval_metric[1] = (double)totals->top5 / n;
	return 0;
}

/* With data.target: computes loss and metrics from all ranks' samples and records them. */
static int evaluate_score_targets(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	struct checkpoint_state *state = &run->state;
	struct target_scores *scores = &run->evaluation.scores;
	struct target_result result;
	struct loss loss;
	int r = target_scores_gather(scores, ctx->data_comm);
	if (r < 0)
		return run_fail(ctx, r, "evaluation: %s",
				r == -ENOMEM ? "out of memory" : comm_error(ctx->data_comm));
	if (!scores->count)
		return run_fail_everywhere(ctx, -EINVAL,
					   "data.val = %s has no sample with the value of "
					   "data.target = %s",
					   ctx->recipe->data.val, ctx->recipe->data.target);
	loss_of(ctx->recipe, DEVICE_EVAL, NULL, &loss);
	r = target_scores_compute(scores, run->data.target.kind, loss.spec.kind, &result);
	if (r < 0)
		return run_fail(ctx, r, "evaluation: out of memory");
	state->eval_step = state->step;
	state->eval_samples = result.samples;
	state->eval_loss = result.loss;
	memcpy(state->eval_metric, result.metric, sizeof(state->eval_metric));
	return 0;
}

static int evaluate_keep_best(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	if (!(state->eval_metric[0] > state->best_score)) /* NaN is no improvement */
		return 0;
	state->best_score = state->eval_metric[0];
	state->best_step = state->step;
	if (!run->ctx.recipe->checkpoint.best || run->ctx.options.evaluate)
		return 0;
	char metrics[METRICS_TEXT], text[METRICS_TEXT + 32];
	metrics_text(run_metrics(run), state->eval_metric, true, metrics);
	snprintf(text, sizeof(text), "step %llu, %s", (unsigned long long)state->step, metrics);
	return run_export(run, "best.safetensors", text);
}

int run_evaluate(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	struct checkpoint_totals totals = {0};
	double start = clock_s(CLOCK_MONOTONIC);
	target_scores_deinit(&run->evaluation.scores);
	target_scores_init(&run->evaluation.scores, run->data.classes);
	int r = evaluate_all(run, &totals);
	if (r)
		return r;
	r = run->data.target.outputs ? evaluate_score_targets(run) : evaluate_record(run, &totals);
	if (r < 0)
		return r;
	r = evaluate_report(run, clock_s(CLOCK_MONOTONIC) - start);
	plateau_evaluated(&state->plateau, &run->ctx.recipe->schedule, state->eval_loss,
			  state->eval_metric[0]);
	return r < 0 ? r : evaluate_keep_best(run);
}
