#include "tests/unit/format/jpeg/baseline.h"
#include "tests/test.h"

struct picture picture_make(uint32_t width, uint32_t height, const struct jpeg_kind *kind,
			    uint64_t seed)
{
	struct picture picture = {
		.components = (uint32_t)kind->components, .width = width, .height = height};

	picture.jpeg = image_jpeg(width, height, kind, seed, &picture.jpeg_size);
	picture_scale(&picture, 1);
	return picture;
}

void picture_scale(struct picture *picture, uint32_t denominator)
{
	int components;

	free(picture->pixels);
	picture->denominator = denominator;
	picture->pixels =
		image_decode_plain(picture->jpeg, picture->jpeg_size, denominator,
				   &picture->scaled_width, &picture->scaled_height, &components);
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
		.denominator = picture->denominator,
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
	struct jpeg_region region = {source_of(picture), x, y, width, height};
	struct jpeg_rows rows = {0};

	if (indexed) {
		region.source.index = picture->index;
		region.source.index_size = picture->index_size;
	}
	int r = jpeg_baseline_begin(decoder, &region, true, &rows);
	r = r ?: jpeg_baseline_rows(decoder, height, NULL);
	*ret_pixels = rows.data;
	return r;
}

static uint32_t draw(uint64_t *state, uint32_t bound)
{
	return (uint32_t)(image_random(state) % bound);
}

struct packimg_region picture_region(const struct picture *picture, unsigned n, uint64_t *state)
{
	struct packimg_region region = {0, 0, picture->scaled_width, picture->scaled_height};

	if (n == 0)
		return region;
	if (n != 1)
		region.width = n == 2 ? 1 : 1 + draw(state, picture->scaled_width);
	if (n != 2)
		region.height = n == 1 ? 1 : 1 + draw(state, picture->scaled_height);
	region.x = draw(state, picture->scaled_width - region.width + 1);
	region.y = draw(state, picture->scaled_height - region.height + 1);
	if (n == 3) {
		region.x = picture->scaled_width - region.width;
		region.y = picture->scaled_height - region.height;
	}
	return region;
}

static void compare(const char *what, const struct picture *picture,
		    const struct packimg_region *region, const uint8_t *pixels, size_t stride)
{
	for (uint32_t y = 0; y < region->height; y++)
		for (uint32_t i = 0; i < 3 * region->width; i++) {
			size_t row = (size_t)(region->y + y) * picture->scaled_width;
			size_t at = (row + region->x) * 3 + i;

			if (pixels[y * stride + i] != picture->pixels[at])
				fail_msg("%s, %ux%u at 1/%u, region %ux%u+%u+%u: row %u column %u "
					 "channel %u is %u, should be %u",
					 what, picture->width, picture->height,
					 picture->denominator, region->width, region->height,
					 region->x, region->y, y, i / 3, i % 3,
					 pixels[y * stride + i], picture->pixels[at]);
		}
}

/* Decodes the region ahead, between a longer and a shorter region. */
static void decode_ahead(struct jpeg_baseline *own, const struct picture *picture,
			 const struct packimg_region *region)
{
	struct jpeg_source source = source_of(picture);
	const struct jpeg_region regions[] = {
		{source, 0, picture->scaled_height - 1, picture->scaled_width, 1},
		{source, region->x, region->y, region->width, region->height},
		{source, 0, 0, 1, 1},
	};

	jpeg_baseline_batched(own, regions, 3);
}

void picture_check_own(struct jpeg_baseline *own, const char *what, const struct picture *picture,
		       const struct packimg_region *region)
{
	enum { PLAIN, AHEAD, INDEXED };

	for (int how = PLAIN; how <= (picture->index ? INDEXED : AHEAD); how++) {
		const uint8_t *pixels;

		if (how == AHEAD)
			decode_ahead(own, picture, region);
		int r = picture_decode(own, picture, how == INDEXED, region->x, region->y,
				       region->width, region->height, &pixels);
		if (r != 0)
			fail_msg("%s, %ux%u, indexed %d, ahead %d: error %d", what, picture->width,
				 picture->height, how == INDEXED, how == AHEAD, r);
		compare(what, picture, region, pixels, 3 * (size_t)region->width);
		if (how == AHEAD)
			jpeg_baseline_batched(own, NULL, 0);
	}
}

void picture_check(struct packimg_decoder *decoder, const char *what, const struct picture *picture,
		   const struct packimg_region *region)
{
	struct packimg_sample sample = {
		.data = picture->jpeg,
		.data_size = (uint32_t)picture->jpeg_size,
		.width = picture->width,
		.height = picture->height,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = (uint8_t)picture->components,
		.orientation = 1,
	};
	struct packimg_pixels pixels;
	struct packimg_error error = {""};

	if (packimg_decode(decoder, &sample, region, 0, 0, &pixels, &error) != 0)
		fail_msg("%s, %ux%u: %s", what, picture->width, picture->height, error.text);
	compare(what, picture, region, pixels.data, pixels.stride);
}
