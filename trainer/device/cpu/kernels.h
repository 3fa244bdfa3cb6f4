/*
 * The CPU backend's own inner loops: what oneDNN does not do, or does in more passes over memory
 * than needed.
 *
 * kernels*.c are compiled once per instruction set (plain C, AVX2 with FMA, AVX-512) into a table
 * of function pointers that kernels_of() picks from; AVX-512 is both levels that the base has of
 * it. Every function is one thread's share of the work on plain arguments, keeps no state and
 * allocates nothing.
 *
 * Tensors are matrices [rows][stride], of which `width` columns from the pointer on are worked at.
 * Columns are channels; rows are positions. Because a handful of channels would make poor vectors,
 * callers fold several positions into one row and repeat the per-channel arguments (struct columns
 * in loops.h); hence every per-column array has `width` elements.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "trainer/device/draws.h"
#include "trainer/device/optimizers/gradients.h"
#include "trainer/device/optimizers/updates.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* columns of one call: a row of temporaries stays in the first-level cache */
#define KERNEL_WIDTH_MAX 512

enum element { ELEMENT_F32 = 0, ELEMENT_BF16 = 1 };

/* How the gradient passes the activation: which z it is taken at, and where z comes from. */
enum slope {
	SLOPE_ONE = 0,    /* no activation */
	SLOPE_RELU_Y = 1, /* y > 0 */
	SLOPE_RELU_X = 2, /* scale * x + bias > 0 */
	/* at z = scale * x + bias, + residual if there is one */
	SLOPE_GELU_X = 3,
	SLOPE_SIGMOID_X = 4,
};

struct apply_args {
	const void *x; /* [rows][stride] */
	enum element x_element;
	const void *residual;      /* [rows][stride] of element, or NULL */
	void *y;                   /* [rows][stride]; may be x if of the same element */
	enum element element;      /* of residual and y */
	const float *scale, *bias; /* [width] */
	int activation;            /* enum device_activation */
};

struct reduce_args {
	const void *gradient[2]; /* [rows][stride]; the second may be NULL; summed */
	/* [rows][stride]; NULL if neither the slope nor the second sum needs it */
	const void *x;
	const void *y;        /* [rows][stride] for SLOPE_RELU_Y */
	const void *residual; /* [rows][stride] for slopes that are not a ReLU's, or NULL */
	/* [rows][stride]: gradient * slope; NULL: not stored; may be gradient[0] */
	void *dz;
	enum element element; /* of all */
	enum slope slope;
	const float *scale, *bias; /* [width] for SLOPE_*_X */
	const float *mean;         /* [width], or NULL: the second sum is not wanted */
};

struct dx_args {
	const void *gradient; /* [rows][stride] */
	const void *x;        /* [rows][stride] */
	/* [rows][stride] = a * gradient * slope + b * x + c; may be gradient */
	void *dx;
	enum element element; /* of all */
	/* SLOPE_ONE (gradient is dz already), or SLOPE_*_X without residual */
	enum slope slope;
	const float *scale, *bias; /* [width] for SLOPE_*_X */
	const float *a, *b, *c;    /* [width] */
};

/* Matrices [rows][channels], whole. */
struct layer_norm_args {
	const void *x;
	void *y;                   /* may be x */
	enum element element;      /* of both */
	const float *gamma, *beta; /* [channels] */
	/* [rows], deviation = 1 / sqrt(variance + epsilon); or both NULL */
	float *mean, *deviation;
	float epsilon;
};

struct layer_norm_backward_args {
	const void *gradient, *x;
	void *dx;                      /* may be gradient; NULL: not wanted */
	enum element element;          /* of all */
	const float *gamma;            /* [channels] */
	const float *mean, *deviation; /* [rows] */
};

#define ATTENTION_ROWS    66 /* queries whose scores are at hand */
#define ATTENTION_PADDING 16 /* floats: rows of scratch are whole vectors of any set */
#define ATTENTION_PADDED(n)                                                                        \
	(((size_t)(n) + ATTENTION_PADDING - 1) / ATTENTION_PADDING * ATTENTION_PADDING)

/* One head of one sample: t rows, `stride` apart in qkv and its gradient, of d channels. */
struct attention_args {
	const void *q, *k, *v;
	void *y;              /* rows are y_stride apart, and so in gradient */
	enum element element; /* of all but the following */
	float *log_sum;       /* [t] of exponentials of scaled scores; forward: or NULL */
	float scale;          /* of scores */
	size_t t, d, stride, y_stride;
	float *scratch; /* of attention_scratch() bytes, aligned to 64 */
	/* factors of probabilities, drawn; dropout.below 0: all are 1 */
	struct draws_drop dropout;
	struct draws_key key;
	uint32_t sample, head;
	/* backward */
	const void *gradient;
	void *dq, *dk, *dv;
};

/* Positions of one sample: matrices [rows][channels], whole. */
struct scale_add_args {
	const void *x;        /* backward: NULL if `product` is */
	const void *residual; /* forward: added; or NULL */
	/* the second may be NULL; summed */
	const void *gradient[2];
	/* forward: written, may be x or residual. Backward: for a ReLU, else NULL */
	void *y;
	void *dz;                          /* NULL: not stored; may be a gradient, as dx may */
	void *dx;                          /* NULL: not wanted */
	enum element element;              /* of all */
	enum device_activation activation; /* identity or ReLU */
	size_t rows;
	uint32_t channels;
	const float *scale; /* [channels] */
	/* factors of elements, drawn; dropout.below 0: all are 1 */
	struct draws_drop dropout;
	struct draws_key key;
	uint32_t sample;
};

#define DEPTHWISE_BLOCK      16 /* channels */
#define DEPTHWISE_WINDOW_MAX 7

/* One sample's, of a block of channels. */
struct depthwise_args {
	const float *x;        /* [p + window - 1][q + window - 1][DEPTHWISE_BLOCK]: padded */
	const float *gradient; /* [p][q], `stride` apart, of the result */
	size_t stride;
	size_t p, q;
	uint32_t window; /* 5 or 7, both ways */
};

#define MAX_POOL_TAPS 256

/* One image's. */
struct max_pool_args {
	const float *x;        /* [h][w][c] */
	float *y;              /* [p][q][c] */
	uint8_t *taps;         /* [p][q][c], which of a window it was */
	const float *gradient; /* [p][q][c] */
	float *dx;             /* [h][w][c] */
	size_t h, w, c, p, q;
	size_t window_h, window_w, stride, pad; /* at most MAX_POOL_TAPS; a tap of each is there */
};

#define WINOGRAD_CHANNELS 16
#define WINOGRAD_TILE     4 /* results of a tile, each way */
#define WINOGRAD_PATCH    6 /* what they are computed from */
#define WINOGRAD_POINTS   (WINOGRAD_PATCH * WINOGRAD_PATCH)

/* One of a tile, between its pixels and its points (kernels_winograd.c). */
enum winograd_transform {
	WINOGRAD_INPUT,            /* 6 x 6 pixels to 6 x 6 points */
	WINOGRAD_OUTPUT,           /* 6 x 6 points to 4 x 4 pixels */
	WINOGRAD_GRADIENT,         /* 4 x 4 pixels to 6 x 6 points */
	WINOGRAD_WEIGHTS,          /* 3 x 3 window to 6 x 6 points */
	WINOGRAD_WEIGHTS_GRADIENT, /* 6 x 6 points to 3 x 3 window */
};

/* Of WINOGRAD_CHANNELS floats each, so many floats apart. */
struct winograd_array {
	float *v;
	ptrdiff_t row, column;
};

#define PRODUCT_PANEL 16

/* c = a b, or += with adds. */
struct product_args {
	const float *a; /* element (i, k) at i * a_row + k * a_step */
	size_t a_row, a_step;
	const float *b; /* [panels][depth][PRODUCT_PANEL], aligned to 64 */
	size_t b_panel; /* floats from one to the next */
	float *c;       /* [rows][panels * PRODUCT_PANEL], rows c_row apart, aligned to 64 */
	size_t c_row;
	size_t rows, depth, panels;
	bool adds;
};

struct update_args {
	float *w;                        /* [count] master */
	const float *g;                  /* [count] */
	float *state[DEVICE_STATES_MAX]; /* [count] each, those that the optimizer has of it */
	const double *norms;    /* [UPDATE_NORMS] of the tensor, squared; NULL: it is not scaled */
	uint32_t rows, columns; /* of the matrix whose elements g has; 0: it is the gradient */
	size_t count;
	uint32_t group;
	float lr_factor;
	uint32_t start;
	const struct device_hyper *hyper;
	const struct device_optimizer_spec *optimizer;
	const struct update_decision *decision;
};

enum { LOSS_SCRATCH = 4 };

struct loss_args {
	const void *logits; /* [rows][classes] of logits_element */
	enum element logits_element;
	void *gradient; /* [rows][classes] of gradient_element, or NULL */
	enum element gradient_element;
	float *losses; /* [rows], 0 without a label */
	/* as struct device_target_arrays has them, [rows] */
	const int32_t *labels; /* outside 0..classes-1: none */
	const int32_t *labels2;
	const float *shares, *targets, *teacher;
	size_t rows;
	uint32_t classes;
	const struct device_loss_spec *spec;
	bool plain;           /* device_loss_is_plain() */
	float gradient_scale; /* 1 / what the sum is divided by, over the whole batch */
	float teacher_scale;  /* what the sum is divided by / samples with a label */
	float *scratch;       /* [LOSS_SCRATCH][classes] */
};

struct loss_sums {
	double loss;
	uint32_t samples, top1, top5;
};

struct kernels {
	const char *isa;
	/* sum[i] += x - shift[i], square[i] += (x - shift[i])^2, over rows; [width] */
	void (*statistics)(const void *x, enum element element, size_t rows, size_t stride,
			   size_t width, const float *shift, double *sum, double *square);
	/* y = activation(scale * x + bias + residual) */
	void (*apply)(const struct apply_args *args, size_t rows, size_t stride, size_t width);
	/*
	 * dz = (gradient 0 + gradient 1) * slope; sum[i] += dz, product[i] += dz * (x - mean[i]);
	 * [width]; sum may be NULL
	 */
	void (*reduce)(const struct reduce_args *args, size_t rows, size_t stride, size_t width,
		       double *sum, double *product);
	void (*dx)(const struct dx_args *args, size_t rows, size_t stride, size_t width);
	/* y = (x - mean) * deviation * gamma + beta, row by row */
	void (*layer_norm)(const struct layer_norm_args *args, size_t rows, size_t channels);
	/*
	 * With g = gradient * gamma and xhat = (x - mean) * deviation: dx = deviation * (g - mean
	 * of g - xhat * mean of g * xhat), the means over the row's channels; dbeta += gradient,
	 * dgamma += gradient * xhat over rows, [channels], or both NULL
	 */
	void (*layer_norm_backward)(const struct layer_norm_backward_args *args, size_t rows,
				    size_t channels, double *dbeta, double *dgamma);
	/* y = softmax(scale q k^T) v */
	void (*attention)(const struct attention_args *args);
	/* dq, dk and dv from gradient, y and log_sum of the forward pass */
	void (*attention_backward)(const struct attention_args *args);
	/* y = activation(residual + scale * x * drawn) */
	void (*scale_add)(const struct scale_add_args *args);
	/*
	 * dz = (gradient 0 + gradient 1), for a ReLU where y > 0; dx = scale * dz * drawn;
	 * product[i] += dz * x * drawn over rows, [channels], or NULL
	 */
	void (*scale_add_backward)(const struct scale_add_args *args, double *product);
	/* sum [window][window][DEPTHWISE_BLOCK] += x * gradient, over p and q */
	void (*depthwise)(const struct depthwise_args *args, float *sum);
	/* y and taps, which may be NULL, from x */
	void (*max_pool)(const struct max_pool_args *args);
	/* dx from gradient and taps */
	void (*max_pool_backward)(const struct max_pool_args *args);
	/* The arrays do not overlap. */
	void (*winograd)(enum winograd_transform transform, struct winograd_array from,
			 struct winograd_array to);
	void (*product)(const struct product_args *args);
	/* to[i] += from[i] */
	void (*add)(void *to, const void *from, enum element element, size_t count);
	/* between precisions */
	void (*convert)(void *to, enum element to_element, const void *from,
			enum element from_element, size_t count);
	/*
	 * y [positions][channels] of element = x [positions][x_channels] of bytes * scale + bias;
	 * scale and bias are [channels]
	 */
	void (*normalize)(void *y, enum element element, uint32_t channels, const uint8_t *x,
			  uint32_t x_channels, size_t positions, const float *scale,
			  const float *bias);
	/* y[width] = mean over rows */
	void (*column_mean)(void *y, const void *x, enum element element, size_t rows,
			    size_t width);
	/* dx[rows][width] = gradient[width] / rows */
	void (*column_spread)(void *dx, const void *gradient, enum element element, size_t rows,
			      size_t width);
	void (*update[DEVICE_OPTIMIZER_COUNT])(const struct update_args *args);
	/* Clips, and subtracts the mean of them all. */
	void (*condition)(float *gradient, size_t count, float limit, bool centralize);
	/* What optimizers by_matrix make of gradient[count], in place; NULL for others. */
	void (*direct[DEVICE_OPTIMIZER_COUNT])(const struct update_args *args, float *gradient);
	/* Sums of squares of what optimizers by_tensor measure; NULL for others. */
	void (*measure[DEVICE_OPTIMIZER_COUNT])(const struct update_args *args,
						double squares[UPDATE_NORMS]);
	/* ema = decay * ema + (1 - decay) * w */
	void (*average)(float *ema, const float *w, size_t count, float decay);
	/* Not finite if and only if an element is not. */
	double (*sum_squares)(const float *x, size_t count);
	void (*loss)(const struct loss_args *args, struct loss_sums *sums);
	bool (*finite)(const void *x, enum element element, size_t count);
};

extern const struct kernels kernels_c;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;

/* The table for a set that this CPU has. */
const struct kernels *kernels_of(enum cpu_isa isa);

static inline size_t element_size(enum element element)
{
	return element == ELEMENT_BF16 ? 2 : 4;
}

/* Bytes, of either direction. */
static inline size_t attention_scratch(size_t t, size_t d)
{
	size_t columns = ATTENTION_PADDED(t), width = ATTENTION_PADDED(d);

	return (5 * columns * width + ATTENTION_ROWS * (3 * width + 2 * columns) + columns) *
	       sizeof(float);
}
