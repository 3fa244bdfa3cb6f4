/* y = residual + scale * x, of one sample. */
#include "trainer/device/cpu/rows.h"
#include "trainer/device/ops.h"

/*
 * A span is a unit of work: consecutive elements, of several rows if rows are short. Per-channel
 * arguments are repeated accordingly; the last span may be partial.
 */
struct span {
	size_t width; /* width of a span; the last may be narrower */
	size_t step;  /* elements between the starts of consecutive spans */
	size_t end;
};

/* Draws the factors of `width` elements, starting at the sample's element `at`. */
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
		size_t width = size_min(span->width, span->end - at);

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

/* Adds to product, [width of the span]. */
INLINE void scale_add_backward_spans(const struct scale_add_args *args, enum element element,
				     size_t first, const struct span *span,
				     const float *restrict scale, double *product)
{
	float g[KERNEL_WIDTH_MAX], x[KERNEL_WIDTH_MAX], sum[KERNEL_WIDTH_MAX],
		drawn[KERNEL_WIDTH_MAX + 8];
	size_t rows = 0;

	memset(sum, 0, span->width * sizeof(float));
	for (size_t at = first; at < span->end; at += span->step) {
		size_t width = size_min(span->width, span->end - at);

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

/* For short rows: a span covers as many rows as fit, with repeated scales. */
INLINE void fold_span(const struct scale_add_args *args, struct span *span, float *ret_scale)
{
	size_t fold = size_min(KERNEL_WIDTH_MAX / args->channels, args->rows);

	span->width = span->step = fold * args->channels;
	span->end = args->rows * args->channels;
	for (size_t i = 0; i < fold; i++)
		memcpy(ret_scale + i * args->channels, args->scale, args->channels * sizeof(float));
}

/* For long rows: one span per row, which covers the channels from `first` on. */
INLINE void cut_span(const struct scale_add_args *args, struct span *span, size_t first)
{
	span->width = size_min(KERNEL_WIDTH_MAX, args->channels - first);
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

void KERNELS_NAMED(scale_add)(const struct scale_add_args *args)
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

void KERNELS_NAMED(scale_add_backward)(const struct scale_add_args *args, double *product)
{
	if (args->element == ELEMENT_BF16)
		scale_add_backward_sample(args, ELEMENT_BF16, product);
	else
		scale_add_backward_sample(args, ELEMENT_F32, product);
}
