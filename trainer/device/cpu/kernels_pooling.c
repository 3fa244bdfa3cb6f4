/*
 * Max pooling of an image, and its gradient; compiled once per instruction set, as kernels.c.
 * Temporary rows hold the running maxima of a range of channels.
 */
#include "trainer/device/cpu/rows.h"

/* Window elements inside the image, in one dimension: `first` up to but excluding `end`. */
struct taps {
	size_t first, end;
};

INLINE struct taps taps_of(size_t at, size_t stride, size_t pad, size_t window, size_t size)
{
	size_t begin = at * stride;

	return (struct taps){
		.first = begin < pad ? pad - begin : 0,
		.end = size_min(window, size + pad - begin),
	};
}

/* Offset of a window element in the image; c channels. */
INLINE size_t tap_at(const struct max_pool_args *a, size_t p, size_t q, size_t r, size_t s)
{
	return ((p * a->stride + r - a->pad) * a->w + q * a->stride + s - a->pad) * a->c;
}

/* Keeps the larger values, the first among equal ones; NaN propagates. */
INLINE void larger_row(float *restrict best, uint32_t *restrict taps, const float *restrict x,
		       uint32_t tap, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		bool larger = x[i] > best[i] || x[i] != x[i];

		best[i] = larger ? x[i] : best[i];
		taps[i] = larger ? tap : taps[i];
	}
}

static void max_window(const struct max_pool_args *a, size_t p, size_t q, size_t c, size_t width)
{
	struct taps rows = taps_of(p, a->stride, a->pad, a->window_h, a->h);
	struct taps columns = taps_of(q, a->stride, a->pad, a->window_w, a->w);
	size_t to = (p * a->q + q) * a->c + c;
	float best[KERNEL_WIDTH_MAX];
	uint32_t taps[KERNEL_WIDTH_MAX];

	for (size_t i = 0; i < width; i++) {
		best[i] = a->x[tap_at(a, p, q, rows.first, columns.first) + c + i];
		taps[i] = (uint32_t)(rows.first * a->window_w + columns.first);
	}
	for (size_t r = rows.first; r < rows.end; r++)
		for (size_t s = columns.first; s < columns.end; s++)
			larger_row(best, taps, a->x + tap_at(a, p, q, r, s) + c,
				   (uint32_t)(r * a->window_w + s), width);
	memcpy(a->y + to, best, width * sizeof(float));
	for (size_t i = 0; i < width && a->taps; i++)
		a->taps[to + i] = (uint8_t)taps[i];
}

void KERNELS_NAMED(max_pool)(const struct max_pool_args *args)
{
	for (size_t p = 0; p < args->p; p++)
		for (size_t q = 0; q < args->q; q++)
			for (size_t c = 0; c < args->c; c += KERNEL_WIDTH_MAX)
				max_window(args, p, q, c, size_min(args->c - c, KERNEL_WIDTH_MAX));
}

INLINE void give_row(float *restrict dx, const float *restrict gradient,
		     const uint32_t *restrict taps, uint32_t tap, size_t width)
{
	for (size_t i = 0; i < width; i++)
		dx[i] += taps[i] == tap ? gradient[i] : 0;
}

static void give_window(const struct max_pool_args *a, size_t p, size_t q, size_t c, size_t width)
{
	struct taps rows = taps_of(p, a->stride, a->pad, a->window_h, a->h);
	struct taps columns = taps_of(q, a->stride, a->pad, a->window_w, a->w);
	size_t from = (p * a->q + q) * a->c + c;
	uint32_t taps[KERNEL_WIDTH_MAX];

	for (size_t i = 0; i < width; i++)
		taps[i] = a->taps[from + i];
	for (size_t r = rows.first; r < rows.end; r++)
		for (size_t s = columns.first; s < columns.end; s++)
			give_row(a->dx + tap_at(a, p, q, r, s) + c, a->gradient + from, taps,
				 (uint32_t)(r * a->window_w + s), width);
}

void KERNELS_NAMED(max_pool_backward)(const struct max_pool_args *args)
{
	memset(args->dx, 0, args->h * args->w * args->c * sizeof(float));
	for (size_t p = 0; p < args->p; p++)
		for (size_t q = 0; q < args->q; q++)
			for (size_t c = 0; c < args->c; c += KERNEL_WIDTH_MAX)
				give_window(args, p, q, c, size_min(args->c - c, KERNEL_WIDTH_MAX));
}
