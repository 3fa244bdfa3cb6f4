/*
 * The CPU backend's inner loops: what oneDNN lacks, or does in more passes over memory than
 * necessary.
 *
 * kernels*.c are compiled once per instruction set (plain C, AVX2 with FMA, AVX-512) into tables of
 * function pointers; kernels_of() selects one, and AVX-512 covers both AVX-512 levels of enum
 * cpu_isa. A function processes the part of a tensor that one task covers, is stateless and
 * allocates nothing.
 *
 * Tensors are matrices [rows][stride], of which `width` columns from the pointer on are processed.
 * Columns are channels, rows are positions. For few channels, callers fold several positions into a
 * row to fill vectors and repeat the per-channel arguments (struct columns in loops.h); hence
 * per-column arrays have `width` elements.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "trainer/device/dropout_rng.h"
#include "trainer/device/ops.h"
#include "trainer/device/optimizers/gradients.h"
#include "trainer/device/optimizers/updates.h"
#include "trainer/device/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* limit on columns per call, so that rows of temporaries fit the L1 cache */
#define KERNEL_WIDTH_MAX 512

enum element { ELEMENT_F32 = 0, ELEMENT_BF16 = 1 };

/*
 * How backward computes the activation's derivative (`slope` below): the condition for a derivative
 * of 1, or the point z at which the derivative is evaluated.
 */
enum slope {
	SLOPE_ONE = 0,    /* no activation */
	SLOPE_RELU_Y = 1, /* y > 0 */
	SLOPE_RELU_X = 2, /* scale * x + bias > 0 */
	/* at z = scale * x + bias [+ residual] */
	SLOPE_GELU_X = 3,
	SLOPE_SIGMOID_X = 4,
};

struct apply_args {
	const void *x; /* [rows][stride] */
	enum element x_element;
	const void *residual;      /* [rows][stride], or NULL */
	void *y;                   /* [rows][stride]; may be x if both have the same element type */
	enum element element;      /* of residual and y */
	const float *scale, *bias; /* [width] */
	int activation;            /* enum device_activation */
};

struct reduce_args {
	/* [rows][stride] each; their sum is the gradient of y; the second may be NULL */
	const void *gradient[2];
	/* [rows][stride]; NULL if neither the slope nor the sum `product` needs it */
	const void *x;
	const void *y;        /* [rows][stride] for SLOPE_RELU_Y */
	const void *residual; /* [rows][stride] for slopes other than ReLU's, or NULL */
	/* [rows][stride]: gradient * slope; NULL to skip; may be gradient[0] */
	void *dz;
	enum element element; /* of all tensors */
	enum slope slope;
	const float *scale, *bias; /* [width] for SLOPE_*_X */
	const float *mean;         /* [width], or NULL if the sum `product` is not needed */
};

struct dx_args {
	const void *gradient; /* [rows][stride] */
	const void *x;        /* [rows][stride] */
	/* [rows][stride] = a * gradient * slope + b * x + c; may be gradient */
	void *dx;
	enum element element; /* of all tensors */
	/* SLOPE_ONE (gradient is already dz), or SLOPE_*_X without residual */
	enum slope slope;
	const float *scale, *bias; /* [width] for SLOPE_*_X */
	const float *a, *b, *c;    /* [width] */
};

/* Whole matrices [rows][channels]. */
struct layer_norm_args {
	const void *x;
	void *y;                   /* may be x */
	enum element element;      /* of both */
	const float *gamma, *beta; /* [channels] */
	/* [rows], deviation = 1 / sqrt(variance + epsilon); both may be NULL */
	float *mean, *deviation;
	float epsilon;
};

struct layer_norm_backward_args {
	const void *gradient, *x;
	void *dx;                      /* may be gradient; NULL to skip */
	enum element element;          /* of all tensors */
	const float *gamma;            /* [channels] */
	const float *mean, *deviation; /* [rows] */
};

#define ATTENTION_ROWS 66 /* queries per block of scores */
/* floats; scratch rows are padded to whole vectors of any instruction set */
#define ATTENTION_PADDING 16
#define ATTENTION_PADDED(n)                                                                        \
	(((size_t)(n) + ATTENTION_PADDING - 1) / ATTENTION_PADDING * ATTENTION_PADDING)

/* One head of one sample: t rows of d channels, `stride` apart in qkv and its gradient. */
struct attention_args {
	const void *q, *k, *v;
	void *y;              /* rows are y_stride apart, as in gradient */
	enum element element; /* of all tensors above */
	float *log_sum;       /* [t] log-sum-exp of scaled scores; NULL allowed in forward */
	float scale;          /* of scores */
	size_t t, d, stride, y_stride;
	float *scratch; /* attention_scratch() bytes, aligned to 64 */
	/* dropout of attention weights; dropout.below is 0 for none */
	struct dropout_rate dropout;
	struct dropout_key key;
	uint32_t sample, head;
	/* backward */
	const void *gradient;
	void *dq, *dk, *dv;
};

/* Positions of one sample: whole matrices [rows][channels]. */
struct scale_add_args {
	const void *x;        /* backward: NULL if `product` is NULL */
	const void *residual; /* forward: added, or NULL */
	/* backward: summed; the second may be NULL */
	const void *gradient[2];
	/* forward: output, may be x or residual. Backward: input for a ReLU, else NULL */
	void *y;
	void *dz;                          /* NULL to skip; dz and dx may be one of the gradients */
	void *dx;                          /* NULL to skip */
	enum element element;              /* of all tensors */
	enum device_activation activation; /* identity or ReLU */
	size_t rows;
	uint32_t channels;
	const float *scale; /* [channels] */
	/* dropout of elements; dropout.below is 0 for none */
	struct dropout_rate dropout;
	struct dropout_key key;
	uint32_t sample;
};

#define DEPTHWISE_BLOCK      16 /* channels */
#define DEPTHWISE_WINDOW_MAX 7

/* One sample and one block of channels. */
struct depthwise_args {
	const float *x;        /* [p + window - 1][q + window - 1][DEPTHWISE_BLOCK]: padded */
	const float *gradient; /* of the result: [p][q] positions, `stride` floats apart */
	size_t stride;
	size_t p, q;
	uint32_t window; /* 5 or 7, in both dimensions */
};

#define MAX_POOL_TAPS 256

/* One image. */
struct max_pool_args {
	const float *x;        /* [h][w][c] */
	float *y;              /* [p][q][c] */
	uint8_t *taps;         /* [p][q][c], index within the window of the maximum */
	const float *gradient; /* [p][q][c] */
	float *dx;             /* [h][w][c] */
	size_t h, w, c, p, q;
	/* windows have at most MAX_POOL_TAPS elements, at least one inside x */
	size_t window_h, window_w, stride, pad;
};

#define WINOGRAD_CHANNELS 16
#define WINOGRAD_TILE     4 /* outputs per tile, in each dimension */
#define WINOGRAD_PATCH    6 /* inputs per tile, in each dimension */
#define WINOGRAD_POINTS   (WINOGRAD_PATCH * WINOGRAD_PATCH)

/* Transforms between a tile's pixels and its points (kernels_winograd.c). */
enum winograd_transform {
	WINOGRAD_INPUT,            /* 6 x 6 pixels to 6 x 6 points */
	WINOGRAD_OUTPUT,           /* 6 x 6 points to 4 x 4 pixels */
	WINOGRAD_GRADIENT,         /* 4 x 4 pixels to 6 x 6 points */
	WINOGRAD_WEIGHTS,          /* 3 x 3 window to 6 x 6 points */
	WINOGRAD_WEIGHTS_GRADIENT, /* 6 x 6 points to 3 x 3 window */
};

/* Array of WINOGRAD_CHANNELS-float vectors, with strides in floats. */
struct winograd_array {
	float *v;
	ptrdiff_t row, column;
};

#define PRODUCT_PANEL 16

/* c = a b; += with adds. */
struct product_args {
	const float *a; /* element (i, k) at i * a_row + k * a_step */
	size_t a_row, a_step;
	const float *b; /* [panels][depth][PRODUCT_PANEL], aligned to 64 */
	size_t b_panel; /* floats between panels */
	float *c;       /* [rows][panels * PRODUCT_PANEL], rows c_row apart, aligned to 64 */
	size_t c_row;
	size_t rows, depth, panels;
	bool adds;
};

struct update_args {
	float *w;       /* [count] master */
	const float *g; /* [count] */
	/* [count] each; NULL for states that the parameter lacks */
	float *state[DEVICE_STATES_MAX];
	/*
	 * [UPDATE_NORMS] sums of squares over the tensor, for the trust ratio of by_tensor
	 * optimizers; NULL if the tensor has none
	 */
	const double *norms;
	/* shape of the matrix if g holds orthogonalised elements; 0 if g holds the gradient */
	uint32_t rows, columns;
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
	float *losses; /* [rows], 0 for samples without a label */
	/* [rows], as in struct device_target_arrays */
	const int32_t *labels; /* outside 0..classes-1 for none */
	const int32_t *labels2;
	const float *shares, *targets, *teacher;
	size_t rows;
	uint32_t classes;
	const struct device_loss_spec *spec;
	bool plain;           /* device_loss_is_plain() */
	float gradient_scale; /* 1 / loss divisor of the whole batch */
	float teacher_scale;  /* loss divisor / labelled samples */
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
	 * - dz = (gradient[0] + gradient[1]) * slope
	 * - sum[i] += dz over rows; [width], or NULL
	 * - product[i] += dz * (x - mean[i]) over rows; [width]
	 */
	void (*reduce)(const struct reduce_args *args, size_t rows, size_t stride, size_t width,
		       double *sum, double *product);
	void (*dx)(const struct dx_args *args, size_t rows, size_t stride, size_t width);
	/* y = (x - mean) * deviation * gamma + beta, row by row */
	void (*layer_norm)(const struct layer_norm_args *args, size_t rows, size_t channels);
	/*
	 * With g = gradient * gamma, xhat = (x - mean) * deviation, and mean() over a row's
	 * channels:
	 * - dx = deviation * (g - mean(g) - xhat * mean(g * xhat))
	 * - dbeta += gradient, dgamma += gradient * xhat, over rows; [channels], or both NULL
	 */
	void (*layer_norm_backward)(const struct layer_norm_backward_args *args, size_t rows,
				    size_t channels, double *dbeta, double *dgamma);
	/* y = softmax(scale q k^T) v */
	void (*attention)(const struct attention_args *args);
	/* dq, dk and dv from gradient, y and log_sum of the forward pass */
	void (*attention_backward)(const struct attention_args *args);
	/* y = activation(residual + scale * x * d), where d is the dropout factor */
	void (*scale_add)(const struct scale_add_args *args);
	/*
	 * With dropout factors d:
	 * - dz = gradient[0] + gradient[1]; with a ReLU, 0 unless y > 0
	 * - dx = scale * dz * d
	 * - product[i] += dz * x * d over rows; [channels], or NULL
	 */
	void (*scale_add_backward)(const struct scale_add_args *args, double *product);
	/* sum [window][window][DEPTHWISE_BLOCK] += x * gradient, over p and q */
	void (*depthwise)(const struct depthwise_args *args, float *sum);
	/* Computes y, and taps unless NULL, from x. */
	void (*max_pool)(const struct max_pool_args *args);
	/* dx from gradient and taps */
	void (*max_pool_backward)(const struct max_pool_args *args);
	/* The arrays must not overlap. */
	void (*winograd)(enum winograd_transform transform, struct winograd_array from,
			 struct winograd_array to);
	void (*product)(const struct product_args *args);
	/* to[i] += from[i] */
	void (*add)(void *to, const void *from, enum element element, size_t count);
	/* Converts between precisions. */
	void (*convert)(void *to, enum element to_element, const void *from,
			enum element from_element, size_t count);
	/*
	 * y = scale * x + bias: x is [positions][x_channels], y is [positions][channels] in type
	 * `element`, scale and bias are [channels]
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
	/* Clips elements to -limit..limit, then subtracts their mean if centralize. */
	void (*condition)(float *gradient, size_t count, float limit, bool centralize);
	/*
	 * Replaces gradient[count] by optimizer_NAME_direction(), for by_matrix optimizers; NULL
	 * for others.
	 */
	void (*direct[DEVICE_OPTIMIZER_COUNT])(const struct update_args *args, float *gradient);
	/*
	 * Sums of squares of the results of optimizer_NAME_measure(), for by_tensor optimizers;
	 * NULL for others.
	 */
	void (*measure[DEVICE_OPTIMIZER_COUNT])(const struct update_args *args,
						double squares[UPDATE_NORMS]);
	/* ema = decay * ema + (1 - decay) * w */
	void (*average)(float *ema, const float *w, size_t count, float decay);
	/* The result is non-finite if and only if an element is. */
	double (*sum_squares)(const float *x, size_t count);
	void (*loss)(const struct loss_args *args, struct loss_sums *sums);
	bool (*finite)(const void *x, enum element element, size_t count);
};

extern const struct kernels kernels_c;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;

/* Returns the table for an instruction set, which the CPU must support. */
const struct kernels *kernels_of(enum cpu_isa isa);

static inline size_t element_size(enum element element)
{
	return element == ELEMENT_BF16 ? 2 : 4;
}

/* Scratch bytes for either pass. */
static inline size_t attention_scratch(size_t t, size_t d)
{
	size_t columns = ATTENTION_PADDED(t), width = ATTENTION_PADDED(d);

	return (5 * columns * width + ATTENTION_ROWS * (3 * width + 2 * columns) + columns) *
	       sizeof(float);
}
