/* Output of a run: log.jsonl, progress, and summary.json. */
#include "trainer/algorithms/optim.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

double run_epoch(const struct run *run, uint64_t step)
{
	return step ? (double)step / (double)run->state.batches_per_epoch : 0;
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* Model FLOPs utilisation: share of the devices' peak arithmetic; 0 if unknown. */
static double console_log_mfu(const struct run *run, double images_per_second)
{
	struct device_graph_info graph;
	device_graph_info(run->train.graph, &graph);
	double flops = (graph.flops_forward + graph.flops_backward) / run->train.count *
		       optim_passes(run->recipe);
	return share(flops * images_per_second,
		     device_info(run->device)->peak_flops * run->comm->world);
}

static void console_log_write_mfu(struct run *run, double images_per_second)
{
	double used = console_log_mfu(run, images_per_second);
	if (used > 0)
		metrics_log_number(run->metrics, "mfu", used);
}

static void console_log_write_step(struct run *run, const struct run_pending *pending,
				   const struct device_results *results, double seconds,
				   double wait)
{
	const struct checkpoint_state *state = &run->state;
	struct metrics_log *metrics = run->metrics;
	metrics_log_begin(metrics, "step", pending->step);
	metrics_log_number(metrics, "epoch", run_epoch(run, pending->step));
	metrics_log_exact(metrics, "loss", results->loss);
	metrics_log_exact(metrics, "loss_mean",
			  share(state->interval.loss, (double)state->interval.samples));
	metrics_log_number(metrics, "top1",
			   share((double)state->interval.top1, (double)state->interval.samples));
	metrics_log_number(metrics, "lr", pending->lr);
	metrics_log_number(metrics, "grad_norm", results->grad_norm);
	if (results->loss_scale != 1)
		metrics_log_number(metrics, "loss_scale", results->loss_scale);
	if (run->skipped)
		metrics_log_count(metrics, "skipped_updates", run->skipped);
	metrics_log_number(metrics, "images_per_second", run->rate);
	console_log_write_mfu(run, run->rate);
	metrics_log_number(metrics, "data_wait", share(wait, seconds));
	if (state->bad)
		metrics_log_count(metrics, "bad_samples", state->bad);
}

int run_step_line(struct run *run, const struct run_pending *pending,
		  const struct device_results *results)
{
	struct checkpoint_state *state = &run->state;
	double seconds = state->train_seconds - run->line_seconds,
	       wait = state->wait_seconds - run->line_wait;
	if (seconds > 0)
		run->rate = (double)(state->images - run->line_images) / seconds;
	if (run->metrics)
		console_log_write_step(run, pending, results, seconds, wait);
	state->interval = (struct checkpoint_totals){0};
	run->skipped = 0;
	run->line_seconds = state->train_seconds;
	run->line_wait = state->wait_seconds;
	run->line_images = state->images;
	return run->metrics ? run_end_line(run, run->metrics, "log.jsonl") : 0;
}

static void console_log_duration(double seconds, char text[16])
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
	if (!progress_due(&run->progress))
		return;
	double mean = share((double)state->images, state->train_seconds);
	double rate = run->rate > 0 ? run->rate : mean;
	double images = (double)(run->steps - state->step) * (double)run->recipe->data.batch_size;
	console_log_duration(share(images, rate), left);
	snprintf(text, sizeof(text),
		 "epoch %.2f/%.6g  loss %.4f  lr %.4g  %.0f images/s  data wait %.1f %%  ETA %s",
		 run_epoch(run, state->step), run->recipe->train.epochs, run->last_loss,
		 run->last_lr, rate, 100 * share(state->wait_seconds, state->train_seconds), left);
	progress_step(&run->progress, state->step, run->steps, text);
}

int run_epoch_line(struct run *run)
{
	struct checkpoint_state *state = &run->state;
	double n = (double)state->whole.samples;
	double rate = share((double)state->images, state->train_seconds);
	char used[32] = "";
	if (console_log_mfu(run, rate) > 0)
		snprintf(used, sizeof(used), "MFU %.1f %%  ", 100 * console_log_mfu(run, rate));
	progress_line(&run->progress,
		      "epoch %.6g  training: loss %.4f  top-1 %.2f %%  lr %.4g  %.0f images/s  "
		      "%sdata wait %.1f %%",
		      run_epoch(run, state->step), share(state->whole.loss, n),
		      100 * share((double)state->whole.top1, n), run->last_lr, rate, used,
		      100 * share(state->wait_seconds, state->train_seconds));
	run_hint_data_wait(run);
	struct metrics_log *metrics = run->metrics;
	if (metrics) {
		metrics_log_begin(metrics, "epoch", state->step);
		metrics_log_number(metrics, "epoch", run_epoch(run, state->step));
		metrics_log_exact(metrics, "loss", share(state->whole.loss, n));
		metrics_log_number(metrics, "top1", share((double)state->whole.top1, n));
		metrics_log_number(metrics, "top5", share((double)state->whole.top5, n));
		metrics_log_number(metrics, "train_seconds", state->train_seconds);
		metrics_log_number(metrics, "images_per_second", rate);
		console_log_write_mfu(run, rate);
		metrics_log_number(metrics, "data_wait",
				   share(state->wait_seconds, state->train_seconds));
		metrics_log_count(metrics, "bad_samples", state->bad);
	}
	state->whole = (struct checkpoint_totals){0};
	return metrics ? run_end_line(run, metrics, "log.jsonl") : 0;
}

const char *run_precision(const struct run *run)
{
	enum device_precision precision = device_info(run->device)->precision;
	return precision == DEVICE_BF16 ? "bf16" : precision == DEVICE_FP16 ? "fp16" : "fp32";
}

void run_loss_text(double loss, char *ret_text)
{
	snprintf(ret_text, RUN_LOSS_TEXT, isfinite(loss) ? "%.9g" : "null", loss);
}

int run_print_summary(const struct run *run, FILE *file)
{
	const struct checkpoint_state *state = &run->state;
	char loss[RUN_LOSS_TEXT];
	run_loss_text(state->eval_loss, loss);
	fprintf(file, "{\n  \"outcome\": \"%s\",\n  \"steps\": %llu,\n  \"epochs\": %.6g,\n",
		run->outcome, (unsigned long long)state->step, run_epoch(run, state->step));
	if (state->eval_samples)
		fprintf(file,
			"  \"top1\": %.6g,\n  \"top5\": %.6g,\n  \"val_loss\": %s,\n  "
			"\"val_samples\": %llu,\n"
			"  \"best_top1\": %.6g,\n  \"best_step\": %llu,\n",
			state->eval_top1, state->eval_top5, loss,
			(unsigned long long)state->eval_samples, state->best_top1,
			(unsigned long long)state->best_step);
	fprintf(file,
		"  \"images\": %llu,\n  \"bad_samples\": %llu,\n  \"train_seconds\": %.3f,\n  "
		"\"wait_seconds\": %.3f,\n"
		"  \"images_per_second\": %.6g,\n  \"data_wait\": %.6g\n}\n",
		(unsigned long long)state->images, (unsigned long long)state->bad,
		state->train_seconds, state->wait_seconds,
		share((double)state->images, state->train_seconds),
		share(state->wait_seconds, state->train_seconds));
	return ferror(file) ? -EIO : 0;
}
