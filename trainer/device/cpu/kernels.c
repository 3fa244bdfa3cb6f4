/*
 * Compiled once per instruction set; KERNELS_TABLE and KERNELS_ISA name the result. Written so that
 * the compiler vectorises every inner loop over columns: temporaries are rows of at most
 * KERNEL_WIDTH_MAX floats, one step per loop, so that a pass costs what its memory traffic costs.
 */
#include "trainer/device/cpu/rows.h"
#include "trainer/device/device.h"

#include <math.h>
#include <string.h>

#define FLUSH_ROWS 64 /* rows summed in fp32 before they go into the double sums */

/*
 * Phi(z), the normal distribution's integral, by Abramowitz and Stegun 7.1.26: absolute error below
 * 1e-7.
 */
INLINE float normal_cdf(float z, float *ret_density)
{
	float a = fabsf(z) * 0.70710678f;
	float t = 1.0f / (1.0f + 0.3275911f * a);
	float e = exp_fast(-a * a);
	float p =
		t *
		(0.254829592f +
		 t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
	float tail = 0.5f * p * e;

	*ret_density = 0.39894228f * e;
	return z < 0 ? tail : 1.0f - tail;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void gelu_row(float *restrict z, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		float density, cdf = normal_cdf(z[i], &density);

		z[i] *= cdf;
	}
}

/* g *= GELU'(z) = Phi(z) + z phi(z) */
static void gelu_slope_row(float *restrict g, const float *restrict z, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		float density, cdf = normal_cdf(z[i], &density);

		g[i] *= cdf + z[i] * density;
	}
}

INLINE float logistic(float z)
{
	return 1 / (1 + exp_fast(-z));
}

static void logistic_row(float *restrict z, size_t width)
{
	for (size_t i = 0; i < width; i++)
		z[i] = logistic(z[i]);
}

static void logistic_slope_row(float *restrict g, const float *restrict z, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		float s = logistic(z[i]);

		g[i] *= s * (1 - s);
	}
}

INLINE void affine_row(float *restrict to, const float *restrict x, const float *restrict scale,
		       const float *restrict bias, size_t width)
{
	for (size_t i = 0; i < width; i++)
		to[i] = scale[i] * x[i] + bias[i];
}

/* sum += x - shift, square += (x - shift)^2 */
INLINE void moments_row(float *restrict sum, float *restrict square, const float *restrict x,
			const float *restrict shift, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		float d = x[i] - shift[i];

		sum[i] += d;
		square[i] += d * d;
	}
}

static void flush(double *restrict to, float *restrict from, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		to[i] += (double)from[i];
		from[i] = 0;
	}
}

static void kernel_statistics(const void *x, enum element element, size_t rows, size_t stride,
			      size_t width, const float *shift, double *sum, double *square)
{
	float s[KERNEL_WIDTH_MAX], q[KERNEL_WIDTH_MAX], v[KERNEL_WIDTH_MAX];

	memset(s, 0, width * sizeof(float));
	memset(q, 0, width * sizeof(float));
	for (size_t row = 0; row < rows; row++) {
		if (element == ELEMENT_BF16) {
			load_row(v, x, ELEMENT_BF16, row * stride, width);
			moments_row(s, q, v, shift, width);
		} else {
			moments_row(s, q, (const float *)x + row * stride, shift, width);
		}
		if (row % FLUSH_ROWS == FLUSH_ROWS - 1 || row == rows - 1) {
			flush(sum, s, width);
			flush(square, q, width);
		}
	}
}

INLINE void relu_row(float *restrict z, size_t width)
{
	/* written so that a NaN passes */
	for (size_t i = 0; i < width; i++)
		z[i] = z[i] < 0 ? 0 : z[i];
}

INLINE void apply_rows(const struct apply_args *args, enum element x_element, enum element element,
		       size_t rows, size_t stride, size_t width)
{
	float x[KERNEL_WIDTH_MAX], z[KERNEL_WIDTH_MAX];

	for (size_t row = 0; row < rows; row++) {
		size_t at = row * stride;

		load_row(x, args->x, x_element, at, width);
		affine_row(z, x, args->scale, args->bias, width);
		if (args->residual)
			add_row(z, args->residual, element, at, width);
		if (args->activation == DEVICE_RELU)
			relu_row(z, width);
		else if (args->activation == DEVICE_GELU)
			gelu_row(z, width);
		else if (args->activation == DEVICE_LOGISTIC)
			logistic_row(z, width);
		store_row(args->y, z, element, at, width);
	}
}

/* Compiled for each element by itself, so that no loop asks which it is. */
#define BY_ELEMENT(rows_of, args, ...)                                                             \
	((args)->element == ELEMENT_BF16 ? rows_of(args, ELEMENT_BF16, __VA_ARGS__)                \
					 : rows_of(args, ELEMENT_F32, __VA_ARGS__))

static void kernel_apply(const struct apply_args *args, size_t rows, size_t stride, size_t width)
{
	if (args->x_element == ELEMENT_F32 && args->element == ELEMENT_F32)
		apply_rows(args, ELEMENT_F32, ELEMENT_F32, rows, stride, width);
	else if (args->x_element == ELEMENT_BF16 && args->element == ELEMENT_BF16)
		apply_rows(args, ELEMENT_BF16, ELEMENT_BF16, rows, stride, width);
	else
		apply_rows(args, args->x_element, args->element, rows, stride, width);
}

/* g *= 1 where mask > 0, else 0 */
INLINE void mask_row(float *restrict g, const float *restrict mask, size_t width)
{
	for (size_t i = 0; i < width; i++)
		g[i] = mask[i] > 0 ? g[i] : 0;
}

INLINE void mask_affine_row(float *restrict g, const float *restrict x, const float *restrict scale,
			    const float *restrict bias, size_t width)
{
	for (size_t i = 0; i < width; i++)
		g[i] = scale[i] * x[i] + bias[i] > 0 ? g[i] : 0;
}

INLINE void products_row(float *restrict sum, float *restrict product, const float *restrict g,
			 const float *restrict x, const float *restrict mean, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		sum[i] += g[i];
		product[i] += g[i] * (x[i] - mean[i]);
	}
}

/* g *= the slope of an activation that is no ReLU */
INLINE void curve_slope_row(float *restrict g, const float *restrict z, enum slope slope,
			    size_t width)
{
	if (slope == SLOPE_GELU_X)
		gelu_slope_row(g, z, width);
	else
		logistic_slope_row(g, z, width);
}

INLINE void reduce_rows(const struct reduce_args *args, enum element element, size_t rows,
			size_t stride, size_t width, double *sum, double *product)
{
	float s[KERNEL_WIDTH_MAX], p[KERNEL_WIDTH_MAX], g[KERNEL_WIDTH_MAX], x[KERNEL_WIDTH_MAX],
		z[KERNEL_WIDTH_MAX];

	memset(s, 0, width * sizeof(float));
	memset(p, 0, width * sizeof(float));
	for (size_t row = 0; row < rows; row++) {
		size_t at = row * stride;

		load_row(g, args->gradient[0], element, at, width);
		if (args->gradient[1])
			add_row(g, args->gradient[1], element, at, width);
		if (args->x)
			load_row(x, args->x, element, at, width);
		if (args->slope == SLOPE_RELU_Y) {
			load_row(z, args->y, element, at, width);
			mask_row(g, z, width);
		} else if (args->slope == SLOPE_RELU_X) {
			mask_affine_row(g, x, args->scale, args->bias, width);
		} else if (args->slope != SLOPE_ONE) {
			affine_row(z, x, args->scale, args->bias, width);
			if (args->residual)
				add_row(z, args->residual, element, at, width);
			curve_slope_row(g, z, args->slope, width);
		}
		if (args->dz)
			store_row(args->dz, g, element, at, width);
		if (!sum)
			continue;
		if (args->mean)
			products_row(s, p, g, x, args->mean, width);
		else
			for (size_t i = 0; i < width; i++)
				s[i] += g[i];
		if (row % FLUSH_ROWS == FLUSH_ROWS - 1 || row == rows - 1) {
			flush(sum, s, width);
			if (args->mean)
				flush(product, p, width);
		}
	}
}

static void kernel_reduce(const struct reduce_args *args, size_t rows, size_t stride, size_t width,
			  double *sum, double *product)
{
	BY_ELEMENT(reduce_rows, args, rows, stride, width, sum, product);
}

INLINE void combine_row(float *restrict g, const float *restrict x, const float *restrict a,
			const float *restrict b, const float *restrict c, size_t width)
{
	for (size_t i = 0; i < width; i++)
		g[i] = a[i] * g[i] + (b[i] * x[i] + c[i]);
}

INLINE void dx_rows(const struct dx_args *args, enum element element, size_t rows, size_t stride,
		    size_t width)
{
	float g[KERNEL_WIDTH_MAX], x[KERNEL_WIDTH_MAX], z[KERNEL_WIDTH_MAX];

	for (size_t row = 0; row < rows; row++) {
		size_t at = row * stride;

		load_row(g, args->gradient, element, at, width);
		load_row(x, args->x, element, at, width);
		if (args->slope == SLOPE_RELU_X) {
			mask_affine_row(g, x, args->scale, args->bias, width);
		} else if (args->slope != SLOPE_ONE) {
			affine_row(z, x, args->scale, args->bias, width);
			curve_slope_row(g, z, args->slope, width);
		}
		combine_row(g, x, args->a, args->b, args->c, width);
		store_row(args->dx, g, element, at, width);
	}
}

static void kernel_dx(const struct dx_args *args, size_t rows, size_t stride, size_t width)
{
	BY_ELEMENT(dx_rows, args, rows, stride, width);
}

/* Sums of a row, of every LANES-th element, so that they vectorise. */
#define LANES 16

INLINE void sum_row(float *restrict lanes, const float *restrict x, size_t width)
{
	size_t i = 0;

	for (; i + LANES <= width; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lanes[j] += x[i + j];
	for (size_t j = 0; i + j < width; j++)
		lanes[j] += x[i + j];
}

static float mean_of(const float *lanes, size_t channels)
{
	double sum = 0;

	for (size_t j = 0; j < LANES; j++)
		sum += (double)lanes[j];
	return (float)(sum / (double)channels);
}

/* (x - mean) * by */
INLINE void center_row(float *restrict x, float mean, float by, size_t width)
{
	for (size_t i = 0; i < width; i++)
		x[i] = (x[i] - mean) * by;
}

/* to *= by */
INLINE void multiply_row(float *restrict to, const float *restrict by, size_t width)
{
	for (size_t i = 0; i < width; i++)
		to[i] *= by[i];
}

/* about NULL: of the elements; else of squares of their distances from it. */
INLINE float row_mean(const void *x, enum element element, size_t first, size_t channels,
		      const float *about)
{
	float lanes[LANES] = {0}, v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
		size_t width = least(channels - at, KERNEL_WIDTH_MAX);

		load_row(v, x, element, first + at, width);
		for (size_t i = 0; about && i < width; i++)
			v[i] = (v[i] - *about) * (v[i] - *about);
		sum_row(lanes, v, width);
	}
	return mean_of(lanes, channels);
}

INLINE void layer_norm_rows(const struct layer_norm_args *args, enum element element, size_t rows,
			    size_t channels)
{
	float v[KERNEL_WIDTH_MAX], y[KERNEL_WIDTH_MAX];

	for (size_t row = 0; row < rows; row++) {
		size_t first = row * channels;
		/* the variance about the mean: that may be large against the deviation */
		float mean = row_mean(args->x, element, first, channels, NULL);
		float variance = row_mean(args->x, element, first, channels, &mean);
		float deviation = 1 / sqrtf(variance + args->epsilon);

		if (args->mean) {
			args->mean[row] = mean;
			args->deviation[row] = deviation;
		}
		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = least(channels - at, KERNEL_WIDTH_MAX);

			load_row(v, args->x, element, first + at, width);
			center_row(v, mean, deviation, width);
			affine_row(y, v, args->gamma + at, args->beta + at, width);
			store_row(args->y, y, element, first + at, width);
		}
	}
}

static void kernel_layer_norm(const struct layer_norm_args *args, size_t rows, size_t channels)
{
	BY_ELEMENT(layer_norm_rows, args, rows, channels);
}

/* dbeta += g, dgamma += g * xhat */
INLINE void gradients_row(double *restrict dbeta, double *restrict dgamma, const float *restrict g,
			  const float *restrict xhat, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		dbeta[i] += (double)g[i];
		dgamma[i] += (double)(g[i] * xhat[i]);
	}
}

INLINE void layer_norm_backward_rows(const struct layer_norm_backward_args *args,
				     enum element element, size_t rows, size_t channels,
				     double *dbeta, double *dgamma)
{
	float g[KERNEL_WIDTH_MAX], xhat[KERNEL_WIDTH_MAX];

	for (size_t row = 0; row < rows; row++) {
		size_t first = row * channels;
		float mean = args->mean[row], deviation = args->deviation[row];
		float sums[LANES] = {0}, products[LANES] = {0}, sum, product;

		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = least(channels - at, KERNEL_WIDTH_MAX);

			load_row(g, args->gradient, element, first + at, width);
			load_row(xhat, args->x, element, first + at, width);
			center_row(xhat, mean, deviation, width);
			if (dbeta)
				gradients_row(dbeta + at, dgamma + at, g, xhat, width);
			multiply_row(g, args->gamma + at, width);
			sum_row(sums, g, width);
			multiply_row(g, xhat, width);
			sum_row(products, g, width);
		}
		if (!args->dx)
			continue;
		sum = mean_of(sums, channels);
		product = mean_of(products, channels);
		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = least(channels - at, KERNEL_WIDTH_MAX);

			load_row(g, args->gradient, element, first + at, width);
			load_row(xhat, args->x, element, first + at, width);
			center_row(xhat, mean, deviation, width);
			multiply_row(g, args->gamma + at, width);
			for (size_t i = 0; i < width; i++)
				g[i] = deviation * (g[i] - sum - xhat[i] * product);
			store_row(args->dx, g, element, first + at, width);
		}
	}
}

static void kernel_layer_norm_backward(const struct layer_norm_backward_args *args, size_t rows,
				       size_t channels, double *dbeta, double *dgamma)
{
	BY_ELEMENT(layer_norm_backward_rows, args, rows, channels, dbeta, dgamma);
}

/* ---- scale and add ---- */

/*
 * A span is what is worked at in one go: neighbouring elements, of several rows if they are short.
 * What belongs to channels is repeated as often; of the last rows only a part of it is used.
 */
struct span {
	size_t width; /* of all spans but perhaps the last */
	size_t step;  /* elements from one to the next */
	size_t end;
};

/* The factors of `width` elements from the sample's element `at` on. */
INLINE const float *draw_row(float *restrict to, const struct scale_add_args *args, size_t at,
			     size_t width)
{
	draw_quads(to, args->dropout, args->key, args->sample, (uint32_t)(at / 4),
		   (at % 4 + width + 3) / 4);
	return to + at % 4;
}

INLINE void scale_add_spans(const struct scale_add_args *args, enum element element, size_t first,
			    const struct span *span, const float *restrict scale)
{
	float x[KERNEL_WIDTH_MAX], drawn[KERNEL_WIDTH_MAX + 8];

	for (size_t at = first; at < span->end; at += span->step) {
		size_t width = least(span->width, span->end - at);

		load_row(x, args->x, element, at, width);
		multiply_row(x, scale, width);
		if (args->dropout.below)
			multiply_row(x, draw_row(drawn, args, at, width), width);
		if (args->residual)
			add_row(x, args->residual, element, at, width);
		if (args->activation == DEVICE_RELU)
			relu_row(x, width);
		store_row(args->y, x, element, at, width);
	}
}

/* sum += g * x */
INLINE void product_row(float *restrict sum, const float *restrict g, const float *restrict x,
			size_t width)
{
	for (size_t i = 0; i < width; i++)
		sum[i] += g[i] * x[i];
}

/* product: [span's width], added to. */
INLINE void scale_add_backward_spans(const struct scale_add_args *args, enum element element,
				     size_t first, const struct span *span,
				     const float *restrict scale, double *product)
{
	float g[KERNEL_WIDTH_MAX], x[KERNEL_WIDTH_MAX], sum[KERNEL_WIDTH_MAX],
		drawn[KERNEL_WIDTH_MAX + 8];
	size_t rows = 0;

	memset(sum, 0, span->width * sizeof(float));
	for (size_t at = first; at < span->end; at += span->step) {
		size_t width = least(span->width, span->end - at);

		load_row(g, args->gradient[0], element, at, width);
		if (args->gradient[1])
			add_row(g, args->gradient[1], element, at, width);
		if (args->activation == DEVICE_RELU) {
			load_row(x, args->y, element, at, width);
			mask_row(g, x, width);
		}
		if (args->dz)
			store_row(args->dz, g, element, at, width);
		if (args->dropout.below)
			multiply_row(g, draw_row(drawn, args, at, width), width);
		if (product) {
			load_row(x, args->x, element, at, width);
			product_row(sum, g, x, width);
			if (++rows % FLUSH_ROWS == 0)
				flush(product, sum, span->width);
		}
		if (args->dx) {
			multiply_row(g, scale, width);
			store_row(args->dx, g, element, at, width);
		}
	}
	if (product)
		flush(product, sum, span->width);
}

/* Of rows that are short enough: as many as fit at once, with scales repeated. */
INLINE void fold_span(const struct scale_add_args *args, struct span *span, float *ret_scale)
{
	size_t fold = least(KERNEL_WIDTH_MAX / args->channels, args->rows);

	span->width = span->step = fold * args->channels;
	span->end = args->rows * args->channels;
	for (size_t i = 0; i < fold; i++)
		memcpy(ret_scale + i * args->channels, args->scale, args->channels * sizeof(float));
}

/* Of longer ones: a range of channels, row by row. The last span ends with the last row's range. */
INLINE void cut_span(const struct scale_add_args *args, struct span *span, size_t first)
{
	span->width = least(KERNEL_WIDTH_MAX, args->channels - first);
	span->step = args->channels;
	span->end = (args->rows - 1) * args->channels + first + span->width;
}

INLINE void scale_add_sample(const struct scale_add_args *args, enum element element)
{
	float scale[KERNEL_WIDTH_MAX];
	struct span span;

	if (args->channels <= KERNEL_WIDTH_MAX) {
		fold_span(args, &span, scale);
		scale_add_spans(args, element, 0, &span, scale);
		return;
	}
	for (size_t first = 0; first < args->channels; first += KERNEL_WIDTH_MAX) {
		cut_span(args, &span, first);
		scale_add_spans(args, element, first, &span, args->scale + first);
	}
}

static void kernel_scale_add(const struct scale_add_args *args)
{
	if (args->element == ELEMENT_BF16)
		scale_add_sample(args, ELEMENT_BF16);
	else
		scale_add_sample(args, ELEMENT_F32);
}

INLINE void scale_add_backward_sample(const struct scale_add_args *args, enum element element,
				      double *product)
{
	float scale[KERNEL_WIDTH_MAX];
	double folded[KERNEL_WIDTH_MAX];
	struct span span;

	if (args->channels <= KERNEL_WIDTH_MAX) {
		fold_span(args, &span, scale);
		memset(folded, 0, span.width * sizeof(double));
		scale_add_backward_spans(args, element, 0, &span, scale, product ? folded : NULL);
		for (size_t i = 0; product && i < span.width; i++)
			product[i % args->channels] += folded[i];
		return;
	}
	for (size_t first = 0; first < args->channels; first += KERNEL_WIDTH_MAX) {
		cut_span(args, &span, first);
		scale_add_backward_spans(args, element, first, &span, args->scale + first,
					 product ? product + first : NULL);
	}
}

static void kernel_scale_add_backward(const struct scale_add_args *args, double *product)
{
	if (args->element == ELEMENT_BF16)
		scale_add_backward_sample(args, ELEMENT_BF16, product);
	else
		scale_add_backward_sample(args, ELEMENT_F32, product);
}

static void kernel_add(void *to, const void *from, enum element element, size_t count)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < count; at += KERNEL_WIDTH_MAX) {
		size_t width = least(count - at, KERNEL_WIDTH_MAX);

		load_row(v, to, element, at, width);
		add_row(v, from, element, at, width);
		store_row(to, v, element, at, width);
	}
}

static void kernel_convert(void *to, enum element to_element, const void *from,
			   enum element from_element, size_t count)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < count; at += KERNEL_WIDTH_MAX) {
		size_t width = least(count - at, KERNEL_WIDTH_MAX);

		load_row(v, from, from_element, at, width);
		store_row(to, v, to_element, at, width);
	}
}

static void kernel_normalize(void *y, enum element element, uint32_t channels, const uint8_t *x,
			     uint32_t x_channels, size_t positions, const float *scale,
			     const float *bias)
{
	float v[KERNEL_WIDTH_MAX], s[KERNEL_WIDTH_MAX], b[KERNEL_WIDTH_MAX];
	size_t per_row = KERNEL_WIDTH_MAX / channels;

	for (size_t i = 0; i < per_row * channels; i++) {
		s[i] = scale[i % channels];
		b[i] = bias[i % channels];
	}
	for (size_t at = 0; at < positions; at += per_row) {
		size_t width = least(positions - at, per_row) * channels;

		if (channels == x_channels) {
			for (size_t i = 0; i < width; i++)
				v[i] = (float)x[at * channels + i];
		} else {
			for (size_t p = 0; p < width / channels; p++)
				for (uint32_t c = 0; c < channels; c++)
					v[p * channels + c] = (float)x[(at + p) * x_channels + c];
		}
		for (size_t i = 0; i < width; i++)
			v[i] = v[i] * s[i] + b[i];
		store_row(y, v, element, at * channels, width);
	}
}

static void kernel_column_mean(void *y, const void *x, enum element element, size_t rows,
			       size_t width)
{
	float sum[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < width; at += KERNEL_WIDTH_MAX) {
		size_t part = least(width - at, KERNEL_WIDTH_MAX);

		memset(sum, 0, part * sizeof(float));
		for (size_t row = 0; row < rows; row++)
			add_row(sum, x, element, row * width + at, part);
		for (size_t i = 0; i < part; i++)
			sum[i] *= 1.0f / (float)rows;
		store_row(y, sum, element, at, part);
	}
}

static void kernel_column_spread(void *to, const void *gradient, enum element element, size_t rows,
				 size_t width)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < width; at += KERNEL_WIDTH_MAX) {
		size_t part = least(width - at, KERNEL_WIDTH_MAX);

		load_row(v, gradient, element, at, part);
		for (size_t i = 0; i < part; i++)
			v[i] *= 1.0f / (float)rows;
		for (size_t row = 0; row < rows; row++)
			store_row(to, v, element, row * width + at, part);
	}
}

static void kernel_average(float *ema, const float *w, size_t count, float decay)
{
	/* a decay of 0 must copy, also over what was not finite */
	if (decay == 0) {
		memcpy(ema, w, count * sizeof(float));
		return;
	}
	for (size_t i = 0; i < count; i++)
		ema[i] = decay * ema[i] + (1.0f - decay) * w[i];
}

static void kernel_condition(float *gradient, size_t count, float limit, bool centralize)
{
	double lanes[16] = {0}, sum = 0;

	for (size_t i = 0; i < count; i++)
		gradient[i] = gradients_clip(gradient[i], limit);
	if (!centralize)
		return;
	for (size_t i = 0; i < count; i++)
		lanes[i % 16] += (double)gradient[i];
	for (size_t j = 0; j < 16; j++)
		sum += lanes[j];
	for (size_t i = 0; i < count; i++)
		gradient[i] -= (float)(sum / (double)count);
}

/* Of one optimizer, whose update of an element becomes the body of the loop. */
INLINE void
update_all(const struct update_args *args, unsigned states,
	   void (*update)(struct update_element *element, const struct update_rates *rates),
	   float (*ratio)(const struct update_rates *rates, const float *norm),
	   float (*length)(const struct update_rates *rates, uint32_t rows, uint32_t columns))
{
	struct update_rates rates = update_rates_of(args->hyper, args->optimizer, args->decision,
						    args->group, args->lr_factor, args->start);
	float *restrict w = args->w;
	const float *restrict g = args->g;
	float *state[DEVICE_STATES_MAX];

	for (unsigned s = 0; s < states; s++)
		state[s] = args->state[s];
	if (ratio && args->norms) {
		float norm[UPDATE_NORMS];

		for (int n = 0; n < UPDATE_NORMS; n++)
			norm[n] = (float)sqrt(args->norms[n]);
		rates.ratio = ratio(&rates, norm);
	}
	if (length && args->rows) {
		rates.matrix = true;
		rates.ratio = length(&rates, args->rows, args->columns);
	}
	for (size_t i = 0; i < args->count; i++) {
		struct update_element e = {.w = w[i], .g = g[i]};

		for (unsigned s = 0; s < states; s++)
			e.state[s] = state[s][i];
		update(&e, &rates);
		w[i] = e.w;
		for (unsigned s = 0; s < states; s++)
			state[s][i] = e.state[s];
	}
}

/* Of what one optimizer measures of an element. */
INLINE void measure_all(const struct update_args *args, unsigned states,
			void (*measure)(struct update_element element,
					const struct update_rates *rates, float *measured),
			double *squares)
{
	const struct update_rates rates =
		update_rates_of(args->hyper, args->optimizer, args->decision, args->group,
				args->lr_factor, args->start);
	double lanes[UPDATE_NORMS][16] = {{0}};

	for (size_t i = 0; i < args->count; i++) {
		struct update_element e = {.w = args->w[i], .g = args->g[i]};
		float measured[UPDATE_NORMS];

		for (unsigned s = 0; s < states; s++)
			e.state[s] = args->state[s][i];
		measure(e, &rates, measured);
		for (int n = 0; n < UPDATE_NORMS; n++)
			lanes[n][i % 16] += (double)measured[n] * (double)measured[n];
	}
	for (int n = 0; n < UPDATE_NORMS; n++) {
		squares[n] = 0;
		for (size_t j = 0; j < 16; j++)
			squares[n] += lanes[n][j];
	}
}

/* Of one optimizer by_matrix. */
INLINE void direct_all(const struct update_args *args, unsigned states,
		       float (*direction)(struct update_element *element,
					  const struct update_rates *rates),
		       float *restrict gradient)
{
	const struct update_rates rates =
		update_rates_of(args->hyper, args->optimizer, args->decision, args->group,
				args->lr_factor, args->start);
	const float *restrict w = args->w;
	float *state[DEVICE_STATES_MAX];

	for (unsigned s = 0; s < states; s++)
		state[s] = args->state[s];
	for (size_t i = 0; i < args->count; i++) {
		struct update_element e = {.w = w[i], .g = gradient[i]};

		for (unsigned s = 0; s < states; s++)
			e.state[s] = state[s][i];
		gradient[i] = direction(&e, &rates);
		for (unsigned s = 0; s < states; s++)
			state[s][i] = e.state[s];
	}
}

#define RATIO_plain(name)     NULL, NULL
#define RATIO_by_tensor(name) optimizer_##name##_ratio, NULL
#define RATIO_by_matrix(name) NULL, optimizer_##name##_length
#define UPDATE(constant, name, norms, states, ...)                                                 \
	static void update_##name(const struct update_args *args)                                  \
	{                                                                                          \
		update_all(args, states, optimizer_##name, RATIO_##norms(name));                   \
	}
DEVICE_OPTIMIZERS(UPDATE)
#undef UPDATE

#define DIRECT_plain(name, states)
#define DIRECT_by_tensor(name, states)
#define DIRECT_by_matrix(name, states)                                                             \
	static void direct_##name(const struct update_args *args, float *gradient)                 \
	{                                                                                          \
		direct_all(args, states, optimizer_##name##_direction, gradient);                  \
	}
#define DIRECT(constant, name, by, states, ...) DIRECT_##by(name, states)
DEVICE_OPTIMIZERS(DIRECT)
#undef DIRECT

#define MEASURE_plain(name, states)
#define MEASURE_by_matrix(name, states)
#define MEASURE_by_tensor(name, states)                                                            \
	static void measure_##name(const struct update_args *args, double *squares)                \
	{                                                                                          \
		measure_all(args, states, optimizer_##name##_measure, squares);                    \
	}
#define MEASURE(constant, name, norms, states, ...) MEASURE_##norms(name, states)
DEVICE_OPTIMIZERS(MEASURE)
#undef MEASURE

static double kernel_sum_squares(const float *x, size_t count)
{
	double lanes[16] = {0}, sum = 0;
	size_t i = 0;

	for (; i + 16 <= count; i += 16)
		for (size_t j = 0; j < 16; j++)
			lanes[j] += (double)x[i + j] * (double)x[i + j];
	for (; i < count; i++)
		lanes[0] += (double)x[i] * (double)x[i];
	for (size_t j = 0; j < 16; j++)
		sum += lanes[j];
	return sum;
}

static void count_ranks(const float *z, uint32_t classes, int32_t label, struct loss_sums *sums)
{
	uint32_t rank = 0;

	for (uint32_t i = 0; i < classes; i++)
		rank += z[i] > z[label] || (z[i] == z[label] && (int32_t)i < label);
	/* a comparison with NaN is false: without this a net that diverged would be always right */
	if (!isfinite(z[label]))
		rank = classes;
	sums->top1 += rank < 1;
	sums->top5 += rank < 5;
}

/* One sample of a plain loss: z (scaled logits) becomes the gradient. */
static double loss_row(const struct loss_args *args, float *restrict z, int32_t label)
{
	uint32_t classes = args->classes;
	float smoothing = args->spec->smoothing, largest = z[0], off = smoothing / (float)classes,
	      on = 1 - smoothing + off;
	float grow = args->gradient_scale * args->spec->logit_scale;
	double sum = 0, total = 0, target = (double)z[label];

	for (uint32_t i = 0; i < classes; i++) {
		largest = z[i] > largest ? z[i] : largest;
		total += (double)z[i];
	}
	for (uint32_t i = 0; i < classes; i++)
		z[i] = exp_fast(z[i] - largest);
	for (uint32_t i = 0; i < classes; i++)
		sum += (double)z[i];
	for (uint32_t i = 0; i < classes; i++)
		z[i] = (z[i] * (float)(1 / sum) - off) * grow;
	z[label] -= (on - off) * grow;
	/* -sum_i target_i (z_i - lse): the targets add up to 1 */
	return (double)largest + log(sum) - (double)(on - off) * target - (double)off * total;
}

/* The smoothed target of a sample by class. */
static void loss_target(const struct loss_args *args, size_t row, float *restrict t)
{
	float off = args->spec->smoothing / (float)args->classes, on = 1 - args->spec->smoothing;
	bool dense = args->spec->targets == DEVICE_DENSE;
	const float *targets = dense ? args->targets + row * args->classes : NULL;

	for (uint32_t i = 0; i < args->classes; i++)
		t[i] = (dense ? on * targets[i] : 0) + off;
	if (dense)
		return;
	if (args->spec->targets == DEVICE_TWO_LABELS) {
		t[args->labels[row]] += on * args->shares[row];
		t[args->labels2[row]] += on * (1 - args->shares[row]);
	} else {
		t[args->labels[row]] += on;
	}
}

/* With t times class weights: z becomes the gradient. */
static double softmax_row(const struct loss_args *args, float *restrict z, float *restrict t)
{
	const float *weights = args->spec->class_weights;
	uint32_t classes = args->classes;
	float grow = args->gradient_scale * args->spec->logit_scale * args->spec->temperature,
	      largest = z[0];
	double sum = 0, target = 0, all = 0;

	for (uint32_t i = 0; weights && i < classes; i++)
		t[i] *= weights[i];
	for (uint32_t i = 0; i < classes; i++) {
		largest = z[i] > largest ? z[i] : largest;
		target += (double)t[i] * (double)z[i];
		all += (double)t[i];
	}
	for (uint32_t i = 0; i < classes; i++)
		z[i] = exp_fast(z[i] - largest);
	for (uint32_t i = 0; i < classes; i++)
		sum += (double)z[i];
	for (uint32_t i = 0; i < classes; i++)
		z[i] = (z[i] * (float)(all / sum) - t[i]) * grow;
	return all * ((double)largest + log(sum)) - target;
}

/* sum of t log t: what a divergence has beyond the cross-entropy. */
static double negative_entropy(const float *t, uint32_t classes)
{
	double sum = 0;

	for (uint32_t i = 0; i < classes; i++)
		if (t[i] > 0)
			sum += (double)t[i] * log((double)t[i]);
	return sum;
}

#define SIGMOIDS 512 /* whose numbers above 1, at most 2, have a finite product */

/*
 * - t log s - (1 - t) log(1 - s) = max(z, 0) - z t + log(1 + e) with e = exp(-|z|): z becomes the
 * gradient. Without class weights one logarithm is taken of many.
 */
static double sigmoid_row(const struct loss_args *args, float *restrict z, const float *restrict t)
{
	const float *weights = args->spec->class_weights;
	float grow = args->gradient_scale * args->spec->logit_scale / (float)args->classes;
	double loss = 0;

	for (uint32_t at = 0; at < args->classes; at += SIGMOIDS) {
		size_t last = at + least(args->classes - at, SIGMOIDS);
		double product = 1;

		for (size_t i = at; i < last; i++) {
			float e = exp_fast(z[i] < 0 ? z[i] : -z[i]);
			float weight = weights ? weights[i] : 1;
			double above = (double)(z[i] > 0 ? z[i] : 0) - (double)z[i] * (double)t[i];

			if (weights)
				above = (double)weight * (above + log1p((double)e));
			else
				product *= 1 + (double)e;
			loss += above;
			z[i] = ((z[i] < 0 ? e : 1) / (1 + e) - t[i]) * (weight * grow);
		}
		loss += log(product);
	}
	return loss / args->classes;
}

/* One sample of any loss: z (logits scaled by all there is) becomes the gradient. */
static double loss_any_row(const struct loss_args *args, size_t row, float *restrict z,
			   float *restrict t)
{
	const struct device_loss_spec *spec = args->spec;
	double entropy;

	loss_target(args, row, t);
	if (spec->kind == DEVICE_SIGMOID)
		return sigmoid_row(args, z, t);
	if (spec->kind == DEVICE_SOFTMAX)
		return softmax_row(args, z, t);
	entropy = negative_entropy(t, args->classes);
	return (softmax_row(args, z, t) + entropy) * (double)spec->temperature *
	       (double)spec->temperature;
}

static void kernel_loss(const struct loss_args *args, struct loss_sums *sums)
{
	const struct device_loss_spec *spec = args->spec;
	float *z = args->scratch, scale = spec->logit_scale / spec->temperature;

	for (size_t row = 0; row < args->rows; row++) {
		size_t at = row * args->classes;
		int32_t label = args->labels[row];
		double loss = 0;

		if (label < 0 || label >= (int32_t)args->classes) {
			memset(z, 0, args->classes * sizeof(float));
		} else {
			load_row(z, args->logits, args->logits_element, at, args->classes);
			for (uint32_t i = 0; i < args->classes; i++)
				z[i] *= scale;
			count_ranks(z, args->classes, label, sums);
			loss = args->plain ? loss_row(args, z, label)
					   : loss_any_row(args, row, z, z + args->classes);
			sums->samples++;
			sums->loss += loss;
		}
		args->losses[row] = (float)loss;
		if (args->gradient)
			store_row(args->gradient, z, args->gradient_element, at, args->classes);
	}
}

static bool kernel_all_finite(const void *x, enum element element, size_t count)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < count; at += KERNEL_WIDTH_MAX) {
		size_t width = least(count - at, KERNEL_WIDTH_MAX);
		uint32_t bad = 0;

		load_row(v, x, element, at, width);
		for (size_t i = 0; i < width; i++)
			bad |= (float_bits(v[i]) & 0x7f800000) == 0x7f800000;
		if (bad)
			return false;
	}
	return true;
}

const struct kernels KERNELS_TABLE = {
	.isa = KERNELS_ISA,
	.statistics = kernel_statistics,
	.apply = kernel_apply,
	.reduce = kernel_reduce,
	.dx = kernel_dx,
	.layer_norm = kernel_layer_norm,
	.layer_norm_backward = kernel_layer_norm_backward,
	.attention = KERNELS_NAMED(attention),
	.attention_backward = KERNELS_NAMED(attention_backward),
	.depthwise = KERNELS_NAMED(depthwise),
	.scale_add = kernel_scale_add,
	.scale_add_backward = kernel_scale_add_backward,
	.add = kernel_add,
	.convert = kernel_convert,
	.normalize = kernel_normalize,
	.column_mean = kernel_column_mean,
	.column_spread = kernel_column_spread,
#define UPDATE(constant, name, ...) [DEVICE_##constant] = update_##name,
	.update = {DEVICE_OPTIMIZERS(UPDATE)},
#undef UPDATE
#define DIRECTED_plain(name)            NULL
#define DIRECTED_by_tensor(name)        NULL
#define DIRECTED_by_matrix(name)        direct_##name
#define DIRECT(constant, name, by, ...) [DEVICE_##constant] = DIRECTED_##by(name),
	.direct = {DEVICE_OPTIMIZERS(DIRECT)},
#undef DIRECT
#define MEASURED_plain(name)                NULL
#define MEASURED_by_matrix(name)            NULL
#define MEASURED_by_tensor(name)            measure_##name
#define MEASURE(constant, name, norms, ...) [DEVICE_##constant] = MEASURED_##norms(name),
	.measure = {DEVICE_OPTIMIZERS(MEASURE)},
#undef MEASURE
	.condition = kernel_condition,
	.average = kernel_average,
	.sum_squares = kernel_sum_squares,
	.loss = kernel_loss,
	.finite = kernel_all_finite,
};
