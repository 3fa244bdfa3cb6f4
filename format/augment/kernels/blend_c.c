/* Reference of the blending of two images. */
#include "format/augment/kernels/blend.h"
#include "format/augment/kernels/converter.h"
#include "format/base/half.h"

#include <string.h>

static float blend_value(enum pipeline_element element, const uint8_t *from)
{
	uint16_t half;
	float value;

	switch (element) {
	case PIPELINE_U8:
		return (float)*from;
	case PIPELINE_F32:
		memcpy(&value, from, sizeof(value));
		return value;
	default:
		memcpy(&half, from, sizeof(half));
		return element == PIPELINE_F16 ? half_to_float(half) : bfloat_to_float(half);
	}
}

static void blend_pair(enum pipeline_element element, float share, void *a, void *b, size_t count)
{
	size_t size = element == PIPELINE_U8 ? 1 : element == PIPELINE_F32 ? 4 : 2;
	uint8_t *first = a, *second = b;
	float rest = 1 - share;

	for (size_t i = 0; i < count; i++, first += size, second += size) {
		float x = blend_value(element, first), y = blend_value(element, second);

		converter_element(first, element, share * x + rest * y);
		converter_element(second, element, share * y + rest * x);
	}
}

const struct blend_kernels blend_kernels_c = {.pair = blend_pair};
