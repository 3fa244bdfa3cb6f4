#include "format/augment/kernels/erase.h"
#include "format/augment/kernels/converter.h"
#include "format/base/portable_math.h"
#include "format/base/random.h"

#include <math.h>

void erase_pixels(const struct erase *erase, uint32_t *pixels, uint32_t row_width)
{
	struct random_stream random;
	uint32_t pixel = 0;

	random_init(&random, erase->key, 0, 0, RANDOM_NOISE);
	for (unsigned c = 0; c < 3; c++)
		pixel |= (uint32_t)rintf(erase->value[c]) << 8 * c;
	for (uint32_t y = 0; y < erase->height; y++) {
		uint32_t *row = pixels + (size_t)(erase->y + y) * row_width + erase->x;

		for (uint32_t x = 0; x < erase->width; x++)
			row[x] = erase->noise ? random_u32(&random) & 0xffffff : pixel;
	}
}

/* Box-Muller: makes two normally distributed numbers from two uniform ones. */
static void normal_pair(struct random_stream *random, float ret_pair[2])
{
	double radius = sqrt(-2 * portable_log(1 - (double)random_float(random)));
	double angle = 0x1.921fb54442d18p2 * (double)random_float(random);

	ret_pair[0] = (float)(radius * portable_cos(angle));
	ret_pair[1] = (float)(radius * portable_sin(angle));
}

void erase_sample(const struct erase *erase, const struct pipeline_shape *shape, void *output)
{
	bool planar = shape->layout == PIPELINE_NCHW;
	size_t elements = (size_t)shape->width * shape->height * shape->channels;
	size_t size = shape->sample_size / elements;
	size_t pixel_step = planar ? size : size * shape->channels;
	size_t channel_step = planar ? size * shape->width * shape->height : size;
	bool bytes = shape->element == PIPELINE_U8;
	struct random_stream random;

	random_init(&random, erase->key, 0, 0, RANDOM_NOISE);
	for (uint32_t y = erase->y; y < erase->y + erase->height; y++)
		for (uint32_t x = erase->x; x < erase->x + erase->width; x++) {
			uint8_t *pixel =
				(uint8_t *)output + ((size_t)y * shape->width + x) * pixel_step;
			float values[4] = {erase->value[0], erase->value[1], erase->value[2]};

			if (erase->noise && bytes) {
				uint32_t drawn = random_u32(&random);

				for (unsigned c = 0; c < 3; c++)
					values[c] = (float)(drawn >> 8 * c & 255);
			} else if (erase->noise) {
				normal_pair(&random, values);
				normal_pair(&random, values + 2);
			}
			for (uint32_t c = 0; c < 3; c++)
				converter_element(pixel + c * channel_step, shape->element,
						  values[c]);
		}
}
