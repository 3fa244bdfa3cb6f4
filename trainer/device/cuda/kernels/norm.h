/*
 * Batch norm with residual and activation over matrices [rows][channels] of E (rows = n h w),
 * forward and backward; bias gradients; and layer norm. E is `element`. Vectors are fp32
 * [channels]. Arithmetic is fp32; sums over rows follow row_reduce.h.
 */
#ifndef TRAINER_DEVICE_CUDA_NORM_H
#define TRAINER_DEVICE_CUDA_NORM_H

#include "trainer/device/cuda/kernels/row_reduce.h"

/*
 * Operands of all kernels here, named as in the formulas below. Each launcher reads the ones that
 * its comment mentions. NULL if absent: a missing scale is 1, a missing bias or addend 0.
 */
struct norm_arguments {
	const void *x, *residual, *dy, *dy2; /* [rows][channels] of E, as y, dz and dx */
	void *y, *dz, *dx;
	float *scale, *bias, *scale2, *bias2;
	void *scale16, *bias16; /* scale and bias in `element`, or both NULL */
	float *gamma, *beta, *dgamma, *dbeta;
	float *mean, *deviation, *running_mean, *running_var;
	float *sum, *products; /* sums over rows */
	float *a, *b, *c;
	float *partial;                      /* workspace for sums: row_reduce_workspace() bytes */
	bool add_sum, add_dgamma, add_dbeta; /* accumulate (+=) instead of storing */
	bool fixed; /* mean and deviation are constants, independent of x */
	float epsilon, momentum;
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	enum device_activation activation;
	struct row_grid grid; /* filled in by the launcher */
};

/* sum = sum of x, products = sum of x^2, both over rows. Reads x once. */
int norm_statistics(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Computes from the sums of norm_statistics() over `rows` positions: mean, deviation = 1 /
 * sqrt(biased variance + epsilon), scale = gamma deviation, bias = beta - mean scale. If
 * running_mean and running_var are given, moves each by momentum times (batch value - running
 * value), with the unbiased variance.
 */
int norm_finalize(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Computes scale and bias from running_mean, running_var, gamma and beta. Also writes mean and
 * deviation unless both are NULL.
 */
int norm_running(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * y = activation(z) with z = scale x + bias + residual, or z = scale x + bias + scale2 residual +
 * bias2 if scale2 is given. Reads x and residual once, writes y once. y may alias x or residual.
 */
int norm_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * dz = (dy + dy2) activation'(z) and its sums: sum = sum dz and, if products is given (needs mean
 * and deviation), products = sum dz (x - mean) deviation. ReLU takes z > 0 from y > 0 if y is
 * given. Without y, and for GELU and sigmoid, z is computed from x as in norm_apply(). Identity
 * needs neither. Reads each given operand once, writes dz once. dz may alias dy or dy2, or be NULL
 * if only the sums are needed. -EINVAL if there is no output or an operand is missing.
 *
 * To compute a bias gradient, pass dy, sum, add_sum and partial with the identity activation.
 */
int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Computes from the sums of norm_backward(): dgamma and dbeta, each optional, and the factors for
 * norm_backward_apply() unless all are NULL: a = gamma deviation, b = -a deviation products / rows,
 * c = -a sum / rows - b mean. If `fixed`, b = c = 0.
 */
int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments);

/*
 * dx = a dz' + b x + c. dz' is dz, or dz activation'(scale x + bias) if scale and bias are given.
 * Reads dz and x once, writes dx once. dx may alias dz or x.
 */
int norm_backward_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450): normalizes each row by its mean and biased
 * variance, then applies gamma and beta. mean and deviation = 1 / sqrt(variance + epsilon) are
 * [rows]. A second pass over the row computes the variance about the mean.
 *
 * A warp handles a row of up to LAYER_NORM_WARP_MAX channels, a block a longer one. A thread keeps
 * up to four packs of the row in registers (four channels if their number is not a multiple of the
 * pack size) and rereads longer rows from the caches.
 */
#define LAYER_NORM_WARP_MAX 4096

/*
 * y = (x - mean) deviation gamma + beta. Also writes mean and deviation unless both are NULL. Reads
 * x once, writes y once; y may alias x. Both functions return -EINVAL for 2^31 rows or more.
 */
int layer_norm_forward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * With g = dy gamma and xhat = (x - mean) deviation: dx = deviation (g - mean(g) - xhat mean(g
 * xhat)), where mean() is over a row's channels; dgamma = sum of dy xhat and dbeta = sum of dy,
 * over rows. Each of the three may be NULL; the last two need `partial`. Reads dy and x once for dx
 * and once more for the sums, writes dx once. dx must not alias dy or x.
 */
int layer_norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

#endif
