/*
 * Pooling over NHWC tensors of element type E, forward and backward. A window pool reads x
 * [n][h][w][channels] and writes y [n][p][q][channels]; positions outside x do not count. Backward
 * kernels gather: they write each element of dx once, as a sum in fixed order over the windows that
 * contain it. Of several equal maxima the first in the window counts; NaN is larger than any
 * number.
 */
#ifndef TRAINER_DEVICE_CUDA_POOL_H
#define TRAINER_DEVICE_CUDA_POOL_H

#include "trainer/device/cuda/kernels/common/divide.h"
#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/ops.h"

#define POOL_WINDOW_MAX 16 /* positions in a window are stored in 8 bits */

struct pool_shape {
	uint32_t n, h, w, channels; /* shape of x; n h w and n p q are below 2^31 */
	uint32_t p, q;              /* height and width of y */
	/* the same for both axes; pad < window; maxima also require window <= POOL_WINDOW_MAX */
	uint32_t window, stride, pad;
	enum cuda_element element;
};

/* Dividers that split a flat index into coordinates. */
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
	const float *scale, *bias;         /* [channels], like the vectors below */
	enum device_activation activation; /* applied to scale x + bias; identity or ReLU */
	const float *mean, *deviation, *a, *b, *c;
	float *sum, *products;
	float *partial; /* workspace of row_reduce_workspace() bytes for n p q rows */
	struct pool_shape shape;
	struct row_grid grid; /* filled in by the launcher, as is `by` */
	struct pool_dividers by;
};

/*
 * y = maximum over each window of x, or of activation(scale x + bias) if scale is given. Also
 * stores `index` unless it is NULL. -EINVAL if the window is too large or the activation is neither
 * identity nor ReLU.
 */
int pool_max(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * dx at a position = sum of dy (+ dy2) over the windows whose maximum is at that position. Reads dy
 * and index several times, mostly from the caches; writes dx once.
 */
int pool_max_backward(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * First of two backward kernels of pool_max() with scale, which continue into the batch norm that
 * scale and bias belong to. With dz the gradient of scale x + bias, which is not stored:
 * - sum = sum of dz
 * - products = sum of dz (x - mean) deviation
 * Iterates over windows; reads dy and index once, and x through the caches.
 */
int pool_max_norm_reduce(const struct kernel_device *device,
			 const struct pool_arguments *arguments);

/*
 * Second of these kernels: dx = a dz + b x + c. Reads x once, dy and index through the caches,
 * writes dx once. dx may alias x.
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
