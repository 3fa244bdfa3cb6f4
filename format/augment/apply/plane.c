#include "format/augment/apply/plane.h"

#include <string.h>

uint32_t plane_value(const struct plane_form *form, const void *element)
{
	size_t size = packimg_element_size(form->element);
	uint32_t bits = 0;
	float value;

	memcpy(&bits, element, size);
	if (!form->computed)
		return bits;
	form->kernels->float_load(form->element, (const uint8_t *)&bits, (ptrdiff_t)size, 1, 1,
				  &value);
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Copies the bits of `count` elements of `size` bytes. */
static inline void copy_bits(const uint8_t *from, ptrdiff_t from_step, size_t count, size_t size,
			     uint8_t *to, ptrdiff_t to_step)
{
	for (size_t i = 0; i < count; i++, from += from_step, to += to_step)
		memcpy(to, from, size);
}

void plane_load(const struct packimg_raster *raster, const struct plane_form *form, uint32_t *plane)
{
	size_t size = packimg_element_size(form->element), row_size = raster->width * form->count;
	const uint8_t *row = raster->data + form->first * size;

	if (!form->computed)
		memset(plane, 0, raster->height * row_size * sizeof(*plane));
	for (uint32_t y = 0; y < raster->height; y++, row += raster->step_y, plane += row_size)
		if (form->computed)
			form->kernels->float_load(form->element, row, raster->step_x, raster->width,
						  form->count, (float *)plane);
		else
			copy_bits(row, raster->step_x, raster->width, size, (uint8_t *)plane,
				  sizeof(*plane));
}

void plane_store(const uint32_t *plane, size_t pixels, const struct plane_form *form,
		 uint8_t *output)
{
	size_t size = packimg_element_size(form->element), pixel_size = size * form->channels;

	output += form->first * size;
	if (form->computed)
		form->kernels->float_store(form->element, (const float *)plane, pixels, form->count,
					   pixel_size, output);
	else
		copy_bits((const uint8_t *)plane, sizeof(*plane), pixels, size, output,
			  (ptrdiff_t)pixel_size);
}
