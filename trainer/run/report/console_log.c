/* Lines of log.jsonl and of the terminal: start of the run, steps and epochs. */
#include "trainer/run/run_internal.h"

#include "trainer/algorithms/optim.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/steps.h"

#include <stdio.h>

double run_epoch(const struct run *run, uint64_t step)
{
	return step ? (double)step / (double)run->state.batches_per_epoch : 0;
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* Model FLOPs utilisation: FLOPS of the run as a fraction of the devices' peak; 0 if unknown. */
static double log_mfu(const struct run *run, double images_per_second)
{
	struct device_graph_info graph;
	device_graph_info(run->network.train.graph, &graph);
	double flops = (graph.flops_forward + graph.flops_backward) / run->network.train.count *
		       optim_passes(run->ctx.recipe);
	return share(flops * images_per_second,
		     device_info(run->ctx.device)->peak_flops * run->ctx.comm->world);
}

static void log_write_mfu(struct run *run, double images_per_second)
{
	double used = log_mfu(run, images_per_second);
	if (used > 0)
		metrics_log_number(run->output.metrics, "mfu", used);
}

int run_start_line(struct run *run)
{
	const struct recipe *recipe = run->ctx.recipe;
	const struct device_info *device = device_info(run->ctx.device);
	struct metrics_log *metrics = run->output.metrics;
	char dataset[UUID_TEXT];
	struct device_graph_info graph;
	device_graph_info(run->network.train.graph, &graph);
	metrics_log_begin(metrics, run->resumed ? "resume" : "start", run->state.step);
	metrics_log_text(metrics, "model", recipe->model.name);
	metrics_log_text(metrics, "device", device->name);
	metrics_log_text(metrics, "precision", run_precision(run));
	metrics_log_text(metrics, "batches", run->feeds.staged ? "staged" : "direct");
	metrics_log_count(metrics, "fallbacks", graph.fallbacks);
	metrics_log_count(metrics, "threads", device->threads);
	metrics_log_count(metrics, "ranks", run->ctx.comm->world);
	uuid_write(run->data.train_uuid.bytes, dataset);
	metrics_log_text(metrics, "dataset", dataset);
	metrics_log_count(metrics, "samples", run->data.samples);
	metrics_log_count(metrics, "classes", run->data.classes);
	metrics_log_count(metrics, "batch_size", recipe->data.batch_size);
	metrics_log_count(metrics, "accumulate", recipe->train.accumulate);
	metrics_log_count(metrics, "batches_per_epoch", run->state.batches_per_epoch);
	metrics_log_count(metrics, "steps", run->length.steps);
	metrics_log_count(metrics, "seed", recipe->train.seed);
	return output_end_line(&run->output);
}

/* Bytes that this rank sent per step since the last line; nothing for a single rank. */
static void log_write_sent(struct run *run)
{
	struct comm_sent sent = meter_take_sent(&run->meter);
	if (run->ctx.comm->world == 1)
		return;
	metrics_log_count(run->output.metrics, "sent_sums", sent.sums);
	metrics_log_count(run->output.metrics, "sent_reduce_scatters", sent.reduce_scatters);
	metrics_log_count(run->output.metrics, "sent_all_gathers", sent.all_gathers);
}

static void log_write_step(struct run *run, const struct pending_step *pending,
			   const struct device_results *results, double seconds, double wait)
{
	const struct checkpoint_state *state = &run->state;
	struct metrics_log *metrics = run->output.metrics;
	metrics_log_begin(metrics, "step", pending->step);
	metrics_log_number(metrics, "epoch", run_epoch(run, pending->step));
	metrics_log_exact(metrics, "loss", results->loss);
	metrics_log_exact(metrics, "loss_mean",
			  share(state->interval.loss, (double)state->interval.samples));
	if (!run->data.target.outputs)
		metrics_log_number(
			metrics, "top1",
			share((double)state->interval.top1, (double)state->interval.samples));
	metrics_log_number(metrics, "lr", pending->lr);
	metrics_log_number(metrics, "grad_norm", results->grad_norm);
	if (results->loss_scale != 1)
		metrics_log_number(metrics, "loss_scale", results->loss_scale);
	if (run->meter.skipped)
		metrics_log_count(metrics, "skipped_updates", run->meter.skipped);
	metrics_log_number(metrics, "images_per_second", run->meter.rate);
	log_write_mfu(run, run->meter.rate);
	metrics_log_number(metrics, "data_wait", share(wait, seconds));
	if (state->bad)
		metrics_log_count(metrics, "bad_samples", state->bad);
	log_write_sent(run);
}

int run_step_line(struct run *run, const struct pending_step *pending,
		  const struct device_results *results)
{
	struct checkpoint_state *state = &run->state;
	double seconds, wait;
	int r = 0;
	meter_line(&run->meter, state, &seconds, &wait);
	if (run->output.metrics) {
		log_write_step(run, pending, results, seconds, wait);
		r = output_end_line(&run->output);
	}
	state->interval = (struct checkpoint_totals){0};
	meter_reset_skipped(&run->meter);
	return r;
}

static void log_duration(double seconds, char text[16])
{
	unsigned s = seconds > 0 && seconds < 3.5e6 ? (unsigned)seconds : 0;
	if (s >= 3600)
		snprintf(text, 16, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, 16, "%u:%02u", s / 60, s % 60);
}

void run_draw_progress(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	char text[256], left[16];
	if (!progress_due(&run->ctx.progress))
		return;
	double mean = share((double)state->images, state->train_seconds);
	double rate = run->meter.rate > 0 ? run->meter.rate : mean;
	double images = (double)(run->length.steps - state->step) *
			(double)run->ctx.recipe->data.batch_size;
	log_duration(share(images, rate), left);
	snprintf(text, sizeof(text),
		 "epoch %.2f/%.6g  loss %.4f  lr %.4g  %.0f images/s  data wait %.1f %%  ETA %s",
		 run_epoch(run, state->step), run->ctx.recipe->train.epochs, run->meter.last_loss,
		 run->meter.last_lr, rate, 100 * share(state->wait_seconds, state->train_seconds),
		 left);
	progress_step(&run->ctx.progress, state->step, run->length.steps, text);
}

static int log_write_epoch(struct run *run, double rate)
{
	const struct checkpoint_state *state = &run->state;
	struct metrics_log *metrics = run->output.metrics;
	double n = (double)state->whole.samples;
	metrics_log_begin(metrics, "epoch", state->step);
	metrics_log_number(metrics, "epoch", run_epoch(run, state->step));
	metrics_log_exact(metrics, "loss", share(state->whole.loss, n));
	if (!run->data.target.outputs) {
		metrics_log_number(metrics, "top1", share((double)state->whole.top1, n));
		metrics_log_number(metrics, "top5", share((double)state->whole.top5, n));
	}
	metrics_log_number(metrics, "train_seconds", state->train_seconds);
	metrics_log_number(metrics, "images_per_second", rate);
	log_write_mfu(run, rate);
	metrics_log_number(metrics, "data_wait", share(state->wait_seconds, state->train_seconds));
	metrics_log_count(metrics, "bad_samples", state->bad);
	return output_end_line(&run->output);
}

int run_epoch_line(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	double n = (double)state->whole.samples;
	double rate = share((double)state->images, state->train_seconds);
	char used[32] = "", top1[32] = "";
	if (!run->data.target.outputs)
		snprintf(top1, sizeof(top1), "top-1 %.2f %%  ",
			 100 * share((double)state->whole.top1, n));
	if (log_mfu(run, rate) > 0)
		snprintf(used, sizeof(used), "MFU %.1f %%  ", 100 * log_mfu(run, rate));
	progress_line(&run->ctx.progress,
		      "epoch %.6g  training: loss %.4f  %slr %.4g  %.0f images/s  "
		      "%sdata wait %.1f %%",
		      run_epoch(run, state->step), share(state->whole.loss, n), top1,
		      run->meter.last_lr, rate, used,
		      100 * share(state->wait_seconds, state->train_seconds));
	run_hint_data_wait(run);
	int r = run->output.metrics ? log_write_epoch(run, rate) : 0;
	state->whole = (struct checkpoint_totals){0};
	return r;
}
