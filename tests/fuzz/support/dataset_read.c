#include "tests/fuzz/support/dataset_read.h"

#include "format/hints.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES_READ = 1000, SAMPLES_DECODED = 8, PIXELS_MAX = 1 << 20 };

static volatile uint8_t sink;

static void use(const void *bytes, size_t size)
{
	uint8_t sum = 0;

	for (size_t i = 0; i < size; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
	sink = sum;
}

static void read_image(struct packimg_decoder *decoder, const struct packimg *dataset,
		       uint64_t index, uint32_t number)
{
	struct packimg_sample image;
	struct packimg_raster raster;
	struct packimg_error error;

	if (packimg_image(dataset, index, number, &image) < 0)
		return;
	packimg_sample_check(&image);
	if (index >= SAMPLES_DECODED || (uint64_t)image.width * image.height > PIXELS_MAX)
		return;
	struct packimg_region region = {0, 0, image.width, image.height};
	if (packimg_decode_raster(decoder, &image, &region, &raster, &error) < 0)
		return;
	for (uint32_t y = 0; y < raster.height; y++)
		for (uint32_t x = 0; x < raster.width; x++)
			use(raster.data + y * raster.step_y + x * raster.step_x,
			    raster.channels * packimg_element_size(raster.element));
}

static void read_sample(struct packimg_decoder *decoder, const struct packimg *dataset,
			uint64_t index)
{
	struct packimg_sample sample;
	struct packimg_pixels pixels;
	struct packimg_value value;
	struct packimg_error error;
	const char *name;
	size_t size;

	if (packimg_source(dataset, index, &name, &size) == 0)
		use(name, size);
	for (uint32_t field = 0; field < packimg_field_count(dataset); field++)
		if (packimg_value(dataset, index, field, &value) == 0 && value.bytes)
			use(value.bytes, value.size);
	for (uint32_t image = 0; image < packimg_image_count(dataset); image++)
		read_image(decoder, dataset, index, image);
	if (packimg_sample(dataset, index, &sample) < 0)
		return;
	packimg_sample_check(&sample);
	if (index >= SAMPLES_DECODED || (uint64_t)sample.width * sample.height > PIXELS_MAX)
		return;
	struct packimg_region region = {0, 0, sample.width, sample.height};
	if (packimg_decode(decoder, &sample, &region, 0, 0, &pixels, &error) == 0)
		for (uint32_t y = 0; y < pixels.height; y++)
			use(pixels.data + y * pixels.stride, (size_t)pixels.width * 3);
}

/* Reads every class of section `members`, and section `sizes`. */
static void read_hints(const struct packimg *dataset)
{
	uint32_t classes = packimg_class_count(dataset);
	uint64_t samples = packimg_count(dataset), index;
	uint64_t *starts = calloc((size_t)classes + 1, sizeof(*starts));
	uint16_t sizes[SAMPLES_READ][2];

	if (starts && packimg_class_starts(dataset, 0, starts) == 0)
		use(starts, ((size_t)classes + 1) * sizeof(*starts));
	free(starts);
	for (uint32_t i = 0; i < classes && i < SAMPLES_READ; i++)
		for (uint64_t k = 0; k < SAMPLES_READ; k++)
			if (packimg_class_member(dataset, 0, i, k, &index) == 0)
				use(&index, sizeof(index));
	samples = samples < SAMPLES_READ ? samples : SAMPLES_READ;
	if (packimg_sizes(dataset, 0, samples, sizes) == 0)
		use(sizes, samples * sizeof(*sizes));
}

void dataset_read(struct packimg_decoder *decoder, const struct packimg *dataset)
{
	struct packimg_error error;
	struct packimg_field field;
	struct packimg_shard shard;
	double mean[3], std[3];

	packimg_check(dataset, &error);
	use(packimg_metadata(dataset), strlen(packimg_metadata(dataset)));
	packimg_statistics(dataset, mean, std);
	packimg_shard(dataset, 0, &shard);
	for (uint32_t i = 0; i < packimg_class_count(dataset) && i < SAMPLES_READ; i++) {
		const char *name = packimg_class_name(dataset, i);
		if (name)
			use(name, strlen(name));
	}
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++)
		if (packimg_field(dataset, i, &field) == 0)
			use(field.name, strlen(field.name));
	for (uint64_t i = 0; i < packimg_count(dataset) && i < SAMPLES_READ; i++)
		read_sample(decoder, dataset, i);
	read_hints(dataset);
}
