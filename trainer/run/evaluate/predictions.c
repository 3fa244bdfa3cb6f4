#include "trainer/run/evaluate/predictions.h"

#include "trainer/log/confusion.h"
#include "trainer/run/output/result_files.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

struct prediction {
	uint64_t sample;
	int32_t label;            /* -1 for none */
	uint32_t predicted, rank; /* rank of the label among the logits, from 0 */
	float probability, label_probability;
	bool substituted; /* the sample was bad; another sample or none replaced it */
};

struct predictions {
	struct prediction *of;
	size_t count, capacity;
	uint32_t classes;
	double logit_scale;
};

/* Statistics of a class. */
struct prediction_class {
	uint64_t samples, predicted, correct;
};

/* All results to write, computed from the complete predictions. */
struct prediction_report {
	const struct predictions *predictions;
	const struct checkpoint_state *state;
	struct prediction_class *classes;
	struct confusion_cell *cells; /* sorted by label, then predicted */
	struct confusion confusion;
};

int predictions_new(struct predictions **ret_predictions, uint32_t classes, double logit_scale)
{
	struct predictions *predictions = calloc(1, sizeof(*predictions));
	if (!predictions)
		return -ENOMEM;
	predictions->classes = classes;
	predictions->logit_scale = logit_scale;
	*ret_predictions = predictions;
	return 0;
}

void predictions_free(struct predictions *predictions)
{
	if (!predictions)
		return;
	free(predictions->of);
	free(predictions);
}

static struct prediction predict(const float *logits, uint32_t classes, double scale)
{
	struct prediction prediction = {.label = -1};
	double sum = 0;
	for (uint32_t c = 1; c < classes; c++)
		if (logits[c] > logits[prediction.predicted])
			prediction.predicted = c;
	for (uint32_t c = 0; c < classes; c++)
		sum += exp(scale * (logits[c] - logits[prediction.predicted]));
	prediction.probability = (float)(1 / sum);
	return prediction;
}

static void predict_label(struct prediction *prediction, const float *logits, uint32_t classes,
			  double scale)
{
	uint32_t label = (uint32_t)prediction->label;
	float largest = logits[prediction->predicted];
	prediction->label_probability =
		prediction->probability * (float)exp(scale * (logits[label] - largest));
	for (uint32_t c = 0; c < classes; c++)
		prediction->rank +=
			logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
	if (!isfinite(logits[label]))
		prediction->rank = classes;
}

static int predictions_reserve(struct predictions *all, size_t count)
{
	if (all->count + count <= all->capacity)
		return 0;
	size_t capacity = 2 * all->capacity + count;
	struct prediction *of = realloc(all->of, capacity * sizeof(*of));
	if (!of)
		return -ENOMEM;
	all->of = of;
	all->capacity = capacity;
	return 0;
}

int predictions_add(struct predictions *all, const struct feed_batch *batch, const float *logits)
{
	uint32_t classes = all->classes;
	int r = predictions_reserve(all, batch->count);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < batch->count; i++) {
		const float *row = logits + (size_t)i * classes;
		struct prediction *prediction = &all->of[all->count++];
		/* read each label once: a feed's memory may change at any time */
		int32_t label = ((const volatile int32_t *)batch->labels)[i];
		*prediction = predict(row, classes, all->logit_scale);
		prediction->sample = ((const volatile uint64_t *)batch->samples)[i];
		prediction->substituted =
			((const volatile uint8_t *)batch->flags)[i] & FEED_SAMPLE_SUBSTITUTED;
		if (label < 0 || (uint32_t)label >= classes)
			continue;
		prediction->label = label;
		predict_label(prediction, row, classes, all->logit_scale);
	}
	return 0;
}

/* ---- the report ---- */

static int by_sample(const void *a, const void *b)
{
	uint64_t x = ((const struct prediction *)a)->sample,
		 y = ((const struct prediction *)b)->sample;
	return x < y ? -1 : x > y;
}

static int by_cell(const void *a, const void *b)
{
	const struct confusion_cell *x = a, *y = b;
	if (x->label != y->label)
		return x->label < y->label ? -1 : 1;
	return x->predicted < y->predicted ? -1 : x->predicted > y->predicted;
}

static void report_count(struct prediction_report *report)
{
	const struct predictions *all = report->predictions;
	size_t count = 0, merged = 0;
	for (size_t i = 0; i < all->count; i++) {
		const struct prediction *one = &all->of[i];
		if (one->label < 0)
			continue;
		report->classes[one->label].samples++;
		report->classes[one->predicted].predicted++;
		report->classes[one->label].correct += one->rank == 0;
		report->cells[count++] =
			(struct confusion_cell){(uint32_t)one->label, one->predicted, 1};
	}
	qsort(report->cells, count, sizeof(*report->cells), by_cell);
	for (size_t i = 0; i < count; i++) {
		if (merged && !by_cell(&report->cells[merged - 1], &report->cells[i]))
			report->cells[merged - 1].count++;
		else
			report->cells[merged++] = report->cells[i];
	}
	report->confusion.cells = report->cells;
	report->confusion.count = merged;
}

static void report_csv(const void *data, FILE *file)
{
	const struct predictions *all = ((const struct prediction_report *)data)->predictions;
	fputs("sample,label,predicted,probability,label_probability,rank,substituted\n", file);
	for (size_t i = 0; i < all->count; i++) {
		const struct prediction *one = &all->of[i];
		fprintf(file, "%llu,", (unsigned long long)one->sample);
		if (one->label >= 0)
			fprintf(file, "%d,%u,%.9g,%.9g,%u,", one->label, one->predicted,
				(double)one->probability, (double)one->label_probability,
				one->rank + 1);
		else
			fprintf(file, ",%u,%.9g,,,", one->predicted, (double)one->probability);
		fprintf(file, "%d\n", one->substituted);
	}
}

static json_t *share_of(uint64_t part, uint64_t whole)
{
	return whole ? json_real((double)part / (double)whole) : json_null();
}

static json_t *report_class(const struct prediction_report *report, uint32_t class, size_t *at)
{
	const struct prediction_class *one = &report->classes[class];
	const struct confusion *confusion = &report->confusion;
	json_t *json = json_object(), *taken = json_object();
	json_object_set_new(json, "class", json_integer(class));
	if (confusion->names)
		json_object_set_new(json, "name", json_string(confusion->names[class]));
	json_object_set_new(json, "samples", json_integer((json_int_t)one->samples));
	json_object_set_new(json, "predicted", json_integer((json_int_t)one->predicted));
	json_object_set_new(json, "correct", json_integer((json_int_t)one->correct));
	json_object_set_new(json, "precision", share_of(one->correct, one->predicted));
	json_object_set_new(json, "recall", share_of(one->correct, one->samples));
	json_object_set_new(json, "f1", share_of(2 * one->correct, one->predicted + one->samples));
	for (; *at < confusion->count && confusion->cells[*at].label == class; ++*at) {
		char key[16];
		snprintf(key, sizeof(key), "%u", confusion->cells[*at].predicted);
		json_object_set_new(taken, key,
				    json_integer((json_int_t)confusion->cells[*at].count));
	}
	json_object_set_new(json, "taken_for", taken);
	return json;
}

static void report_json(const void *data, FILE *file)
{
	const struct prediction_report *report = data;
	const struct checkpoint_state *state = report->state;
	size_t at = 0;
	json_t *json = json_object(), *classes = json_array();
	json_object_set_new(json, "samples", json_integer((json_int_t)state->eval_samples));
	json_object_set_new(json, "top1", json_real(state->eval_metric[0]));
	json_object_set_new(json, "top5", json_real(state->eval_metric[1]));
	json_object_set_new(json, "loss",
			    isfinite(state->eval_loss) ? json_real(state->eval_loss) : json_null());
	for (uint32_t i = 0; i < report->confusion.classes; i++)
		json_array_append_new(classes, report_class(report, i, &at));
	json_object_set_new(json, "classes", classes);
	json_dumpf(json, file, JSON_INDENT(1));
	fputc('\n', file);
	json_decref(json);
}

static void report_svg(const void *data, FILE *file)
{
	confusion_draw(&((const struct prediction_report *)data)->confusion, file);
}

static int report_write(const struct prediction_report *report, struct run_context *ctx)
{
	static const struct {
		const char *ending;
		void (*print)(const void *data, FILE *file);
	} files[] = {{".csv", report_csv}, {".json", report_json}, {".svg", report_svg}};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int r = result_file_write(ctx, "--predictions", ctx->options.predictions,
					  files[i].ending, files[i].print, report);
		if (r < 0)
			return r;
	}
	return 0;
}

int predictions_write(struct predictions *all, struct run_context *ctx,
		      const struct checkpoint_state *state, const char *const *class_names)
{
	struct prediction_report report = {
		.predictions = all,
		.state = state,
		.classes = calloc(all->classes, sizeof(*report.classes)),
		.cells = calloc(all->count + 1, sizeof(*report.cells)),
		.confusion = {.classes = all->classes, .names = class_names},
	};
	int r = -ENOMEM;
	if (report.classes && report.cells) {
		qsort(all->of, all->count, sizeof(*all->of), by_sample);
		report_count(&report);
		r = report_write(&report, ctx);
	} else {
		run_fail(ctx, r, "out of memory");
	}
	free(report.classes);
	free(report.cells);
	return r;
}
