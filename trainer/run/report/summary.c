/* End of a run: summary.json and the last line of log.jsonl. */
#include "trainer/device/device.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

const char *run_precision(const struct run *run)
{
	enum device_precision precision = device_info(run->ctx.device)->precision;
	return precision == DEVICE_BF16 ? "bf16" : precision == DEVICE_FP16 ? "fp16" : "fp32";
}

void run_number_text(double number, int digits, char *ret_text)
{
	if (isfinite(number))
		snprintf(ret_text, RUN_NUMBER_TEXT, "%.*g", digits, number);
	else
		snprintf(ret_text, RUN_NUMBER_TEXT, "null");
}

struct summary {
	const struct run *run;
	const char *outcome; /* finished or stopped */
};

static void summary_print_evaluation(const struct run *run, FILE *file)
{
	const struct checkpoint_state *state = &run->state;
	const struct metrics *metrics = run_metrics(run);
	char text[RUN_NUMBER_TEXT];
	for (unsigned i = 0; i < metrics->count; i++) {
		run_number_text(state->eval_metric[i], 6, text);
		fprintf(file, "  \"%s\": %s,\n", metrics->metric[i].key, text);
	}
	run_number_text(state->eval_loss, RUN_LOSS_DIGITS, text);
	fprintf(file, "  \"val_loss\": %s,\n  \"val_samples\": %llu,\n", text,
		(unsigned long long)state->eval_samples);
	run_number_text(state->best_score, 6, text);
	fprintf(file, "  \"best_%s\": %s,\n  \"best_step\": %llu,\n", metrics->metric[0].key, text,
		(unsigned long long)state->best_step);
}

static int summary_print(const void *data, FILE *file)
{
	const struct summary *summary = data;
	const struct run *run = summary->run;
	const struct checkpoint_state *state = &run->state;
	double seconds = state->train_seconds;
	fprintf(file, "{\n  \"outcome\": \"%s\",\n  \"steps\": %llu,\n  \"epochs\": %.6g,\n",
		summary->outcome, (unsigned long long)state->step, run_epoch(run, state->step));
	if (state->eval_samples)
		summary_print_evaluation(run, file);
	fprintf(file,
		"  \"images\": %llu,\n  \"bad_samples\": %llu,\n  \"train_seconds\": %.3f,\n"
		"  \"wait_seconds\": %.3f,\n  \"images_per_second\": %.6g,\n"
		"  \"data_wait\": %.6g\n}\n",
		(unsigned long long)state->images, (unsigned long long)state->bad, seconds,
		state->wait_seconds, seconds > 0 ? (double)state->images / seconds : 0,
		seconds > 0 ? state->wait_seconds / seconds : 0);
	return ferror(file) ? -EIO : 0;
}

int run_end_line(struct run *run, const char *outcome)
{
	struct summary summary = {run, outcome};
	struct metrics_log *metrics = run->output.metrics;
	int r = output_write_text(&run->output, "summary.json", summary_print, &summary);
	if (r < 0)
		return r;
	metrics_log_begin(metrics, "end", run->state.step);
	metrics_log_text(metrics, "outcome", outcome);
	if (*run->early_stopping.reason)
		metrics_log_text(metrics, "why", run->early_stopping.reason);
	return output_end_line(&run->output);
}
