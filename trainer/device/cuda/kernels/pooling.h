/*
 * Pooling over NHWC tensors of element type E, forward and backward. A window pool reads x
 * [n][h][w][channels] and writes y [n][p][q][channels]; it ignores positions outside x. The
 * backward kernels gather: each element of dx is written once, as a sum over the windows that
 * contain it, in a fixed order. Maximum: the first of equal values wins, and NaN is larger than any
 * number.
 */
#ifndef TRAINER_DEVICE_CUDA_POOL_H
#define TRAINER_DEVICE_CUDA_POOL_H

#include "trainer/device/cuda/kernels/common/divide.h"
#include "trainer/device/cuda/kernels/row_reduce.h"

#define POOL_WINDOW_MAX 16 /* positions in a window are stored in 8 bits */

struct pool_shape {
	uint32_t n, h, w, channels; /* shape of x; n h w and n p q are below 2^31 */
	uint32_t p, q;              /* height and width of y */
	/* both axes; pad < window, and window <= POOL_WINDOW_MAX for maxima */
	uint32_t window, stride, pad;
	enum cuda_element element;
};

/* Divisors for splitting a flat position into coordinates. */
struct pool_dividers {
	struct divider h, w, p, q, stride;
};

/*
 * Operands of all window kernels. Each launcher reads the ones that its comment mentions; the
 * others may be NULL.
 */
struct pool_arguments {
	const void *x, *dy, *dy2; /* the gradient is dy + dy2 */
	void *y, *dx;
	uint8_t *index; /* [n][p][q][channels]: row-major position of the maximum in its window */
	const float *scale, *bias;         /* [channels], as the vectors below */
	enum device_activation activation; /* applied after scale; identity or ReLU */
	const float *mean, *deviation, *a, *b, *c;
	float *sum, *products;
	float *partial; /* workspace of row_reduce_workspace() bytes for n p q rows */
	struct pool_shape shape;
	struct row_grid grid; /* filled in by the launcher, as is `by` */
	struct pool_dividers by;
};

/*
 * y = max of x', and optionally index. x' is x, or activation(scale x + bias) if scale is given.
 * -EINVAL if the window is too large or the activation is neither identity nor ReLU.
 */
int pool_max(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * dx = sum of dy (+ dy2) over the windows whose maximum is at that position. Reads dy and index,
 * each several times but mostly from the caches; writes dx.
 */
int pool_max_backward(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * Backward pass of pool_max() with scale, into the batch norm that owns scale and bias. dz, the
 * gradient of scale x + bias, is never stored: sum = sum dz, products = sum dz (x - mean)
 * deviation. Iterates over windows: reads dy and index once, x through the caches.
 */
int pool_max_norm_reduce(const struct kernel_device *device,
			 const struct pool_arguments *arguments);

/*
 * dx = a dz + b x + c. Reads x once, dy and index through the caches, writes dx once; dx may be x.
 */
int pool_max_norm_apply(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * Mean over the window's elements that lie inside x. Forward computes y from x, backward dx from
 * dy.
 */
int pool_average(const struct kernel_device *device, const struct pool_arguments *arguments);
int pool_average_backward(const struct kernel_device *device,
			  const struct pool_arguments *arguments);

/*
 * Pooling over all positions of an image: x [n][positions][channels], y [n][channels]. Reads x
 * once.
 */
struct pool_global {
	const void *from; /* x; dy in the backward pass */
	void *to;         /* y; dx in the backward pass */
	/* [n][channels]: position of the maximum. Maxima only; may be NULL in the forward pass. */
	uint32_t *index;
	uint32_t n, positions, channels;
	enum cuda_element element;
	struct row_grid grid;
	struct divider by; /* divides by `positions` */
};
int pool_global_average(const struct kernel_device *device, const struct pool_global *arguments);
int pool_global_average_backward(const struct kernel_device *device,
				 const struct pool_global *arguments);
int pool_global_max(const struct kernel_device *device, const struct pool_global *arguments);
int pool_global_max_backward(const struct kernel_device *device,
			     const struct pool_global *arguments);

#endif
