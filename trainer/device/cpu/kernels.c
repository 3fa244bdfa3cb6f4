/*
 * Compiled once per instruction set; KERNELS_TABLE and KERNELS_ISA name the result. Inner loops
 * over columns are written to be vectorised by the compiler: temporaries are rows of at most
 * KERNEL_WIDTH_MAX floats and each loop does one operation, so that memory traffic dominates.
 */
#include "trainer/device/cpu/rows.h"
#include "trainer/device/ops.h"

#include <math.h>
#include <string.h>

/*
 * Phi(z), the normal distribution function, by Abramowitz and Stegun 7.1.26: absolute error below
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

static void kernel_apply(const struct apply_args *args, size_t rows, size_t stride, size_t width)
{
	if (args->x_element == ELEMENT_F32 && args->element == ELEMENT_F32)
		apply_rows(args, ELEMENT_F32, ELEMENT_F32, rows, stride, width);
	else if (args->x_element == ELEMENT_BF16 && args->element == ELEMENT_BF16)
		apply_rows(args, ELEMENT_BF16, ELEMENT_BF16, rows, stride, width);
	else
		apply_rows(args, args->x_element, args->element, rows, stride, width);
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

/* g *= derivative of an activation other than ReLU */
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

static void kernel_add(void *to, const void *from, enum element element, size_t count)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < count; at += KERNEL_WIDTH_MAX) {
		size_t width = size_min(count - at, KERNEL_WIDTH_MAX);

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
		size_t width = size_min(count - at, KERNEL_WIDTH_MAX);

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
		size_t width = size_min(positions - at, per_row) * channels;

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
		size_t part = size_min(width - at, KERNEL_WIDTH_MAX);

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
		size_t part = size_min(width - at, KERNEL_WIDTH_MAX);

		load_row(v, gradient, element, at, part);
		for (size_t i = 0; i < part; i++)
			v[i] *= 1.0f / (float)rows;
		for (size_t row = 0; row < rows; row++)
			store_row(to, v, element, row * width + at, part);
	}
}

static void kernel_average(float *ema, const float *w, size_t count, float decay)
{
	/* a decay of 0 must copy, even over non-finite values */
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

/* Makes an optimizer's element update the body of the loop. */
INLINE void
update_elements(const struct update_args *args, unsigned states, const struct update_rates *rates,
		void (*update)(struct update_element *element, const struct update_rates *rates))
{
	float *restrict w = args->w;
	const float *restrict g = args->g;
	float *state[DEVICE_STATES_MAX];

	for (unsigned s = 0; s < states; s++)
		state[s] = args->state[s];
	for (size_t i = 0; i < args->count; i++) {
		struct update_element e = {.w = w[i], .g = g[i]};

		for (unsigned s = 0; s < states; s++)
			e.state[s] = state[s][i];
		update(&e, rates);
		w[i] = e.w;
		for (unsigned s = 0; s < states; s++)
			state[s][i] = e.state[s];
	}
}

/* The update of one optimizer, for all elements. */
INLINE void
update_all(const struct update_args *args, unsigned states,
	   void (*update)(struct update_element *element, const struct update_rates *rates),
	   float (*ratio)(const struct update_rates *rates, const float *norm),
	   float (*length)(const struct update_rates *rates, uint32_t rows, uint32_t columns))
{
	struct update_rates rates = update_rates_of(args->hyper, args->optimizer, args->decision,
						    args->group, args->lr_factor, args->start);

	if (ratio && args->norms) {
		float norm[UPDATE_NORMS];

		for (int n = 0; n < UPDATE_NORMS; n++)
			norm[n] = (float)sqrt(args->norms[n]);
		rates.ratio = ratio(&rates, norm);
	}
	if (length && args->rows) {
		rates.matrix = true;
		rates.ratio = length(&rates, args->rows, args->columns);
		update_elements(args, DEVICE_MATRIX_STATES, &rates, update);
	} else {
		update_elements(args, states, &rates, update);
	}
}

/* Sums of squares of the numbers that one by_tensor optimizer measures. */
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

/* Replaces the gradient by the direction of one by_matrix optimizer. */
INLINE void direct_all(const struct update_args *args,
		       float (*direction)(struct update_element *element,
					  const struct update_rates *rates),
		       float *restrict gradient)
{
	const struct update_rates rates =
		update_rates_of(args->hyper, args->optimizer, args->decision, args->group,
				args->lr_factor, args->start);
	const float *restrict w = args->w;
	float *state[DEVICE_MATRIX_STATES];

	for (unsigned s = 0; s < DEVICE_MATRIX_STATES; s++)
		state[s] = args->state[s];
	for (size_t i = 0; i < args->count; i++) {
		struct update_element e = {.w = w[i], .g = gradient[i]};

		for (unsigned s = 0; s < DEVICE_MATRIX_STATES; s++)
			e.state[s] = state[s][i];
		gradient[i] = direction(&e, &rates);
		for (unsigned s = 0; s < DEVICE_MATRIX_STATES; s++)
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

#define DIRECT_plain(name)
#define DIRECT_by_tensor(name)
#define DIRECT_by_matrix(name)                                                                     \
	static void direct_##name(const struct update_args *args, float *gradient)                 \
	{                                                                                          \
		direct_all(args, optimizer_##name##_direction, gradient);                          \
	}
#define DIRECT(constant, name, by, ...) DIRECT_##by(name)
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

static bool kernel_all_finite(const void *x, enum element element, size_t count)
{
	float v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < count; at += KERNEL_WIDTH_MAX) {
		size_t width = size_min(count - at, KERNEL_WIDTH_MAX);
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
	.layer_norm = KERNELS_NAMED(layer_norm),
	.layer_norm_backward = KERNELS_NAMED(layer_norm_backward),
	.attention = KERNELS_NAMED(attention),
	.attention_backward = KERNELS_NAMED(attention_backward),
	.depthwise = KERNELS_NAMED(depthwise),
	.max_pool = KERNELS_NAMED(max_pool),
	.max_pool_backward = KERNELS_NAMED(max_pool_backward),
	.winograd = KERNELS_NAMED(winograd),
	.product = KERNELS_NAMED(product),
	.scale_add = KERNELS_NAMED(scale_add),
	.scale_add_backward = KERNELS_NAMED(scale_add_backward),
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
	.loss = KERNELS_NAMED(loss),
	.finite = kernel_all_finite,
};
