/*
 * Losses and metrics of outputs that are compared with a number each: labels that do not exclude
 * each other (multi-label), and regression. Computed on the host in double precision, by the
 * definitions of scikit-learn (sklearn.metrics), whose overall values are means over the outputs.
 * Pure functions.
 */
#pragma once

#include "trainer/device/ops.h"

#include <stddef.h>
#include <stdint.h>

/* Outputs of a network, after logit_scale and before a sigmoid, and their targets. */
struct target_rows {
	size_t samples;
	uint32_t outputs;
	const float *values, *targets; /* [samples][outputs] */
};

/* Loss of one sample, as device_loss() defines it; for DEVICE_SIGMOID, _SQUARED and _HUBER. */
double target_loss(enum device_loss_kind kind, const float *values, const float *targets,
		   uint32_t outputs);
/*
 * Average precision of each output over the samples, as average_precision_score(): the sum over
 * distinct thresholds, descending, of the increase in recall times the precision; equal values
 * share a threshold. Sets ret_each[outputs], NaN for outputs without a positive sample, and
 * *ret_mean over the others, 0 if there are none. Values that are not finite make both NaN.
 * -ENOMEM.
 */
int target_average_precision(const struct target_rows *rows, double *ret_each, double *ret_mean);
/*
 * F1 over all outputs and samples together (f1_score, average="micro"), where a sigmoid above 0.5
 * predicts a positive; 0 if there are neither positives nor predictions of one.
 */
double target_micro_f1(const struct target_rows *rows);

struct target_errors {
	double mae, rmse; /* mean absolute error, root of the mean squared error */
	/*
	 * coefficient of determination; if all targets are equal, 1 for exact values, else 0, as
	 * r2_score()
	 */
	double r2;
};
struct target_errors target_errors(const struct target_rows *rows, uint32_t output);
/* Means of the errors of all outputs. */
struct target_errors target_mean_errors(const struct target_rows *rows);
