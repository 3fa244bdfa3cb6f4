/* Layer norm, row by row. */
#include "trainer/device/cpu/rows.h"

#include <math.h>

/* Row sums with LANES partial sums each, so that they vectorise. */
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

/* x = (x - mean) * by */
INLINE void center_row(float *restrict x, float mean, float by, size_t width)
{
	for (size_t i = 0; i < width; i++)
		x[i] = (x[i] - mean) * by;
}

/* Mean of the elements (about NULL), or of their squared distances from *about. */
INLINE float row_mean(const void *x, enum element element, size_t first, size_t channels,
		      const float *about)
{
	float lanes[LANES] = {0}, v[KERNEL_WIDTH_MAX];

	for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
		size_t width = size_min(channels - at, KERNEL_WIDTH_MAX);

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
		/* variance about the mean, which may be large compared to the deviation */
		float mean = row_mean(args->x, element, first, channels, NULL);
		float variance = row_mean(args->x, element, first, channels, &mean);
		float deviation = 1 / sqrtf(variance + args->epsilon);

		if (args->mean) {
			args->mean[row] = mean;
			args->deviation[row] = deviation;
		}
		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = size_min(channels - at, KERNEL_WIDTH_MAX);

			load_row(v, args->x, element, first + at, width);
			center_row(v, mean, deviation, width);
			affine_row(y, v, args->gamma + at, args->beta + at, width);
			store_row(args->y, y, element, first + at, width);
		}
	}
}

void KERNELS_NAMED(layer_norm)(const struct layer_norm_args *args, size_t rows, size_t channels)
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
		float sums[LANES] = {0}, products[LANES] = {0};

		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = size_min(channels - at, KERNEL_WIDTH_MAX);

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
		float sum = mean_of(sums, channels);
		float product = mean_of(products, channels);
		for (size_t at = 0; at < channels; at += KERNEL_WIDTH_MAX) {
			size_t width = size_min(channels - at, KERNEL_WIDTH_MAX);

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

void KERNELS_NAMED(layer_norm_backward)(const struct layer_norm_backward_args *args, size_t rows,
					size_t channels, double *dbeta, double *dgamma)
{
	BY_ELEMENT(layer_norm_backward_rows, args, rows, channels, dbeta, dgamma);
}
