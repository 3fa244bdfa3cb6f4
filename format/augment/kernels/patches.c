#include "format/augment/kernels/patches.h"

#include <string.h>

void patches_cut(const struct pipeline_shape *shape, uint32_t size, const void *picture,
		 void *output)
{
	const size_t stride = shape->sample_size / shape->height,
		     line = stride / shape->width * size;
	const uint8_t *from = picture;
	uint8_t *to = output;

	for (uint32_t row = 0; row < shape->height / size; row++, from += stride * size)
		for (uint32_t column = 0; column < shape->width / size; column++)
			for (uint32_t y = 0; y < size; y++, to += line)
				memcpy(to, from + y * stride + column * line, line);
}
