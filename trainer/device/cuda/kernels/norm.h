/*
 * Batch norm, residual and activation over matrices [rows][channels] of E (rows = n h w), forward
 * and backward, gradients of biases, and layer norm. Vectors are fp32 [channels]; arithmetic is
 * fp32, with sums over rows as in columns.h. E is `element`.
 */
#ifndef TRAINER_DEVICE_CUDA_NORM_H
#define TRAINER_DEVICE_CUDA_NORM_H

#include "trainer/device/cuda/kernels/columns.h"

/*
 * Operands of all kernels here, named as in the formulas below; a launcher reads those in its
 * comment. NULL if absent: then a scale counts as 1, a bias or an addend as 0.
 */
struct norm_arguments {
	const void *x, *residual, *dy, *dy2; /* [rows][channels] E, here and below */
	void *y, *dz, *dx;
	float *scale, *bias, *scale2, *bias2;
	void *scale16, *bias16; /* scale and bias in `element`, or both NULL */
	float *gamma, *beta, *dgamma, *dbeta;
	float *mean, *deviation, *running_mean, *running_var;
	float *sum, *products; /* over rows */
	float *a, *b, *c;
	float *partial;                      /* workspace of columns_workspace() bytes, for sums */
	bool add_sum, add_dgamma, add_dbeta; /* += instead of = */
	bool fixed; /* mean and deviation are constants, independent of x */
	float epsilon, momentum;
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	enum device_activation activation;
	struct columns columns; /* filled in by the launcher */
};

/* sum = sum of x, products = sum of x^2. Reads x once. */
int norm_statistics(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * From the sums of norm_statistics() over `rows` positions: mean, deviation = 1 / sqrt(biased
 * variance + epsilon), scale = gamma deviation and bias = beta - mean scale. With running_mean and
 * running_var: these += momentum (batch's - own), with unbiased variance.
 */
int norm_finalize(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Scale and bias from running_mean, running_var, gamma and beta; also mean and deviation, unless
 * both are NULL.
 */
int norm_running(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * y = activation(z), z = scale x + bias + residual, with scale2: scale x + bias + scale2 residual +
 * bias2. Reads x and residual once, writes y once. y may be x or residual.
 */
int norm_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * dz = (dy + dy2) activation'(z), and its sums: sum = sum dz; with products, which needs mean and
 * deviation, products = sum dz (x - mean) deviation. For ReLU, z > 0 is derived from y > 0 if y is
 * given; otherwise, and for GELU and sigmoid, z is computed from x as in norm_apply(). Identity
 * needs neither. Reads each given operand once, writes dz once; dz may be dy, dy2 or, if only the
 * sums are needed, NULL. -EINVAL if there is no output or an operand is missing.
 *
 * For a bias's gradient, pass dy, sum, add_sum and partial, with identity.
 */
int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * From the sums of norm_backward(): dgamma and dbeta, each optional, and the factors for
 * norm_backward_apply(), or all NULL: a = gamma deviation, b = -a deviation products / rows, c = -a
 * sum / rows - b mean; fixed: b = c = 0.
 */
int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments);

/*
 * dx = a dz' + b x + c; dz' = dz, or, with scale and bias, dz activation'(scale x + bias). Reads dz
 * and x once, writes dx once. dx may be dz or x.
 */
int norm_backward_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450): normalises each row by its mean and biased
 * variance, then applies gamma and beta; mean and deviation = 1 / sqrt(variance + epsilon) are
 * [rows]. The variance is computed about the mean, in a second pass over the row.
 *
 * A row of up to LAYER_NORM_WARP_MAX channels is handled by a warp, a longer one by a block. A
 * thread keeps up to four packs of it in registers (four channels if their number is not a multiple
 * of the pack size) and reads the rest again, from the caches.
 */
#define LAYER_NORM_WARP_MAX 4096

/*
 * y = (x - mean) deviation gamma + beta; also mean and deviation, unless both are NULL. Reads x
 * once, writes y once; y may be x. -EINVAL, here and below: 2^31 rows or more.
 */
int layer_norm_forward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * With g = dy gamma and xhat = (x - mean) deviation: dx = deviation (g - mean of g - xhat mean of g
 * xhat), the means over a row's channels; dgamma = sum of dy xhat and dbeta = sum of dy over rows.
 * Each of the three may be NULL; partial is for the latter two. Reads dy and x once for dx and once
 * more for the sums, writes dx once; dx may be neither.
 */
int layer_norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

#endif
