/*
 * Batch norm, residual and activation over matrices [rows][channels] of E (rows = n h w), forward
 * and backward, gradients of biases, and layer norm. Vectors are fp32 [channels]; arithmetic is
 * fp32, sums over rows as columns.h says. E is `element`.
 */
#ifndef TRAINER_DEVICE_CUDA_NORM_H
#define TRAINER_DEVICE_CUDA_NORM_H

#include "trainer/device/cuda/kernels/columns.h"

/*
 * The operands of all kernels here, by the names that the formulas below have for them; a launcher
 * reads those that its comment names. NULL: there is none. A scale that is not there counts as 1, a
 * bias or an addend as 0.
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
	bool fixed;                          /* mean and deviation do not depend on x */
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
 * From sums over `rows` positions, of norm_statistics(): mean, deviation = 1 / sqrt(biased variance
 * + epsilon), scale = gamma deviation and bias = beta - mean scale. With running_mean and
 * running_var: these += momentum (batch's - own), the variance unbiased.
 */
int norm_finalize(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Scale and bias from running_mean, running_var, gamma and beta; and mean and deviation, unless
 * both are NULL.
 */
int norm_running(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * y = activation(z), z = scale x + bias + residual, with scale2: scale x + bias + scale2 residual +
 * bias2. Reads x and residual once, writes y once. y may be x or residual.
 */
int norm_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * dz = (dy + dy2) activation'(z), and its sums: sum = sum dz; with products, which takes mean and
 * deviation, products = sum dz (x - mean) deviation. For ReLU z > 0 is taken from y > 0 where y is
 * given; otherwise, and for GELU and sigmoid, z is computed from x as norm_apply() does. Identity
 * needs neither. Everything given is read once, dz is written once; it may be dy, dy2 or, if only
 * the sums are wanted, NULL. -EINVAL: nothing is wanted of it, or an operand that it takes is
 * missing.
 *
 * A bias's gradient is this of dy alone with identity: dy, sum, add_sum, partial.
 */
int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * From the sums of norm_backward(): dgamma and dbeta, each or NULL, and what norm_backward_apply()
 * takes, or all NULL: a = gamma deviation, b = -a deviation products / rows, c = -a sum / rows - b
 * mean; fixed: b = c = 0.
 */
int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments);

/*
 * dx = a dz' + b x + c; dz' = dz, or, with scale and bias, dz activation'(scale x + bias). Reads dz
 * and x once, writes dx once. dx may be dz or x.
 */
int norm_backward_apply(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450): each row by its own mean and biased
 * variance, then gamma and beta; mean and deviation = 1 / sqrt(variance + epsilon) are [rows]. The
 * variance is taken about the mean, in a second pass over the row.
 *
 * A row of up to LAYER_NORM_WARP_MAX channels is a warp's, a longer one a block's. What a thread
 * has of it stays in registers as long as there are at most four packs, which are four channels
 * where their number is no multiple of a pack's; what is more is read again, from the caches.
 */
#define LAYER_NORM_WARP_MAX 4096

/*
 * y = (x - mean) deviation gamma + beta, and mean and deviation, unless both are NULL. Reads x
 * once, writes y once; y may be x. -EINVAL: 2^31 rows or more, here and below.
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
