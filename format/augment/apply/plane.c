#include "format/augment/apply/plane.h"

#include <math.h>
#include <string.h>

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline uint32_t load_bits(const uint8_t *at, size_t size)
{
	uint32_t bits = 0;

	memcpy(&bits, at, size);
	return bits;
}

static inline uint32_t load_computed(enum packimg_element element, const uint8_t *at)
{
	switch (element) {
	case PACKIMG_ELEMENT_U8:
		return bits_of(at[0]);
	case PACKIMG_ELEMENT_U16:
		return bits_of((float)load_bits(at, 2));
	case PACKIMG_ELEMENT_I16:
		return bits_of((int16_t)load_bits(at, 2));
	case PACKIMG_ELEMENT_I32:
		return bits_of((float)(int32_t)load_bits(at, 4));
	case PACKIMG_ELEMENT_F32:
		break;
	}
	return load_bits(at, 4);
}

uint32_t plane_value(const struct plane_form *form, const void *element)
{
	return form->computed ? load_computed(form->element, element)
			      : load_bits(element, packimg_element_size(form->element));
}

void plane_load(const struct packimg_raster *raster, uint32_t channel, bool computed,
		uint32_t *plane)
{
	const struct plane_form form = {raster->element, computed};
	const uint8_t *row = raster->data + channel * packimg_element_size(raster->element);

	for (uint32_t y = 0; y < raster->height; y++, row += raster->step_y)
		for (uint32_t x = 0; x < raster->width; x++)
			*plane++ = plane_value(&form, row + (ptrdiff_t)x * raster->step_x);
}

/* Rounds a computed value to an integer within the bounds. */
static inline int64_t round_within(uint32_t bits, int64_t low, int64_t high)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	double whole = rint((double)value);

	return whole < (double)low ? low : whole > (double)high ? high : (int64_t)whole;
}

static inline uint32_t store_bits(const struct plane_form *form, uint32_t value)
{
	if (!form->computed)
		return value;
	switch (form->element) {
	case PACKIMG_ELEMENT_U8:
		return (uint32_t)round_within(value, 0, UINT8_MAX);
	case PACKIMG_ELEMENT_U16:
		return (uint32_t)round_within(value, 0, UINT16_MAX);
	case PACKIMG_ELEMENT_I16:
		return (uint32_t)round_within(value, INT16_MIN, INT16_MAX);
	case PACKIMG_ELEMENT_I32:
		return (uint32_t)round_within(value, INT32_MIN, INT32_MAX);
	case PACKIMG_ELEMENT_F32:
		break;
	}
	return value;
}

void plane_store(const uint32_t *plane, size_t count, const struct plane_form *form,
		 size_t pixel_size, uint8_t *output)
{
	size_t size = packimg_element_size(form->element);

	for (size_t i = 0; i < count; i++) {
		uint32_t bits = store_bits(form, plane[i]);

		memcpy(output + i * pixel_size, &bits, size);
	}
}
