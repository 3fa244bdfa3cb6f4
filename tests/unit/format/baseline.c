#include "baseline.h"

#include <stdlib.h>
#include <string.h>

struct picture picture_make(uint32_t width, uint32_t height, const struct jpeg_kind *kind,
			    uint64_t seed)
{
	struct picture picture = {.components = (uint32_t)kind->components};
	int components;

	picture.jpeg = image_jpeg(width, height, kind, seed, &picture.jpeg_size);
	picture.pixels = image_decode_plain(picture.jpeg, picture.jpeg_size, 1, &picture.width,
					    &picture.height, &components);
	return picture;
}

void picture_drop(struct picture *picture)
{
	free(picture->jpeg);
	free(picture->pixels);
	free(picture->index);
	*picture = (struct picture){0};
}

static struct jpeg_source source_of(const struct picture *picture)
{
	return (struct jpeg_source){
		.data = picture->jpeg,
		.size = picture->jpeg_size,
		.width = picture->width,
		.height = picture->height,
		.components = picture->components,
	};
}

int picture_index(struct jpeg_baseline *decoder, struct picture *picture)
{
	struct jpeg_source source = source_of(picture);
	const uint8_t *index;
	int r = jpeg_baseline_index(decoder, &source, &index, &picture->index_size);

	if (r == 0) {
		picture->index = malloc(picture->index_size);
		memcpy(picture->index, index, picture->index_size);
	}
	return r;
}

int picture_decode(struct jpeg_baseline *decoder, const struct picture *picture, bool indexed,
		   uint32_t x, uint32_t y, uint32_t width, uint32_t height,
		   const uint8_t **ret_pixels)
{
	struct jpeg_source source = source_of(picture);

	if (indexed) {
		source.index = picture->index;
		source.index_size = picture->index_size;
	}
	return jpeg_baseline_decode(decoder, &source, x, y, width, height, ret_pixels);
}
