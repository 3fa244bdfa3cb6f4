#include "format/augment/mix_images.h"

#include "format/augment/kernels/blend.h"

#include <stdbool.h>
#include <string.h>

static void mix_swap(uint8_t *a, uint8_t *b, size_t size)
{
	uint8_t kept[1024];

	for (size_t at = 0, part; at < size; at += part) {
		part = size - at < sizeof(kept) ? size - at : sizeof(kept);
		memcpy(kept, a + at, part);
		memcpy(a + at, b + at, part);
		memcpy(b + at, kept, part);
	}
}

/* Exchanges the pixels of the box. */
static void mix_swap_box(const struct pipeline_shape *shape, const struct mix_blend *blend,
			 uint8_t *a, uint8_t *b)
{
	bool planar = shape->layout == PIPELINE_NCHW;
	uint32_t planes = planar ? shape->channels : 1;
	size_t plane = shape->sample_size / planes, row = plane / shape->height;
	size_t pixel = row / shape->width;

	for (uint32_t p = 0; p < planes; p++)
		for (uint32_t y = blend->top; y < blend->bottom; y++) {
			size_t at = p * plane + y * row + blend->left * pixel;

			mix_swap(a + at, b + at, (blend->right - blend->left) * pixel);
		}
}

void mix_images(enum cpu_isa isa, const struct pipeline_shape *shape, const struct mix_blend *blend,
		void *a, void *b)
{
	static const struct blend_kernels *const kernels[CPU_ISA_COUNT] =
		CPU_ISA_EACH(blend_kernels);
	size_t elements = (size_t)shape->width * shape->height * shape->channels;

	if (blend->share < 1)
		kernels[isa]->pair(shape->element, blend->share, a, b, elements);
	mix_swap_box(shape, blend, a, b);
}
