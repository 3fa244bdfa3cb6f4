/* --evaluate: evaluates the weights of a checkpoint or a weights file, without training. */
#include "trainer/run/evaluate/predictions.h"
#include "trainer/run/output/result_files.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <string.h>

int run_find_weights(struct run *run)
{
	struct run_context *ctx = &run->ctx;
	struct weights_metadata *weights = &run->evaluation.weights;
	const struct checkpoint *checkpoint = run->checkpoint;
	const char *file = checkpoint ? checkpoint->path : ctx->recipe->model.pretrained;
	char error[CHECKPOINT_ERROR_MAX];
	if (!*ctx->recipe->data.val)
		return run_fail(ctx, -EINVAL,
				"--evaluate: data.val is not set: set it to the packed dataset to "
				"evaluate on");
	if (!*file)
		return run_fail(ctx, -EINVAL,
				"--evaluate: no weights are given: set model.pretrained=FILE, or "
				"use --resume for those of a checkpoint");
	int r = weights_read(file, weights, error);
	if (r < 0)
		return run_fail(ctx, r, "%s%s", checkpoint ? "" : "model.pretrained: ", error);
	if (!weights->classes)
		return run_fail(ctx, -EINVAL,
				"--evaluate: %s has no last layer, fc.weight: fine-tune it first",
				file);
	if (checkpoint)
		weights_complete_normalisation(weights, &checkpoint->recipe.data);
	return 0;
}

static int alone_open_predictions(struct run *run)
{
	if (!run->ctx.options.predictions)
		return 0;
	int r = run_refuse_ranks(&run->ctx, "--predictions");
	if (r < 0)
		return r;
	if (run->data.target.outputs)
		return 0; /* run->evaluation.scores has them */
	r = predictions_new(&run->evaluation.predictions, run->data.classes,
			    model_logit_scale(run->network.model));
	return r < 0 ? run_fail(&run->ctx, r, "out of memory") : 0;
}

static void alone_print_scores(const void *scores, FILE *file)
{
	target_scores_print(scores, file);
}

/*
 * With data.target, writes targets and outputs of each sample. Else writes the predictions with the
 * class names of data.train, else of the weights. Writes no names
 * if there are not as many as classes.
 */
static int alone_write_predictions(struct run *run)
{
	const struct class_names *weights = &run->evaluation.weights.class_names;
	struct class_names train = {0};
	const char *const *names = NULL;
	if (run->ctx.options.predictions && run->data.target.outputs)
		return result_file_write(&run->ctx, "--predictions", run->ctx.options.predictions,
					 ".csv", alone_print_scores, &run->evaluation.scores);
	if (!run->evaluation.predictions)
		return 0;
	if (run->data.class_names)
		class_names_read(run->data.class_names, &train);
	if (train.count == run->data.classes)
		names = train.name;
	else if (weights->count == run->data.classes)
		names = weights->name;
	int r = predictions_write(run->evaluation.predictions, &run->ctx, &run->state, names);
	class_names_deinit(&train);
	return r;
}

/* Prints the metrics of each output, in the order of the classes or numbers. */
static void alone_print_outputs(const struct run *run, FILE *file)
{
	const struct target_scores *scores = &run->evaluation.scores;
	const struct metrics *metrics = run_metrics(run);
	char text[RUN_NUMBER_TEXT];
	if (run->data.target.kind == TARGET_MULTILABEL) {
		fputs(", \"average_precision\": [", file);
		for (uint32_t k = 0; k < scores->outputs; k++) {
			run_number_text(scores->each[k][0], 6, text);
			fprintf(file, "%s%s", k ? ", " : "", text);
		}
		fputc(']', file);
		return;
	}
	fputs(", \"outputs\": [", file);
	for (uint32_t k = 0; k < scores->outputs; k++) {
		fputs(k ? ", {" : "{", file);
		for (unsigned i = 0; i < metrics->count; i++) {
			run_number_text(scores->each[k][i], 6, text);
			fprintf(file, "%s\"%s\": %s", i ? ", " : "", metrics->metric[i].key, text);
		}
		fputc('}', file);
	}
	fputc(']', file);
}

static int alone_print(struct run *run, FILE *file)
{
	const struct checkpoint_state *state = &run->state;
	const struct metrics *metrics = run_metrics(run);
	char text[RUN_NUMBER_TEXT];
	fputc('{', file);
	for (unsigned i = 0; i < metrics->count; i++) {
		run_number_text(state->eval_metric[i], 6, text);
		fprintf(file, "\"%s\": %s, ", metrics->metric[i].key, text);
	}
	run_number_text(state->eval_loss, RUN_LOSS_DIGITS, text);
	fprintf(file, "\"val_loss\": %s, \"val_samples\": %llu", text,
		(unsigned long long)state->eval_samples);
	if (run->data.target.outputs)
		alone_print_outputs(run, file);
	fputs("}\n", file);
	if (fflush(file))
		return run_fail(&run->ctx, -errno, "cannot write the result: %s", strerror(errno));
	return 0;
}

int run_evaluate_alone(struct run *run, FILE *file)
{
	struct run_context *ctx = &run->ctx;
	int r = ctx->options.onnx ? run_refuse_ranks(ctx, "--onnx") : 0;
	if (r < 0)
		return r;
	r = alone_open_predictions(run);
	if (r < 0)
		return r;
	r = run_evaluate(run);
	if (r == RUN_LOST)
		return run_report_lost(ctx);
	if (r == -EINTR)
		return run_fail_everywhere(ctx, r, "stopped by a signal");
	if (r < 0)
		return r;
	r = alone_write_predictions(run);
	if (r < 0)
		return r;
	r = run_write_onnx(run);
	if (r < 0 || ctx->comm->rank)
		return r;
	return alone_print(run, file);
}
