#include "trainer/algorithms/target_metrics.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* ---- losses ---- */

static double loss_term(enum device_loss_kind kind, double value, double target)
{
	double error = fabs(value - target);
	if (kind == DEVICE_SIGMOID)
		return fmax(value, 0) - value * target + log1p(exp(-fabs(value)));
	if (kind == DEVICE_SQUARED)
		return error * error;
	return error >= 1 ? error - 0.5 : error * error / 2;
}

double target_loss(enum device_loss_kind kind, const float *values, const float *targets,
		   uint32_t outputs)
{
	double sum = 0;
	for (uint32_t i = 0; i < outputs; i++)
		sum += loss_term(kind, (double)values[i], (double)targets[i]);
	return sum / outputs;
}

/* ---- multi-label ---- */

struct ranked {
	float value;
	bool positive;
};

static int by_value_descending(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return x->value < y->value ? 1 : x->value > y->value ? -1 : 0;
}

/* Copies an output's column. Returns the number of positive samples. */
static size_t ranked_fill(const struct target_rows *rows, uint32_t output, struct ranked *ranked,
			  bool *ret_finite)
{
	size_t positives = 0;
	*ret_finite = true;
	for (size_t i = 0; i < rows->samples; i++) {
		size_t at = i * rows->outputs + output;
		ranked[i] = (struct ranked){rows->values[at], rows->targets[at] > 0.5f};
		positives += ranked[i].positive;
		*ret_finite = *ret_finite && isfinite(ranked[i].value);
	}
	return positives;
}

static double average_precision(const struct ranked *ranked, size_t count, size_t positives)
{
	size_t right = 0, counted = 0;
	double sum = 0;
	for (size_t i = 0; i < count; i++) {
		right += ranked[i].positive;
		if (i + 1 < count && ranked[i + 1].value == ranked[i].value)
			continue;
		sum += (double)(right - counted) / (double)positives *
		       ((double)right / (double)(i + 1));
		counted = right;
	}
	return sum;
}

int target_average_precision(const struct target_rows *rows, double *ret_each, double *ret_mean)
{
	struct ranked *ranked = calloc(rows->samples + 1, sizeof(*ranked));
	uint32_t counted = 0;
	double sum = 0;
	if (!ranked)
		return -ENOMEM;
	for (uint32_t output = 0; output < rows->outputs; output++) {
		bool finite;
		size_t positives = ranked_fill(rows, output, ranked, &finite);
		ret_each[output] = NAN;
		if (!positives)
			continue;
		if (finite) {
			qsort(ranked, rows->samples, sizeof(*ranked), by_value_descending);
			ret_each[output] = average_precision(ranked, rows->samples, positives);
		}
		sum += ret_each[output];
		counted++;
	}
	*ret_mean = counted ? sum / counted : 0;
	free(ranked);
	return 0;
}

double target_micro_f1(const struct target_rows *rows)
{
	size_t both = 0, either = 0;
	for (size_t i = 0; i < rows->samples * rows->outputs; i++) {
		bool predicted = rows->values[i] > 0, positive = rows->targets[i] > 0.5f;
		both += predicted && positive;
		either += (size_t)predicted + positive;
	}
	return either ? 2 * (double)both / (double)either : 0;
}

/* ---- regression ---- */

static double target_mean(const struct target_rows *rows, uint32_t output)
{
	double sum = 0;
	for (size_t i = 0; i < rows->samples; i++)
		sum += (double)rows->targets[i * rows->outputs + output];
	return sum / (double)rows->samples;
}

struct target_errors target_errors(const struct target_rows *rows, uint32_t output)
{
	double mean = target_mean(rows, output), absolute = 0, squared = 0, spread = 0;
	for (size_t i = 0; i < rows->samples; i++) {
		size_t at = i * rows->outputs + output;
		double target = (double)rows->targets[at],
		       error = (double)rows->values[at] - target;
		absolute += fabs(error);
		squared += error * error;
		spread += (target - mean) * (target - mean);
	}
	return (struct target_errors){
		.mae = absolute / (double)rows->samples,
		.rmse = sqrt(squared / (double)rows->samples),
		.r2 = spread > 0 ? 1 - squared / spread : squared == 0,
	};
}

struct target_errors target_mean_errors(const struct target_rows *rows)
{
	struct target_errors mean = {0};
	for (uint32_t output = 0; output < rows->outputs; output++) {
		struct target_errors errors = target_errors(rows, output);
		mean.mae += errors.mae / rows->outputs;
		mean.rmse += errors.rmse / rows->outputs;
		mean.r2 += errors.r2 / rows->outputs;
	}
	return mean;
}
