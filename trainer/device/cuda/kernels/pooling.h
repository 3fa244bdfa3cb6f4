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

/* What positions are divided by. */
struct pool_dividers {
	struct divider h, w, p, q, stride;
};

/*
 * y = max of x', index = its position in the window, row by row; x' = x, or with scale
 * activation(scale x + bias).
 */
struct pool_max {
	const void *x;
	const float *scale, *bias;         /* [channels], or both NULL */
	enum device_activation activation; /* with scale; identity or ReLU */
	void *y;
	uint8_t *index; /* [n][p][q][channels] or NULL */
	struct pool_shape shape;
	struct columns columns; /* filled in by the launcher, here and below */
	struct pool_dividers by;
};
/* -EINVAL: a window too large, or GELU. */
int pool_max(const struct kernel_device *device, const struct pool_max *arguments);

/*
 * dx = sum of dy (+ dy2) over the windows whose maximum lies there. Reads dy and index, each
 * several times through the caches, writes dx.
 */
struct pool_max_backward {
	const void *dy, *dy2; /* [n][p][q][channels]; dy2 or NULL */
	const uint8_t *index;
	void *dx; /* [n][h][w][channels] */
	struct pool_shape shape;
	struct columns columns;
	struct pool_dividers by;
};
int pool_max_backward(const struct kernel_device *device,
		      const struct pool_max_backward *arguments);

/*
 * Backward through pool_max() with scale and on into the batch norm whose scale and bias those are.
 * With dz the gradient of scale x + bias, never stored: sum = sum dz, products = sum dz (x - mean)
 * deviation. Goes over the windows: reads dy and index once, x through the caches.
 */
struct pool_max_norm_reduce {
	const void *dy, *dy2; /* [n][p][q][channels]; dy2 or NULL */
	const uint8_t *index;
	const void *x; /* [n][h][w][channels] */
	const float *scale, *bias, *mean, *deviation;
	enum device_activation activation; /* identity or ReLU */
	float *sum, *products;
	float *partial; /* workspace of columns_workspace() bytes for n p q rows */
	struct pool_shape shape;
	struct columns columns;
	struct pool_dividers by;
};
int pool_max_norm_reduce(const struct kernel_device *device,
			 const struct pool_max_norm_reduce *arguments);

/*
 * dx = a dz + b x + c. Reads x once, dy and index through the caches, writes dx once; dx may be x.
 */
struct pool_max_norm_apply {
	const void *dy, *dy2;
	const uint8_t *index;
	const void *x;
	const float *scale, *bias, *a, *b, *c;
	enum device_activation activation;
	void *dx;
	struct pool_shape shape;
	struct columns columns;
	struct pool_dividers by;
};
int pool_max_norm_apply(const struct kernel_device *device,
			const struct pool_max_norm_apply *arguments);

/* Mean of what lies inside. backward: from = dy (to = dx), else from = x (to = y). */
struct pool_average {
	const void *from;
	void *to;
	struct pool_shape shape;
	struct columns columns;
	struct pool_dividers by;
};
int pool_average(const struct kernel_device *device, const struct pool_average *arguments);
int pool_average_backward(const struct kernel_device *device, const struct pool_average *arguments);

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
