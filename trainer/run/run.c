#include "trainer/run/run.h"
#include "trainer/algorithms/colout.h"
#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/progressive.h"
#include "trainer/algorithms/select.h"
#include "trainer/algorithms/swa.h"

#include "format/base/text/printable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *run_device_text(const struct run *run, int code)
{
	const char *text = device_error(run->device);
	return *text ? text : strerror(-code);
}

void run_add(struct checkpoint_totals *totals, const struct device_results *results)
{
	totals->loss += results->loss * results->samples;
	totals->samples += results->samples;
	totals->top1 += results->top1;
	totals->top5 += results->top5;
	totals->steps++;
}

int run_sum(struct run *run, double *values, size_t count)
{
	int r = comm_sum(run->comm, values, count, COMM_DOUBLE);
	return r ? run_fail(run, r, "%s", comm_error(run->comm)) : 0;
}

/* ---- graphs ---- */

/*
 * Reports planning problems, once: failures, and fusion patterns that run unfused for lack of a
 * plan.
 */
static void run_report_planning(struct run *run, enum device_mode mode,
				const struct run_graph *slot)
{
	struct device_graph_info info;
	device_graph_info(slot->graph, &info);
	if (*info.warning && !run->warned)
		progress_line(&run->progress, "device: %s", info.warning);
	run->warned = run->warned || *info.warning;
	for (const char *line = info.fallback_log; *line;) {
		size_t length = strcspn(line, "\n");
		progress_line(&run->progress, "%s, %u x %u: %.*s",
			      mode == DEVICE_TRAIN ? "training" : "evaluation", slot->width,
			      slot->height, (int)length, line);
		line += length + (line[length] == '\n');
	}
}

/* Suggestion for a graph that does not fit, appended to the device's text. */
static const char *run_memory_remedy(const struct run *run, enum device_mode mode, int code)
{
	bool evaluates = mode == DEVICE_EVAL && run->recipe->data.val_batch_size;
	if (code != -ENOMEM || (run->auto_accum && !evaluates) || run->options.find_batch_size)
		return "";
	return mode == DEVICE_TRAIN
		       ? ". train.accumulate=auto computes each batch in as few micro-batches as "
			 "fit, one after the other"
		       : ". A smaller data.val_batch_size evaluates fewer images at a time";
}

static void run_drop_graph(struct run_graph *slot)
{
	device_graph_free(slot->graph);
	*slot = (struct run_graph){0};
}

bool run_resamples(const struct run *run)
{
	return mix_is_on(&run->recipe->train) || run->recipe->data.colout > 0 ||
	       progressive_is_on(&run->recipe->data);
}

static int run_graph_in(struct run *run, struct run_graph *slot, enum device_mode mode,
			uint32_t count, uint32_t height, uint32_t width)
{
	if (slot->graph && slot->count == count && slot->height == height && slot->width == width)
		return 0;
	uint32_t side = height < width ? height : width;
	if (side < model_side_min(run->model))
		return run_fail(
			run, -EINVAL,
			"images of %u x %u are too small for model.name = %s, which needs %u",
			width, height, run->recipe->model.name, model_side_min(run->model));
	run_drop_graph(slot);
	*slot = (struct run_graph){.count = count, .height = height, .width = width};
	struct device_graph_options options = {.mode = mode,
					       .recompute = (uint32_t)run->recipe->train.recompute};
	int r = device_graph_new(run->params, &options, &slot->graph);
	if (r)
		return run_fail(run, r, "graph: %s", device_error(run->device));
	struct model_input input = {
		.count = count,
		.height = height,
		.width = width,
	};
	struct loss loss;
	loss_of(&run->recipe->train, mode, run->class_weights, &loss);
	input.loss = loss.spec;
	input.resamples = mode == DEVICE_TRAIN && run_resamples(run);
	memcpy(input.mean, run->data.mean, sizeof(input.mean));
	memcpy(input.std, run->data.std, sizeof(input.std));
	model_record(run->model, slot->graph, &input);
	char error[DEVICE_ERROR_MAX] = "";
	r = device_graph_plan(slot->graph, error);
	if (r) {
		run_drop_graph(slot);
		return run_fail(
			run, r,
			"planning model.name = %s with model.width = %g for %u image%s of %u x "
			"%u: %s%s",
			run->recipe->model.name, run->recipe->model.width, count,
			count == 1 ? "" : "s", width, height, error,
			run_memory_remedy(run, mode, r));
	}
	run_report_planning(run, mode, slot);
	return 0;
}

int run_graph_for(struct run *run, enum device_mode mode, uint32_t count, uint32_t height,
		  uint32_t width)
{
	return run_graph_in(run, mode == DEVICE_TRAIN ? &run->train : &run->eval, mode, count,
			    height, width);
}

static void run_drop_training(struct run *run)
{
	run_drop_graph(&run->train);
	run_drop_graph(&run->selected_train);
	run->selected.ticket = 0;
}

static int run_thaw(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	struct device_params_state counters = {0};
	int r = run->freeze.thaw_count ? device_params_get_state(run->params, &counters) : 0;
	if (r)
		return run_fail(run, r, "state of the device: %s", run_device_text(run, r));
	bool due = freeze_is_due(&run->freeze, state->step, state->batches_per_epoch);
	freeze_thaw(&run->freeze, run->params, state->step, state->batches_per_epoch,
		    counters.updates, state->begun);
	if (due)
		progress_line(&run->progress,
			      "step %llu: what train.freeze held for %g epochs is trained",
			      (unsigned long long)state->step,
			      run->freeze.thaws[run->freeze.thawed - 1]);
	return 0;
}

/* Layers that train.freeze_level freezes at this step. */
static uint32_t run_freeze_depth(const struct run *run)
{
	return freeze_layers_depth(&run->recipe->train, run->state.step, run->steps,
				   run->state.batches_per_epoch, run->freeze_layers.count);
}

static void run_freeze_layers(struct run *run)
{
	uint32_t depth = run_freeze_depth(run);
	if (depth <= run->freeze_layers.depth)
		return;
	freeze_layers_apply(&run->freeze_layers, run->params, depth);
	progress_line(&run->progress, "step %llu: the first %u of %u layers learn no more",
		      (unsigned long long)run->state.step, depth, run->freeze_layers.count);
}

bool run_freeze_is_due(const struct run *run)
{
	return freeze_is_due(&run->freeze, run->state.step, run->state.batches_per_epoch) ||
	       run_freeze_depth(run) > run->freeze_layers.depth;
}

int run_move_freeze(struct run *run)
{
	bool due = run_freeze_is_due(run);
	int r = run_thaw(run);
	if (r)
		return r;
	run_freeze_layers(run);
	if (due)
		run_drop_training(run);
	return 0;
}

/* Image size of the next step: the batch's, after ColOut and progressive resizing. */
static void run_train_size(const struct run *run, uint32_t *ret_height, uint32_t *ret_width)
{
	double share = run->recipe->data.colout;
	*ret_height = run->batch.height;
	*ret_width = run->batch.width;
	progressive_size(&run->recipe->data, run->state.step, run->steps, ret_height, ret_width);
	*ret_height = colout_kept(share, *ret_height);
	*ret_width = colout_kept(share, *ret_width);
}

static int run_plan_training(struct run *run)
{
	uint32_t height, width;
	run_train_size(run, &height, &width);
	/* drop the old graphs first, to make room for both new ones */
	run_drop_training(run);
	int r = run_graph_for(run, DEVICE_TRAIN, data_micro_share(&run->data), height, width);
	if (!r && select_is_on(&run->recipe->train))
		r = run_graph_in(run, &run->selected_train, DEVICE_TRAIN,
				 select_count(&run->recipe->train, data_train_share(&run->data)) /
					 recipe_accumulate(run->recipe),
				 height, width);
	if (!r)
		r = run_plan_teacher(run);
	if (!r && run->auto_accum)
		r = run_warm_up(run);
	if (r) {
		run_drop_training(run);
		run_drop_teacher(run);
	}
	return r;
}

bool run_has_train_graph(const struct run *run)
{
	const struct run_graph *train = &run->train;
	uint32_t height, width;
	run_train_size(run, &height, &width);
	return train->graph && train->count == data_micro_share(&run->data) &&
	       train->height == height && train->width == width;
}

int run_train_graph(struct run *run)
{
	return run_has_train_graph(run) ? 0 : run_plan_to_fit(run, run_plan_training);
}

enum device_slot run_weights(const struct run *run)
{
	const struct recipe_train *recipe = &run->recipe->train;
	if (swa_begun(recipe, run->state.step, run->state.batches_per_epoch))
		return DEVICE_SWA;
	return recipe->ema > 0 && run->state.step ? DEVICE_EMA : DEVICE_VALUE;
}

int run_device_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		     const char *pipeline_key, struct device_batch *ret_batch)
{
	if (batch->layout != FEED_NHWC)
		return run_fail(
			run, -EINVAL,
			"%s delivers planes (nchw): the trainer wants nhwc, so leave layout() out",
			pipeline_key);
	if (batch->channels < 3)
		return run_fail(run, -EINVAL, "%s delivers %u channels: expected 3 or 4",
				pipeline_key, batch->channels);
	*ret_batch = (struct device_batch){
		.images = batch->images,
		.labels = batch->labels,
		.count = batch->count,
		.channels = batch->channels,
		.height = batch->height,
		.width = batch->width,
		.element = (enum device_element)batch->element,
	};
	if (feed && feed->deferred) {
		ret_batch->deferred = feed->deferred;
		ret_batch->delivered_height = feed->delivered_height;
		ret_batch->delivered_width = feed->delivered_width;
	}
	return 0;
}

/* ---- feeds ---- */

static void run_fall_back_to_staging(struct run *run, const char *why)
{
	run->staged = true;
	run->data.writable = false;
	progress_line(&run->progress, "batches are copied twice on their way to the device: %s",
		      why);
}

/* Returns 0, even if the device refuses the memory, or DEVICE_WANTS_WRITABLE. */
static int run_register_host(struct run *run, struct run_feed *feed)
{
	struct feed_info info = {.size = sizeof(info)};
	int r = feed_info(feed->feed, &info);
	feed->reconnects = info.reconnects;
	if (!r)
		r = device_register_host(run->device, info.memory, info.memory_size,
					 run->data.writable);
	if (!r || r == DEVICE_STAGED) {
		feed->memory = info.memory;
		feed_keep_memory(feed->feed, info.memory);
	}
	if (!r || r == DEVICE_WANTS_WRITABLE)
		return r;
	run_fall_back_to_staging(run, run_device_text(run, r));
	return 0;
}

/* Waits for copies from its memory; held batches stay. */
static void run_unregister_host(struct run *run, struct run_feed *feed)
{
	if (feed->memory) {
		device_unregister_host(run->device, feed->memory);
		feed_drop_memory(feed->feed, feed->memory);
	}
	feed->memory = NULL;
}

static int run_note_reconnect(struct run *run, struct run_feed *feed)
{
	const char *text = feed_reconnect_text(feed->feed);
	run_unregister_host(run, feed);
	int r = run->staged ? 0 : run_register_host(run, feed);
	if (r == DEVICE_WANTS_WRITABLE)
		run_fall_back_to_staging(run, device_error(run->device));
	progress_line(&run->progress, "%s", text);
	if (!run->metrics)
		return 0;
	/* Lines of pending steps come after this one. */
	metrics_log_begin(run->metrics, "reconnect",
			  run->pending_count ? run->pending[0].step - 1 : run->state.step);
	metrics_log_text(run->metrics, "text", text);
	return run_end_line(run, run->metrics, "log.jsonl");
}

int run_next_batch(struct run *run, struct run_feed *feed, struct feed_batch *batch,
		   double *wait_seconds, char *error)
{
	uint64_t begin = run_span_begin(run);
	int r = data_next(&run->data, feed->feed, run->options.stop, batch, wait_seconds, error);
	run_span_end(run, begin, "wait for data");
	if (!r)
		r = run_take_deferred(run, feed, batch, error);
	if (r || batch->reconnects == feed->reconnects)
		return r;
	r = run_note_reconnect(run, feed);
	feed->reconnects = batch->reconnects;
	if (r)
		snprintf(error, DATA_ERROR_MAX, "%.*s", DATA_ERROR_MAX - 1, run->error);
	return r;
}

/*
 * Reopens a feed whose ring the device cannot register, mapped writable if the daemon permits it.
 */
static int run_open_again(struct run *run, enum data_part part, uint64_t epoch, uint64_t batch,
			  struct run_feed *feed, char *error)
{
	progress_line(&run->progress, "%s: asking the daemon for memory to map writable",
		      device_error(run->device));
	feed_close(feed->feed);
	run->data.writable = true;
	int r = data_feed(&run->data, part, epoch, batch, &feed->feed, error);
	if (!r)
		return run_register_host(run, feed);
	run_fall_back_to_staging(run, *error ? error : strerror(-r));
	return data_feed(&run->data, part, epoch, batch, &feed->feed, error);
}

int run_open_feed(struct run *run, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed)
{
	static const char *const keys[][2] = {{"data.train", "data.pipeline"},
					      {"data.train", "data.pipeline"},
					      {"data.val", "data.val_pipeline"}};
	static const char field[] = "pipeline: "; /* prefix of request errors */
	char error[DATA_ERROR_MAX];
	*ret_feed = (struct run_feed){0};
	int r = data_feed(&run->data, part, epoch, batch, &ret_feed->feed, error);
	if (!r && ret_feed->feed && !run->staged)
		r = run_register_host(run, ret_feed);
	if (r == DEVICE_WANTS_WRITABLE)
		r = run_open_again(run, part, epoch, batch, ret_feed, error);
	if (!r && data_defers(&run->data, part)) {
		ret_feed->deferred = calloc(data_train_share(&run->data), sizeof(struct deferred));
		if (!ret_feed->deferred)
			return run_fail(run, -ENOMEM, "out of memory");
	}
	if (!r)
		return 0;
	bool pipeline = strncmp(error, field, strlen(field)) == 0;
	/* older daemons lack deferral, others limit it */
	bool defers = data_defers(&run->data, part) &&
		      (strstr(error, FEED_DEFERRED) || strstr(error, "steps can be deferred"));
	return run_fail(run, r, "%s: %s%s", keys[part][pipeline],
			*error ? error + (pipeline ? strlen(field) : 0) : strerror(-r),
			defers ? "; or leave data.augment at daemon" : "");
}

void run_close_feed(struct run *run, const struct run_feed *feed)
{
	if (run->device)
		device_unregister_host(run->device, feed->memory);
	feed_close(feed->feed);
	free(feed->deferred);
}

/* ---- the whole ---- */

void run_close(struct run *run)
{
	progress_end(&run->progress);
	device_graph_free(run->train.graph);
	device_graph_free(run->selected_train.graph);
	device_graph_free(run->eval.graph);
	run_close_teacher(run);
	run_close_feed(run, &run->feed);
	freeze_deinit(&run->freeze);
	freeze_layers_deinit(&run->freeze_layers);
	model_free(run->model);
	device_params_free(run->params);
	device_close(run->device);
	data_close(&run->data);
	weights_deinit(&run->weights);
	run_close_predictions(run);
	for (size_t i = 0; i < LOG_SINK_COUNT; i++)
		if (run->sinks[i])
			run->sinks[i]->close(run->sinks[i]);
	metrics_log_close(run->metrics);
	metrics_log_close(run->samples);
	free(run->sample_ids);
	free(run->mix.blends);
	free(run->mix.labels2);
	free(run->mix.shares);
	free(run->picks);
	run_close_selection(run);
	free(run->class_weights);
}

void run_describe(const struct run *run, FILE *file)
{
	const struct device_info *device = device_info(run->device);
	struct device_graph_info graph;
	uint64_t parameters = 0, buffers = 0;
	for (size_t i = 0; i < device_params_count(run->params); i++) {
		const struct device_param *param = device_params_at(run->params, i);
		bool buffer = device_param_spec(param)->kind == DEVICE_BUFFER;
		*(buffer ? &buffers : &parameters) += device_param_elements(param);
	}
	device_graph_info(run->train.graph, &graph);
	const struct run_graph *train = &run->train;
	unsigned long long samples = run->data.samples, batches = run->state.batches_per_epoch;
	printable_line(file, "data     %s: %llu sample%s, %u class%s, %llu batch%s of %u per epoch",
		       run->recipe->data.train, samples, samples == 1 ? "" : "s", run->data.classes,
		       run->data.classes == 1 ? "" : "es", batches, batches == 1 ? "" : "es",
		       (unsigned)run->recipe->data.batch_size);
	fprintf(file, "model    %s: %.3f M parameters, input %u x %u, %u layers\n",
		run->recipe->model.name, (double)parameters * 1e-6, train->width, train->height,
		graph.layers);
	fprintf(file, "device   %s, %s", device->name, run_precision(run));
	if (device->threads)
		fprintf(file, ", %u thread%s", device->threads, device->threads == 1 ? "" : "s");
	fputc('\n', file);
	if (run->comm->world > 1)
		fprintf(file, "ranks    %u, each with %u image%s of every batch\n",
			run->comm->world, data_train_share(&run->data),
			data_train_share(&run->data) == 1 ? "" : "s");
	if (run->recipe->train.accumulate > 1)
		fprintf(file, "parts    %u micro-batches of %u%s\n", recipe_accumulate(run->recipe),
			train->count, run->auto_accum ? " (train.accumulate = auto)" : "");
	fprintf(file,
		"step     %.3f GFLOP per image forward and backward; %.1f MiB of activations and "
		"workspace, %.1f MiB if none were shared\n",
		(graph.flops_forward + graph.flops_backward) / train->count * 1e-9,
		(double)graph.arena_bytes / (1 << 20), (double)graph.unshared_bytes / (1 << 20));
	if (run->teacher.graph.graph) {
		struct device_graph_info teacher;
		device_graph_info(run->teacher.graph.graph, &teacher);
		fprintf(file,
			"teacher  %s: %.3f GFLOP per image; %.1f MiB of activations and "
			"workspace\n",
			run->teacher.recipe.model.name, teacher.flops_forward / train->count * 1e-9,
			(double)teacher.arena_bytes / (1 << 20));
	}
	printable_line(file, "run      %llu step%s (%.6g epoch%s) into %s",
		       (unsigned long long)run->steps, run->steps == 1 ? "" : "s",
		       run->recipe->train.epochs, run->recipe->train.epochs == 1 ? "" : "s",
		       run->options.output);
}
