/*
 * Batch norm with residual and activation over matrices [rows][channels] of E (rows = n h w),
 * forward and backward; bias gradients; and layer norm. E is `element`. Vectors are fp32
 * [channels]. Arithmetic is fp32; sums over rows follow row_reduce.h.
 */
#ifndef TRAINER_DEVICE_CUDA_NORM_H
#define TRAINER_DEVICE_CUDA_NORM_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/ops.h"

/*
 * Operands of all kernels in this file, named as in the formulas below. Each launcher reads only
 * those that its comment mentions. Optional operands are NULL if absent: a missing scale is 1, a
 * missing bias or addend is 0.
 */
struct norm_arguments {
	const void *x, *residual, *dy, *dy2; /* [rows][channels] of E, like y, dz and dx */
	void *y, *dz, *dx;
	float *scale, *bias, *scale2, *bias2;
	void *scale16, *bias16; /* optional copies of scale and bias, of type `element` */
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
 * Computes from the sums of norm_statistics() over `rows` rows:
 * - mean; deviation = 1 / sqrt(biased variance + epsilon)
 * - scale = gamma deviation; bias = beta - mean scale
 * If running_mean and running_var are given, adds momentum (batch value - running value) to each;
 * the batch value of running_var is the unbiased variance.
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
 * dz = (dy + dy2) activation'(z). Also sums over rows:
 * - sum = sum of dz
 * - products = sum of dz (x - mean) deviation, if `products` is given; needs mean and deviation
 * For ReLU with y given, z > 0 is determined from y > 0. For ReLU without y, GELU and sigmoid, z is
 * recomputed from x as in norm_apply(). Identity needs neither x nor y. Reads each given operand
 * once, writes dz once. dz may alias dy or dy2, and may be NULL if only the sums are needed.
 * -EINVAL if there is no output or an operand is missing.
 *
 * To compute a bias gradient, pass dy, sum, add_sum and partial with the identity activation.
 */
int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

/*
 * Computes from the sums of norm_backward():
 * - dgamma and dbeta, each optional
 * - unless all three are NULL, the coefficients of norm_backward_apply(): a = gamma deviation; b =
 *   -a deviation products / rows; c = -a sum / rows - b mean; b = c = 0 if `fixed`
 */
int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments);

/*
 * dx = a g + b x + c, where g is dz, or dz activation'(scale x + bias) if scale and bias are given.
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
 * With g = dy gamma, xhat = (x - mean) deviation, and mean() over the channels of a row:
 * - dx = deviation (g - mean(g) - xhat mean(g xhat))
 * - dgamma = sum of dy xhat over rows; dbeta = sum of dy over rows; both need `partial`
 * Each of the three may be NULL. dx takes one read of dy and x, the sums take another. Writes dx
 * once. dx must not alias dy or x.
 */
int layer_norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments);

#endif
