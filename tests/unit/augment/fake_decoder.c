#include "tests/unit/augment/fake_decoder.h"

#include <errno.h>
#include <stdlib.h>

struct fake_decoder fake_decoder;

struct packimg_decoder {
	uint8_t *pixels;
};

int packimg_decoder_new(struct packimg_decoder **ret_decoder)
{
	struct packimg_decoder *decoder = calloc(1, sizeof(*decoder));

	if (!decoder)
		return -ENOMEM;
	*ret_decoder = decoder;
	return 0;
}

void packimg_decoder_limit(struct packimg_decoder *decoder, uint64_t bytes)
{
	fake_decoder.limit = bytes;
	fake_decoder.limits++;
}

void packimg_decoder_free(struct packimg_decoder *decoder)
{
	if (!decoder)
		return;
	free(decoder->pixels);
	free(decoder);
}

/* Returns a full-scale pixel, or the mean of up to four pixels at half scale. */
static void take_pixel(const struct packimg_sample *sample, uint32_t x, uint32_t y, uint32_t scale,
		       uint8_t *output)
{
	for (uint32_t c = 0; c < 3; c++) {
		uint32_t sum = 0, count = 0;

		for (uint32_t j = y * scale; j < (y + 1) * scale && j < sample->height; j++)
			for (uint32_t i = x * scale; i < (x + 1) * scale && i < sample->width;
			     i++, count++)
				sum += sample->data[((size_t)j * sample->width + i) * 3 + c];
		output[c] = (uint8_t)((sum + count / 2) / count);
	}
}

uint32_t packimg_denominator(const struct packimg_sample *sample,
			     const struct packimg_region *region, uint32_t size_hint_width,
			     uint32_t size_hint_height)
{
	return fake_decoder.halve && size_hint_width && size_hint_height &&
			       region->width / 2 >= 2 * size_hint_width &&
			       region->height / 2 >= 2 * size_hint_height
		       ? 2
		       : 1;
}

int packimg_decode_begin(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			 const struct packimg_region *region, uint32_t size_hint_width,
			 uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
			 struct packimg_error *error)
{
	uint32_t margin = fake_decoder.margin;

	fake_decoder.region = *region;
	fake_decoder.hint_width = size_hint_width;
	fake_decoder.hint_height = size_hint_height;
	fake_decoder.calls++;
	if (fake_decoder.fail < 0)
		return fake_decoder.fail;
	if (region->width == 0 || region->height == 0 ||
	    region->x + region->width > sample->width ||
	    region->y + region->height > sample->height)
		return -EINVAL;
	fake_decoder.halved =
		packimg_denominator(sample, region, size_hint_width, size_hint_height) == 2;
	uint32_t scale = fake_decoder.halved ? 2 : 1;
	uint32_t x0 = region->x / scale, x1 = (region->x + region->width + scale - 1) / scale;
	uint32_t y0 = region->y / scale, y1 = (region->y + region->height + scale - 1) / scale;
	uint32_t width = x1 - x0 + 2 * margin, height = y1 - y0 + 2 * margin;

	free(decoder->pixels);
	decoder->pixels = malloc((size_t)width * height * 3);
	if (!decoder->pixels)
		return -ENOMEM;
	for (size_t i = 0; i < (size_t)width * height * 3; i++)
		decoder->pixels[i] = (uint8_t)(0x5a + 0x71 * i);
	for (uint32_t y = y0; y < y1; y++)
		for (uint32_t x = x0; x < x1; x++)
			take_pixel(sample, x, y, scale,
				   decoder->pixels +
					   ((size_t)(y - y0 + margin) * width + x - x0 + margin) *
						   3);
	*ret_pixels = (struct packimg_pixels){
		.data = decoder->pixels,
		.stride = (size_t)width * 3,
		.width = width,
		.height = height,
		.x = margin + (double)region->x / scale - x0,
		.y = margin + (double)region->y / scale - y0,
		.region_width = (double)region->width / scale,
		.region_height = (double)region->height / scale,
	};
	return 0;
}

int packimg_decode(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		   const struct packimg_region *region, uint32_t size_hint_width,
		   uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
		   struct packimg_error *error)
{
	return packimg_decode_begin(decoder, sample, region, size_hint_width, size_hint_height,
				    ret_pixels, error);
}

size_t packimg_element_size(enum packimg_element element)
{
	switch (element) {
	case PACKIMG_ELEMENT_U8:
		return 1;
	case PACKIMG_ELEMENT_U16:
	case PACKIMG_ELEMENT_I16:
		return 2;
	default:
		return 4;
	}
}

int packimg_decode_raster(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			  const struct packimg_region *region, struct packimg_raster *ret_raster,
			  struct packimg_error *error)
{
	const size_t stride = (size_t)sample->width * sample->channels;

	fake_decoder.region = *region;
	fake_decoder.calls++;
	if (fake_decoder.fail < 0)
		return fake_decoder.fail;
	if (region->x + region->width > sample->width ||
	    region->y + region->height > sample->height)
		return -EINVAL;
	*ret_raster = (struct packimg_raster){
		.data = sample->data + region->y * stride + (size_t)region->x * sample->channels,
		.step_x = sample->channels,
		.step_y = (ptrdiff_t)stride,
		.width = region->width,
		.height = region->height,
		.channels = sample->channels,
		.element = PACKIMG_ELEMENT_U8,
	};
	return 0;
}

int packimg_decode_raster_bands(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, bool first,
				struct packimg_raster *ret_raster, struct packimg_error *error)
{
	fake_decoder.begun += first;
	fake_decoder.followed += !first;
	return packimg_decode_raster(decoder, sample, region, ret_raster, error);
}

int packimg_decode_keep(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			const struct packimg_region *region)
{
	return -ENOTSUP;
}

void packimg_decode_borrow(struct packimg_decoder *decoder, const struct packimg_decoder *lender)
{
}

/* Raw samples have no planes. */
int packimg_decode_begin_planes(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, uint32_t size_hint_width,
				uint32_t size_hint_height, struct packimg_planes *ret_planes,
				struct packimg_error *error)
{
	return PACKIMG_NO_PLANES;
}

/* Never called, because every row is ready from the start. */
int packimg_decode_rows(struct packimg_decoder *decoder, uint32_t end, uint32_t *ret_ready,
			struct packimg_error *error)
{
	*ret_ready = end;
	return 0;
}

void packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
			  uint32_t count)
{
	fake_decoder.ahead_count = count;
	if (count > 0)
		fake_decoder.ahead = parts[count - 1];
}
