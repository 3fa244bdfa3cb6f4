#include "trainer/run/evaluate/target_scores.h"

#include "trainer/algorithms/target_metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCORE_MAP, SCORE_F1 };
enum { SCORE_R2, SCORE_MAE, SCORE_RMSE };

const struct metrics metrics_of_labels = {
	2, {[SCORE_MAP] = {"map", "mAP", true}, [SCORE_F1] = {"f1", "micro-F1", true}}};
const struct metrics metrics_of_numbers = {3,
					   {[SCORE_R2] = {"r2", "R^2", false},
					    [SCORE_MAE] = {"mae", "MAE", false},
					    [SCORE_RMSE] = {"rmse", "RMSE", false}}};

void target_scores_init(struct target_scores *scores, uint32_t outputs)
{
	*scores = (struct target_scores){.outputs = outputs};
}

void target_scores_deinit(struct target_scores *scores)
{
	free(scores->records);
	free(scores->each);
	*scores = (struct target_scores){0};
}

static size_t record_size(const struct target_scores *scores)
{
	return sizeof(uint64_t) + 2 * (size_t)scores->outputs * sizeof(float);
}

static int target_scores_reserve(struct target_scores *scores, size_t count)
{
	if (scores->count + count <= scores->capacity)
		return 0;
	size_t capacity = 2 * scores->capacity + count;
	char *records = realloc(scores->records, capacity * record_size(scores));
	if (!records)
		return -ENOMEM;
	scores->records = records;
	scores->capacity = capacity;
	return 0;
}

int target_scores_add(struct target_scores *scores, const uint64_t *samples, uint32_t count,
		      const float *logits, double scale, const float *targets)
{
	size_t outputs = scores->outputs;
	int r = target_scores_reserve(scores, count);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t sample = ((const volatile uint64_t *)samples)[i];
		char *record = scores->records + scores->count * record_size(scores);
		float *values = (float *)(void *)(record + sizeof(sample));
		if (isnan(targets[i * outputs]))
			continue;
		memcpy(record, &sample, sizeof(sample));
		for (size_t k = 0; k < outputs; k++)
			values[k] = (float)(scale * (double)logits[i * outputs + k]);
		memcpy(values + outputs, targets + i * outputs, outputs * sizeof(*targets));
		scores->count++;
	}
	return 0;
}

/* ---- ranks ---- */

enum { GATHER_BYTES_MAX = 1 << 28 }; /* bytes of one broadcast */

/* Copies a rank's records to all ranks. */
static int target_scores_share(char *records, size_t size, unsigned root, struct comm *comm)
{
	for (size_t at = 0; at < size; at += GATHER_BYTES_MAX) {
		size_t rest = size - at;
		int r = comm_broadcast(comm, records + at,
				       rest < GATHER_BYTES_MAX ? rest : GATHER_BYTES_MAX, root);
		if (r < 0)
			return r;
	}
	return 0;
}

static int target_scores_merge(struct target_scores *scores, const uint64_t *counts, char *all,
			       struct comm *comm)
{
	char *at = all;
	for (unsigned rank = 0; rank < comm->world; rank++) {
		size_t size = counts[rank] * record_size(scores);
		if (rank == comm->rank)
			memcpy(at, scores->records, size);
		int r = target_scores_share(at, size, rank, comm);
		if (r < 0)
			return r;
		at += size;
	}
	return 0;
}

int target_scores_gather(struct target_scores *scores, struct comm *comm)
{
	uint64_t *counts = calloc(comm->world, sizeof(*counts)), mine = scores->count, total = 0;
	if (!counts || comm->world == 1) {
		free(counts);
		return comm->world == 1 ? 0 : -ENOMEM;
	}
	int r = comm_gather(comm, &mine, sizeof(mine), counts);
	for (unsigned rank = 0; rank < comm->world && r == 0; rank++)
		total += counts[rank];
	char *all = malloc(total * record_size(scores) + 1);
	if (r == 0)
		r = all ? target_scores_merge(scores, counts, all, comm) : -ENOMEM;
	free(counts);
	if (r < 0) {
		free(all);
		return r;
	}
	free(scores->records);
	scores->records = all;
	scores->count = scores->capacity = total;
	return 0;
}

/* ---- files ---- */

void target_scores_print(const struct target_scores *scores, FILE *file)
{
	size_t outputs = scores->outputs;
	fputs("sample", file);
	for (size_t k = 0; k < 2 * outputs; k++)
		fprintf(file, ",%s_%zu", k < outputs ? "target" : "output", k % outputs);
	fputc('\n', file);
	for (size_t i = 0; i < scores->count; i++) {
		const char *record = scores->records + i * record_size(scores);
		const float *numbers = (const float *)(const void *)(record + sizeof(uint64_t));
		uint64_t sample;
		memcpy(&sample, record, sizeof(sample));
		fprintf(file, "%llu", (unsigned long long)sample);
		for (size_t k = 0; k < 2 * outputs; k++)
			fprintf(file, ",%.9g", (double)numbers[(k + outputs) % (2 * outputs)]);
		fputc('\n', file);
	}
}

/* ---- metrics ---- */

static int by_sample(const void *a, const void *b)
{
	uint64_t x, y;
	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

/* Sorts the records and copies their numbers to values and targets, [count][outputs]. */
static void target_scores_split(struct target_scores *scores, float *values, float *targets)
{
	size_t size = scores->outputs * sizeof(float);
	qsort(scores->records, scores->count, record_size(scores), by_sample);
	for (size_t i = 0; i < scores->count; i++) {
		const char *numbers = scores->records + i * record_size(scores) + sizeof(uint64_t);
		memcpy(values + i * scores->outputs, numbers, size);
		memcpy(targets + i * scores->outputs, numbers + size, size);
	}
}

static double mean_loss(const struct target_rows *rows, enum device_loss_kind kind)
{
	double sum = 0;
	for (size_t i = 0; i < rows->samples; i++)
		sum += target_loss(kind, rows->values + i * rows->outputs,
				   rows->targets + i * rows->outputs, rows->outputs);
	return sum / (double)rows->samples;
}

static int score_labels(struct target_scores *scores, const struct target_rows *rows,
			double *ret_metric)
{
	double *each = calloc(rows->outputs, sizeof(*each));
	if (!each)
		return -ENOMEM;
	int r = target_average_precision(rows, each, &ret_metric[SCORE_MAP]);
	ret_metric[SCORE_F1] = target_micro_f1(rows);
	for (uint32_t k = 0; k < rows->outputs; k++)
		scores->each[k][SCORE_MAP] = each[k];
	free(each);
	return r;
}

static void score_numbers(struct target_scores *scores, const struct target_rows *rows,
			  double *ret_metric)
{
	struct target_errors mean = target_mean_errors(rows);
	ret_metric[SCORE_R2] = mean.r2;
	ret_metric[SCORE_MAE] = mean.mae;
	ret_metric[SCORE_RMSE] = mean.rmse;
	for (uint32_t k = 0; k < rows->outputs; k++) {
		struct target_errors errors = target_errors(rows, k);
		scores->each[k][SCORE_R2] = errors.r2;
		scores->each[k][SCORE_MAE] = errors.mae;
		scores->each[k][SCORE_RMSE] = errors.rmse;
	}
}

int target_scores_compute(struct target_scores *scores, enum target_kind kind,
			  enum device_loss_kind loss, struct target_result *ret_result)
{
	size_t numbers = scores->count * scores->outputs;
	float *values = malloc(numbers * sizeof(*values));
	float *targets = malloc(numbers * sizeof(*targets));
	struct target_rows rows = {scores->count, scores->outputs, values, targets};
	scores->each = calloc(scores->outputs, sizeof(*scores->each));
	int r = values && targets && scores->each ? 0 : -ENOMEM;
	if (r == 0) {
		target_scores_split(scores, values, targets);
		*ret_result = (struct target_result){.loss = mean_loss(&rows, loss),
						     .samples = scores->count};
		if (kind == TARGET_MULTILABEL)
			r = score_labels(scores, &rows, ret_result->metric);
		else
			score_numbers(scores, &rows, ret_result->metric);
	}
	free(values);
	free(targets);
	return r;
}
