#include "format/augment/apply/plane.h"

#include <string.h>

/* Name, constant, type, and how a computed value is converted to the type. */
#define ELEMENTS(X)                                                                                \
	X(u8, U8, uint8_t, round_within(value, 0, UINT8_MAX))                                      \
	X(u16, U16, uint16_t, round_within(value, 0, UINT16_MAX))                                  \
	X(i16, I16, int16_t, round_within(value, INT16_MIN, INT16_MAX))                            \
	X(i32, I32, int32_t, round_within(value, INT32_MIN, INT32_MAX))                            \
	X(f32, F32, float, value)

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float value_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Rounds to an integer within the bounds. */
static inline int32_t round_within(float value, double low, double high)
{
	/* Adding it leaves no fraction: the sum rounds to nearest, halves to even. */
	const double shift = 0x1.8p52;
	double bounded = (double)value > high ? high : (double)value;

	bounded = bounded < low ? low : bounded;
	return (int32_t)((bounded + shift) - shift);
}

#define ELEMENT(name, constant, type, convert)                                                     \
	static uint32_t value_##name(const uint8_t *at, bool computed)                             \
	{                                                                                          \
		uint32_t bits = 0;                                                                 \
		type value;                                                                        \
                                                                                                   \
		memcpy(&value, at, sizeof(value));                                                 \
		memcpy(&bits, at, sizeof(value));                                                  \
		return computed ? bits_of((float)value) : bits;                                    \
	}                                                                                          \
                                                                                                   \
	static void load_##name(const uint8_t *row, ptrdiff_t step, uint32_t count, bool computed, \
				uint32_t *restrict plane)                                          \
	{                                                                                          \
		for (uint32_t x = 0; x < count; x++)                                               \
			plane[x] = value_##name(row + (ptrdiff_t)x * step, computed);              \
	}                                                                                          \
                                                                                                   \
	static void store_##name(const uint32_t *restrict plane, size_t count, size_t pixel_size,  \
				 bool computed, uint8_t *restrict output)                          \
	{                                                                                          \
		for (size_t i = 0; i < count; i++) {                                               \
			float value = value_of(plane[i]);                                          \
			type element = computed ? (type)(convert) : (type)0;                       \
                                                                                                   \
			memcpy(output + i * pixel_size,                                            \
			       computed ? (const void *)&element : &plane[i], sizeof(element));    \
		}                                                                                  \
	}
ELEMENTS(ELEMENT)
#undef ELEMENT

static const struct plane_functions {
	uint32_t (*value)(const uint8_t *at, bool computed);
	void (*load)(const uint8_t *row, ptrdiff_t step, uint32_t count, bool computed,
		     uint32_t *restrict plane);
	void (*store)(const uint32_t *restrict plane, size_t count, size_t pixel_size,
		      bool computed, uint8_t *restrict output);
} functions[] = {
#define ELEMENT(name, constant, type, convert)                                                     \
	[PACKIMG_ELEMENT_##constant] = {value_##name, load_##name, store_##name},
	ELEMENTS(ELEMENT)
#undef ELEMENT
};

uint32_t plane_value(const struct plane_form *form, const void *element)
{
	return functions[form->element].value(element, form->computed);
}

void plane_load(const struct packimg_raster *raster, uint32_t channel, bool computed,
		uint32_t *plane)
{
	const uint8_t *row = raster->data + channel * packimg_element_size(raster->element);

	for (uint32_t y = 0; y < raster->height; y++, row += raster->step_y, plane += raster->width)
		functions[raster->element].load(row, raster->step_x, raster->width, computed,
						plane);
}

void plane_store(const uint32_t *plane, size_t count, const struct plane_form *form,
		 size_t pixel_size, uint8_t *output)
{
	functions[form->element].store(plane, count, pixel_size, form->computed, output);
}
