/*
 * Batch norm, residual and activation over matrices [rows][channels] of E (rows = n h w), forward
 * and backward, and gradients of biases. Vectors are fp32 [channels]; arithmetic is fp32, sums over
 * rows as columns.h says. E is `element`.
 */
#ifndef TRAINER_DEVICE_CUDA_NORM_H
#define TRAINER_DEVICE_CUDA_NORM_H

#include "trainer/device/cuda/kernels/columns.h"

/* sum = sum of x, squares = sum of x^2. Reads x once. */
struct norm_statistics {
	const void *x; /* [rows][channels] E */
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	float *sum, *squares;
	float *partial;         /* workspace of columns_workspace() bytes */
	struct columns columns; /* filled in by the launcher, here and below */
};
int norm_statistics(const struct kernel_device *device, const struct norm_statistics *arguments);

/* From sums over `rows` positions: what to apply, and the running statistics' step. */
struct norm_finalize {
	const float *sum, *squares, *gamma, *beta;
	float *mean, *deviation; /* deviation = 1 / sqrt(biased variance + epsilon) */
	float *scale, *bias;     /* gamma deviation, beta - mean scale */
	void *scale16, *bias16;  /* the same in `element`, or both NULL */
	/* += momentum (batch's - own), the variance unbiased; or both NULL */
	float *running_mean, *running_var;
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element; /* of scale16, bias16 */
	float epsilon, momentum;
};
int norm_finalize(const struct kernel_device *device, const struct norm_finalize *arguments);

/* Evaluation: scale and bias from running statistics. */
struct norm_running {
	const float *running_mean, *running_var, *gamma, *beta;
	float *scale, *bias;
	void *scale16, *bias16; /* or both NULL */
	uint32_t channels;
	enum cuda_element element; /* of scale16, bias16 */
	float epsilon;
};
int norm_running(const struct kernel_device *device, const struct norm_running *arguments);

/*
 * y = activation(z), z = scale x + bias + residual, with scale2: scale x + bias + scale2 residual +
 * bias2. scale NULL: 1; bias NULL: 0; residual NULL: 0. Reads x and residual once, writes y once. y
 * may be x or residual.
 */
struct norm_apply {
	const void *x, *residual; /* [rows][channels] E */
	const float *scale, *bias, *scale2, *bias2;
	void *y; /* [rows][channels] E */
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	enum device_activation activation;
	struct columns columns;
};
int norm_apply(const struct kernel_device *device, const struct norm_apply *arguments);

/*
 * dz = (dy + dy2) activation'(z), and its sums: sum = sum dz; with mean, products = sum dz (x -
 * mean) deviation. For ReLU z > 0 is taken from y > 0 where y is given; otherwise, and for GELU, z
 * is computed from x as norm_apply() does. Identity needs neither. Everything given is read once,
 * dz is written once.
 */
struct norm_backward {
	const void *dy, *dy2;                       /* [rows][channels] E; dy2 or NULL */
	const void *y;                              /* [rows][channels] E or NULL */
	const void *x, *residual;                   /* [rows][channels] E, as needed; or NULL */
	const float *scale, *bias, *scale2, *bias2; /* as norm_apply()'s */
	const float *mean, *deviation;              /* of products, or both NULL */
	void *dz;              /* [rows][channels] E; may be dy, dy2; NULL: not wanted */
	float *sum, *products; /* or NULL: no sums; products only with mean */
	bool add_sum;          /* sum += instead of = */
	float *partial;        /* workspace of columns_workspace() bytes, with sum */
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	enum device_activation activation;
	struct columns columns;
};
/* -EINVAL: nothing is wanted of it, or an operand that it takes is missing. */
int norm_backward(const struct kernel_device *device, const struct norm_backward *arguments);

/*
 * dgamma, dbeta and what norm_backward_apply() takes: a = gamma deviation, b = -a deviation
 * products / rows, c = -a sum / rows - b mean.
 */
struct norm_backward_finalize {
	const float *sum, *products; /* of norm_backward() */
	const float *gamma, *mean, *deviation;
	float *dgamma, *dbeta;      /* each or NULL */
	bool add_dgamma, add_dbeta; /* += instead of = */
	float *a, *b, *c;           /* or all NULL */
	uint64_t rows;
	uint32_t channels;
};
int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_backward_finalize *arguments);

/*
 * dx = a dz' + b x + c; dz' = dz, or, with scale, dz activation'(scale x + bias). Reads dz and x
 * once, writes dx once. dx may be dz or x.
 */
struct norm_backward_apply {
	const void *dz, *x; /* [rows][channels] E */
	const float *a, *b, *c;
	const float *scale, *bias; /* or both NULL */
	void *dx;                  /* [rows][channels] E */
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	enum device_activation activation; /* with scale */
	struct columns columns;
};
int norm_backward_apply(const struct kernel_device *device,
			const struct norm_backward_apply *arguments);

/* A bias's gradient is norm_backward() of dy alone with identity: dy, sum, add_sum, partial. */

#endif
