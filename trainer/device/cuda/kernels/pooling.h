/*
 * Pools over NHWC tensors of E, forward and backward. Window pools: x [n][h][w][channels], y
 * [n][p][q][channels], positions outside x are ignored. Backward gathers: every element of dx is
 * written once, from the windows that hold it, in a fixed order. Maxima: the first of equals wins;
 * a NaN is the largest.
 */
#ifndef TRAINER_DEVICE_CUDA_POOL_H
#define TRAINER_DEVICE_CUDA_POOL_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/kernels/divide.h"

#define POOL_WINDOW_MAX 16 /* a position in a window has 8 bits */

struct pool_shape {
	uint32_t n, h, w, channels;   /* of x; n h w and n p q below 2^31 */
	uint32_t p, q;                /* of y */
	uint32_t window, stride, pad; /* both ways; pad < window <= POOL_WINDOW_MAX for maxima */
	enum cuda_element element;
};

/* Divisors for positions. */
struct pool_dividers {
	struct divider h, w, p, q, stride;
};

/* Operands of all window kernels; a launcher reads those in its comment. NULL if absent. */
struct pool_arguments {
	const void *x, *dy, *dy2; /* dy2 is added to dy */
	void *y, *dx;
	uint8_t *index; /* [n][p][q][channels]: a maximum's position in its window, row by row */
	const float *scale, *bias;         /* [channels], here and below */
	enum device_activation activation; /* with scale; identity or ReLU */
	const float *mean, *deviation, *a, *b, *c;
	float *sum, *products;
	float *partial; /* workspace of columns_workspace() bytes for n p q rows */
	struct pool_shape shape;
	struct columns columns; /* filled in by the launcher, as below */
	struct pool_dividers by;
};

/*
 * y = max of x', and optionally index; x' = x, or with scale activation(scale x + bias). -EINVAL if
 * the window is too large or the activation is another one.
 */
int pool_max(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * dx = sum of dy (+ dy2) over the windows whose maximum lies there. Reads dy and index, each
 * several times through the caches, writes dx.
 */
int pool_max_backward(const struct kernel_device *device, const struct pool_arguments *arguments);

/*
 * Backward through pool_max() with scale, into the batch norm that scale and bias belong to. With
 * dz the gradient of scale x + bias, which is never stored: sum = sum dz, products = sum dz (x -
 * mean) deviation. Iterates over windows: reads dy and index once, x through the caches.
 */
int pool_max_norm_reduce(const struct kernel_device *device,
			 const struct pool_arguments *arguments);

/*
 * dx = a dz + b x + c. Reads x once, dy and index through the caches, writes dx once; dx may be x.
 */
int pool_max_norm_apply(const struct kernel_device *device, const struct pool_arguments *arguments);

/* Mean over the elements inside x: y from x, and dx from dy. */
int pool_average(const struct kernel_device *device, const struct pool_arguments *arguments);
int pool_average_backward(const struct kernel_device *device,
			  const struct pool_arguments *arguments);

/* Over all positions of an image: x [n][positions][channels], y [n][channels]. Reads x once. */
struct pool_global {
	const void *from; /* x; backward: dy */
	void *to;         /* y; backward: dx */
	/* [n][channels]: position of the maximum; maxima only, NULL forward if not wanted */
	uint32_t *index;
	uint32_t n, positions, channels;
	enum cuda_element element;
	struct columns columns;
	struct divider by; /* positions */
};
int pool_global_average(const struct kernel_device *device, const struct pool_global *arguments);
int pool_global_average_backward(const struct kernel_device *device,
				 const struct pool_global *arguments);
int pool_global_max(const struct kernel_device *device, const struct pool_global *arguments);
int pool_global_max_backward(const struct kernel_device *device,
			     const struct pool_global *arguments);

#endif
