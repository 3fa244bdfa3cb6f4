#include "format/base/system/clock.h"
#include "trainer/algorithms/score.h"
#include "trainer/algorithms/views.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail_evaluation(struct run *run, int code)
{
	return run_fail(run, code, "evaluation: %s", run_device_text(run, code));
}

/* A batch in flight. */
struct flight {
	struct feed_batch batch; /* the batch being evaluated */
	uint64_t ticket, step;
};

/*
 * Batches in flight: while one is computed, the next is fetched, copied and queued. A feed has at
 * least as many slots.
 */
enum { FLIGHTS_MAX = 2 };

/* One pass over this rank's share of the evaluation set. */
struct pass {
	struct run *run;
	struct run_feed feed;
	struct view views[VIEWS_MAX];
	unsigned view_count;
	struct flight flights[FLIGHTS_MAX]; /* oldest first */
	unsigned count;
	struct checkpoint_totals *totals;
};

/* Feeds a batch and queues its forward pass. */
static int evaluate_launch(struct run *run, const struct device_batch *batch, struct flight *flight)
{
	struct device_graph *graph = run->eval.graph;
	int r = device_feed(graph, batch, &flight->ticket);
	if (r)
		return fail_evaluation(run, r);
	r = device_evaluate(graph, run_weights(run), &flight->step);
	if (r) {
		fail_evaluation(run, r);
		/* the batch's memory may now be released */
		device_fed(graph, flight->ticket, true);
	}
	return r;
}

static int evaluate_land(struct run *run, const struct flight *flight,
			 struct device_results *results)
{
	int r = device_results(run->eval.graph, flight->step, true, results);
	/*
	 * The copy is done once results are there; query the ticket anyway, as device_feed()
	 * requires.
	 */
	if (!r)
		r = device_fed(run->eval.graph, flight->ticket, true);
	return r ? fail_evaluation(run, r) : 0;
}

/* Buffers to evaluate several views of a batch. */
struct view_memory {
	float *sum, *logits; /* [run->eval.count][classes] */
	void *moved;         /* shifted images; NULL if no view is shifted */
};

/*
 * Adds the weighted logits of one view. moved: the images are already shifted, by a previous view.
 */
static int evaluate_add_view(struct run *run, const struct view *view,
			     const struct device_batch *batch, struct view_memory *memory)
{
	struct device_batch images = *batch;
	struct device_results results;
	struct flight flight;
	if (view->shift)
		images.images = memory->moved;
	images.flip = view->flip;
	int r = evaluate_launch(run, &images, &flight);
	if (!r)
		r = evaluate_land(run, &flight, &results);
	if (r)
		return r;
	r = device_logits(run->eval.graph, memory->logits);
	if (r)
		return fail_evaluation(run, r);
	size_t values = (size_t)run->eval.count * run->data.classes;
	for (size_t i = 0; i < values; i++)
		memory->sum[i] += view->weight * memory->logits[i];
	return 0;
}

static int evaluate_add_views(struct pass *pass, const struct device_batch *batch,
			      struct view_memory *memory)
{
	struct run *run = pass->run;
	const struct view *views = pass->views;
	struct views_images images = {
		.pixels = batch->images,
		.count = batch->count,
		.height = run->eval.height,
		.width = run->eval.width,
		.pixel_size = batch->channels * device_element_size(batch->element),
	};
	size_t values = (size_t)run->eval.count * run->data.classes;
	int r = 0;
	memory->sum = calloc(values, sizeof(float));
	memory->logits = calloc(values, sizeof(float));
	bool shifts = run->recipe->train.eval_shift > 0;
	if (shifts)
		memory->moved = calloc((size_t)images.count * images.height * images.width,
				       images.pixel_size);
	if (!memory->sum || !memory->logits || (shifts && !memory->moved))
		return run_fail(run, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < pass->view_count && !r; i++) {
		if (views[i].shift && views[i].shift != views[i - 1].shift)
			views_move(&images, views[i].shift, memory->moved);
		r = evaluate_add_view(run, &views[i], batch, memory);
	}
	return r;
}

/* Scores the averaged logits of the views, or those of a single view. */
static int evaluate_score_views(struct pass *pass, const struct feed_batch *fed,
				const struct device_batch *batch)
{
	struct checkpoint_totals *totals = pass->totals;
	struct view_memory memory = {0};
	struct score score = {0};
	int r = evaluate_add_views(pass, batch, &memory);
	if (!r)
		score_add(&score, memory.sum, batch->labels, batch->count, pass->run->data.classes,
			  model_logit_scale(pass->run->model));
	if (!r && pass->run->predictions)
		r = run_add_predictions(pass->run, fed, memory.sum);
	free(memory.sum);
	free(memory.logits);
	free(memory.moved);
	totals->loss += score.loss;
	totals->samples += score.samples;
	totals->top1 += score.top1;
	totals->top5 += score.top5;
	return r;
}

/* Prepares the graph and the device's description of a batch. */
static int evaluate_prepare(struct run *run, const struct feed_batch *batch,
			    struct device_batch *ret_images)
{
	uint64_t shift = run->recipe->train.eval_shift;
	int r = run_device_batch(run, NULL, batch, "data.val_pipeline", ret_images);
	run->eval_bytes = batch->element == FEED_U8;
	if (!r && (shift >= batch->height || shift >= batch->width))
		return run_fail(run, -EINVAL,
				"train.eval_shift = %llu: images of data.val are %u x %u, so it "
				"is at most %u",
				(unsigned long long)shift, batch->width, batch->height,
				(batch->width < batch->height ? batch->width : batch->height) - 1);
	return r ? r
		 : run_graph_for(run, DEVICE_EVAL, data_val_share(&run->data), batch->height,
				 batch->width);
}

/* Adds results in batch order until at most `down_to` batches are in flight. */
static int evaluate_collect(struct pass *pass, unsigned down_to)
{
	while (pass->count > down_to) {
		struct device_results results;
		int r = evaluate_land(pass->run, &pass->flights[0], &results);
		if (r)
			return r;
		feed_release(pass->feed.feed, &pass->flights[0].batch);
		pass->count--;
		memmove(pass->flights, pass->flights + 1, pass->count * sizeof(pass->flights[0]));
		run_add(pass->totals, &results);
	}
	return 0;
}

/* Cleans up an aborted pass: waits until nothing reads the feed's memory. */
static void evaluate_abandon(struct pass *pass)
{
	for (unsigned i = 0; i < pass->count; i++)
		device_fed(pass->run->eval.graph, pass->flights[i].ticket, true);
	pass->count = 0;
}

/*
 * Feeds a batch and collects finished ones. Several views of a batch are evaluated synchronously.
 */
static int evaluate_batch(struct pass *pass, const struct feed_batch *batch)
{
	struct run *run = pass->run;
	struct device_batch images;
	int r = 0;
	/* The size changed: no step may be pending in the graph that is replaced. */
	if (batch->height != run->eval.height || batch->width != run->eval.width)
		r = evaluate_collect(pass, 0);
	if (!r)
		r = evaluate_prepare(run, batch, &images);
	if (r)
		return r;
	if (pass->view_count > 1 || run->predictions) {
		r = evaluate_score_views(pass, batch, &images);
		feed_release(pass->feed.feed, batch);
		return r;
	}
	struct flight *flight = &pass->flights[pass->count];
	flight->batch = *batch;
	r = evaluate_launch(run, &images, flight);
	if (r)
		return r;
	pass->count++;
	return evaluate_collect(pass, FLIGHTS_MAX - 1);
}

/* *ret_feed has no feed if there are no samples for this rank. */
static int evaluate_open_feed(struct run *run, struct run_feed *ret_feed)
{
	/* Use the pipeline of the epoch just trained, not of the next one. */
	uint64_t epoch = run->state.step ? (run->state.step - 1) / run->state.batches_per_epoch : 0;
	return run_open_feed(run, DATA_VAL, epoch, 0, ret_feed);
}

/* Without training, the batch format must follow from the weights' metadata. */
static int evaluate_check_normalisation(struct run *run, bool bytes)
{
	if (bytes && !run->data.normalises)
		return run_fail(run, -EINVAL,
				"data.val_pipeline delivers u8, and %s does not say what it is "
				"normalised by: give data.mean and data.std%s",
				run->weights.file,
				run->weights.named ? ", or floats as in training"
						   : ", or data.train, which records them");
	if (!bytes && run->weights.normalised)
		return run_fail(
			run, -EINVAL,
			"%s was trained on u8, which is normalised by its trainer.mean and "
			"trainer.std; data.val_pipeline delivers floats, which are taken as "
			"they are: leave to() and normalize() out of it",
			run->weights.file);
	return 0;
}

/*
 * Only bytes are normalised, so float images of one pipeline rarely match the bytes of the other.
 */
static int evaluate_check_element(struct run *run, const struct feed_batch *batch)
{
	bool bytes = run->batch.element == FEED_U8;
	if (run->options.evaluate)
		return evaluate_check_normalisation(run, batch->element == FEED_U8);
	if (bytes == (batch->element == FEED_U8))
		return 0;
	return run_fail(run, -EINVAL,
			"data.pipeline delivers %s, data.val_pipeline %s: u8 is normalised by "
			"data.mean and data.std, floats are taken as they are, so give both the "
			"same normalize() and to(), or neither",
			bytes ? "u8" : "floats", bytes ? "floats" : "u8");
}

int run_try_evaluation(struct run *run)
{
	char error[DATA_ERROR_MAX] = "";
	struct run_feed feed = {0};
	struct feed_batch batch;
	struct device_batch images;
	double wait = 0;
	int r = *run->recipe->data.val ? evaluate_open_feed(run, &feed) : 0;
	if (r || !feed.feed)
		return r;
	r = run_next_batch(run, &feed, &batch, &wait, error);
	if (r < 0)
		run_fail(run, r, "data.val, data.val_pipeline: %s",
			 r == -EINTR ? "stopped before the first step" : error);
	else if (r != FEED_END)
		r = evaluate_check_element(run, &batch);
	if (!r)
		r = evaluate_prepare(run, &batch, &images);
	run_close_feed(run, &feed);
	return r < 0 ? r : 0;
}

/* Translates the outcome of a feed for all ranks. */
static int evaluate_lose(struct run *run, int r)
{
	run->lost = r;
	return r ? RUN_LOST : 0;
}

/* Evaluates this rank's share. */
static int evaluate_share(struct run *run, struct checkpoint_totals *totals)
{
	char error[DATA_ERROR_MAX] = "";
	struct pass pass = {.run = run, .totals = totals};
	struct feed_batch batch;
	double wait = 0;
	int r = evaluate_open_feed(run, &pass.feed);
	if (r || !pass.feed.feed)
		return evaluate_lose(run, r);
	pass.view_count = views_of(&run->recipe->train, pass.views);
	while (!r) {
		r = *run->options.stop ? -EINTR
				       : run_next_batch(run, &pass.feed, &batch, &wait, error);
		if (r < 0 && r != -EINTR)
			r = evaluate_lose(run, run_fail(run, r, "evaluation: %s", error));
		else if (!r)
			r = evaluate_batch(&pass, &batch);
	}
	if (r == FEED_END)
		r = evaluate_collect(&pass, 0);
	evaluate_abandon(&pass);
	run_close_feed(run, &pass.feed);
	return r;
}

/* Evaluates on all ranks and sums the results. */
static int evaluate_all(struct run *run, struct checkpoint_totals *totals)
{
	struct checkpoint_totals own = {0};
	/* With running statistics local to each rank, evaluate rank 0's, since those are saved. */
	int r = run->recipe->model.bn_sync
			? 0
			: ranks_share_params(run->comm, run->params, true, run->error);
	if (!r)
		r = evaluate_share(run, &own);
	if (r < 0 && r != -EINTR)
		return r;
	double sums[] = {own.loss,         (double)own.samples, (double)own.top1,
			 (double)own.top5, r == -EINTR,         r == RUN_LOST};
	int failed = run_sum(run, sums, 6);
	if (failed)
		return failed;
	*totals = (struct checkpoint_totals){.loss = sums[0],
					     .samples = (uint64_t)sums[1],
					     .top1 = (uint64_t)sums[2],
					     .top5 = (uint64_t)sums[3]};
	return sums[4] > 0 ? -EINTR : sums[5] > 0 ? RUN_LOST : 0;
}

static int evaluate_note(struct run *run, const struct checkpoint_totals *totals, double seconds)
{
	enum device_slot weights = run_weights(run);
	bool averaged = weights != DEVICE_VALUE;
	struct checkpoint_state *state = &run->state;
	double n = (double)totals->samples;
	double epoch = run_epoch(run, state->step);
	state->eval_step = state->step;
	state->eval_samples = totals->samples;
	state->eval_loss = totals->loss / n;
	state->eval_top1 = (double)totals->top1 / n;
	state->eval_top5 = (double)totals->top5 / n;
	progress_line(&run->progress,
		      "epoch %.6g  evaluation: loss %.4f  top-1 %.2f %%  top-5 %.2f %%  (%llu "
		      "images, %.1f s%s)",
		      epoch, state->eval_loss, 100 * state->eval_top1, 100 * state->eval_top5,
		      (unsigned long long)totals->samples, seconds,
		      averaged ? ", averaged weights" : "");
	struct metrics_log *metrics = run->metrics;
	if (!metrics)
		return 0;
	metrics_log_begin(metrics, "eval", state->step);
	metrics_log_number(metrics, "epoch", epoch);
	metrics_log_exact(metrics, "loss", state->eval_loss);
	metrics_log_number(metrics, "top1", state->eval_top1);
	metrics_log_number(metrics, "top5", state->eval_top5);
	metrics_log_count(metrics, "samples", totals->samples);
	metrics_log_text(metrics, "weights",
			 weights == DEVICE_SWA ? "swa"
			 : averaged            ? "ema"
					       : "value");
	metrics_log_number(metrics, "seconds", seconds);
	return run_end_line(run, metrics, "log.jsonl");
}

static int evaluate_keep_best(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	if (state->eval_top1 <= state->best_top1)
		return 0;
	state->best_top1 = state->eval_top1;
	state->best_step = state->step;
	if (!run->recipe->checkpoint.best || !run->metrics)
		return 0;
	char text[128];
	snprintf(text, sizeof(text), "step %llu, top-1 %.6g, top-5 %.6g",
		 (unsigned long long)state->step, state->eval_top1, state->eval_top5);
	return run_export(run, "best.safetensors", text);
}

int run_evaluate(struct run *run)
{
	struct checkpoint_totals totals = {0};
	double start = clock_s(CLOCK_MONOTONIC);
	int r = evaluate_all(run, &totals);
	if (r)
		return r;
	if (!totals.samples)
		return run_fail_everywhere(run, -EINVAL, "data.val = %s has no sample with a label",
					   run->recipe->data.val);
	r = evaluate_note(run, &totals, clock_s(CLOCK_MONOTONIC) - start);
	struct checkpoint_state *state = &run->state;
	plateau_evaluated(&state->plateau, &run->recipe->schedule, state->eval_loss,
			  state->eval_top1);
	return r ? r : evaluate_keep_best(run);
}

/*
 * Checkpoints of older versions have the normalisation only in their recipe, if it was set there.
 */
static void recall_normalisation(struct weights_metadata *metadata, const struct recipe_data *then)
{
	if (metadata->normalised || metadata->named || then->mean.count != 3 ||
	    then->std.count != 3)
		return;
	memcpy(metadata->mean, then->mean.value, sizeof(metadata->mean));
	memcpy(metadata->std, then->std.value, sizeof(metadata->std));
}

int run_find_weights(struct run *run)
{
	char error[CHECKPOINT_ERROR_MAX];
	const char *file = run->checkpoint ? run->checkpoint->path : run->recipe->model.pretrained;
	if (!*run->recipe->data.val)
		return run_fail(run, -EINVAL,
				"--evaluate: data.val is not set: it names the packed dataset to "
				"evaluate on");
	if (!*file)
		return run_fail(run, -EINVAL,
				"--evaluate: whose weights? model.pretrained=FILE takes those of a "
				"file, --resume those of a checkpoint");
	int r = weights_read(file, &run->weights, error);
	if (r)
		return run_fail(run, r, "%s%s", run->checkpoint ? "" : "model.pretrained: ", error);
	if (!run->weights.classes)
		return run_fail(run, -EINVAL,
				"--evaluate: %s has no last layer, fc.weight: fine-tune it first",
				file);
	if (run->checkpoint)
		recall_normalisation(&run->weights, &run->checkpoint->recipe.data);
	return 0;
}

int run_share_weights(struct run *run)
{
	struct weights_metadata shared = run->weights;
	int r = comm_broadcast(run->comm, &shared, sizeof(shared), 0);
	/* only rank 0 compares class names */
	shared.class_names = run->weights.class_names;
	run->weights = shared;
	return r ? run_fail(run, r, "%s", comm_error(run->comm)) : 0;
}

int run_evaluate_alone(struct run *run, FILE *file)
{
	const struct checkpoint_state *state = &run->state;
	char loss[RUN_LOSS_TEXT];
	int r = run->options.onnx ? run_refuse_ranks(run, "--onnx") : 0;
	if (!r)
		r = run_open_predictions(run);
	if (!r)
		r = run_evaluate(run);
	if (r == RUN_LOST) {
		run->agreed = true;
		return ranks_agree(run->comm, run->lost, run->error);
	}
	if (r == -EINTR)
		return run_fail_everywhere(run, r, "stopped by a signal");
	if (!r)
		r = run_write_predictions(run);
	if (!r)
		r = run_write_onnx(run);
	if (r || run->comm->rank)
		return r;
	run_loss_text(state->eval_loss, loss);
	fprintf(file, "{\"top1\": %.6g, \"top5\": %.6g, \"val_loss\": %s, \"val_samples\": %llu}\n",
		state->eval_top1, state->eval_top5, loss, (unsigned long long)state->eval_samples);
	return fflush(file)
		       ? run_fail(run, -errno, "the result cannot be written: %s", strerror(errno))
		       : 0;
}
