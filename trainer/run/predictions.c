/*
 * --evaluate --predictions: records the prediction for each image, accuracy by class, and the
 * confusion matrix. Keeps all samples of data.val in host memory; logits arrive batch by batch.
 */
#include "trainer/checkpoint/class_names.h"
#include "trainer/log/confusion.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

struct prediction {
	uint64_t sample;
	int32_t label;            /* -1 for none */
	uint32_t predicted, rank; /* rank of the label's logit, from 0 */
	float probability, label_probability;
	bool substituted; /* the image was bad; another one, or none, replaced it */
};

struct predictions {
	struct prediction *of;
	size_t count, capacity;
};

/* Statistics of a class. */
struct prediction_class {
	uint64_t samples, predicted, correct;
};

/* Everything to be written, derived from the complete predictions. */
struct prediction_report {
	const struct predictions *predictions;
	const struct run *run;
	struct prediction_class *classes;
	struct confusion_cell *cells; /* sorted by label, then predicted */
	struct confusion confusion;
};

int run_open_predictions(struct run *run)
{
	if (!run->options.predictions)
		return 0;
	int r = run_refuse_ranks(run, "--predictions");
	if (r)
		return r;
	run->predictions = calloc(1, sizeof(*run->predictions));
	return run->predictions ? 0 : run_fail(run, -ENOMEM, "out of memory");
}

void run_close_predictions(struct run *run)
{
	if (run->predictions)
		free(run->predictions->of);
	free(run->predictions);
	run->predictions = NULL;
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

int run_add_predictions(struct run *run, const struct feed_batch *batch, const float *logits)
{
	struct predictions *all = run->predictions;
	uint32_t classes = run->data.classes;
	double scale = model_logit_scale(run->model);
	if (all->count + batch->count > all->capacity) {
		size_t capacity = 2 * all->capacity + batch->count;
		struct prediction *of = realloc(all->of, capacity * sizeof(*of));
		if (!of)
			return run_fail(run, -ENOMEM, "--predictions: out of memory");
		all->of = of;
		all->capacity = capacity;
	}
	for (uint32_t i = 0; i < batch->count; i++) {
		const float *row = logits + (size_t)i * classes;
		struct prediction *prediction = &all->of[all->count++];
		/* read once: a feed's memory may change meanwhile */
		int32_t label = ((const volatile int32_t *)batch->labels)[i];
		*prediction = predict(row, classes, scale);
		prediction->sample = ((const volatile uint64_t *)batch->samples)[i];
		prediction->substituted =
			((const volatile uint8_t *)batch->flags)[i] & FEED_SAMPLE_SUBSTITUTED;
		if (label < 0 || (uint32_t)label >= classes)
			continue;
		prediction->label = label;
		predict_label(prediction, row, classes, scale);
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

static void report_csv(const void *found, FILE *file)
{
	const struct predictions *all = ((const struct prediction_report *)found)->predictions;
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

static void report_json(const void *found, FILE *file)
{
	const struct prediction_report *report = found;
	const struct checkpoint_state *state = &report->run->state;
	size_t at = 0;
	json_t *json = json_object(), *classes = json_array();
	json_object_set_new(json, "samples", json_integer((json_int_t)state->eval_samples));
	json_object_set_new(json, "top1", json_real(state->eval_top1));
	json_object_set_new(json, "top5", json_real(state->eval_top5));
	json_object_set_new(json, "loss",
			    isfinite(state->eval_loss) ? json_real(state->eval_loss) : json_null());
	for (uint32_t i = 0; i < report->confusion.classes; i++)
		json_array_append_new(classes, report_class(report, i, &at));
	json_object_set_new(json, "classes", classes);
	json_dumpf(json, file, JSON_INDENT(1));
	fputc('\n', file);
	json_decref(json);
}

static void report_svg(const void *found, FILE *file)
{
	confusion_draw(&((const struct prediction_report *)found)->confusion, file);
}

static int report_put(struct run *run, const struct prediction_report *report)
{
	static const struct {
		const char *ending;
		void (*write)(const void *found, FILE *file);
	} files[] = {{".csv", report_csv}, {".json", report_json}, {".svg", report_svg}};
	int r = 0;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !r; i++)
		r = run_write_result(run, "--predictions", run->options.predictions,
				     files[i].ending, files[i].write, report);
	return r;
}

int run_write_predictions(struct run *run)
{
	struct predictions *all = run->predictions;
	if (!all)
		return 0;
	struct class_names names = {0};
	if (run->data.class_names)
		class_names_read(run->data.class_names, &names);
	struct prediction_report report = {
		.predictions = all,
		.run = run,
		.classes = calloc(run->data.classes, sizeof(*report.classes)),
		.cells = calloc(all->count + 1, sizeof(*report.cells)),
		.confusion = {.classes = run->data.classes},
	};
	if (names.count == run->data.classes)
		report.confusion.names = names.name;
	else if (run->weights.class_names.count == run->data.classes)
		report.confusion.names = run->weights.class_names.name;
	qsort(all->of, all->count, sizeof(*all->of), by_sample);
	int r = report.classes && report.cells ? 0 : run_fail(run, -ENOMEM, "out of memory");
	if (!r) {
		report_count(&report);
		r = report_put(run, &report);
	}
	free(report.classes);
	free(report.cells);
	class_names_deinit(&names);
	return r;
}
