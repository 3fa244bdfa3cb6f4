/*
 * Decoding JPEG regions gives the same pixels as a full decode by libjpeg, for every kind of file,
 * position and scale.
 */
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

static char what[100]; /* name of the current case, for messages */

static struct packimg_sample sample_of(const uint8_t *data, size_t size, uint32_t width,
				       uint32_t height, int components)
{
	return (struct packimg_sample){
		.data = data,
		.data_size = (uint32_t)size,
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = (uint8_t)components,
		.orientation = 1,
	};
}

/* Expected conversion of CMYK as stored, with and without Adobe's marker: 255 - ink. */
static void cmyk_reference(const uint8_t *in, uint8_t out[3])
{
	for (int i = 0; i < 3; i++) {
		double ink = 255 - in[i], black = 255 - in[3];
		out[i] = (uint8_t)((255 - ink) * (255 - black) / 255 + 0.5);
	}
}

static uint8_t *reference(const uint8_t *data, size_t size, uint32_t denominator,
			  uint32_t *ret_width, uint32_t *ret_height)
{
	int components;
	uint8_t *pixels =
		image_decode_plain(data, size, denominator, ret_width, ret_height, &components);

	if (components == 4)
		for (size_t i = 0; i < (size_t)*ret_width * *ret_height; i++) {
			uint8_t rgb[3];
			cmyk_reference(pixels + i * 4, rgb);
			memcpy(pixels + i * 3, rgb, 3);
		}
	return pixels;
}

/* A whole image, decoded by libjpeg. */
struct picture {
	uint8_t *pixels;
	uint32_t width, height;
};

/*
 * Decodes one region and compares every pixel of the returned rectangle with a full decode at the
 * same scale.
 */
static void compare_region(const struct packimg_sample *sample, const struct packimg_region *region,
			   uint32_t denominator, const struct picture *full)
{
	struct packimg_pixels pixels;
	uint32_t hint_width = region->width / denominator / 2,
		 hint_height = region->height / denominator / 2;

	int r = packimg_decode(decoder, sample, region, denominator == 1 ? 0 : hint_width,
			       denominator == 1 ? 0 : hint_height, &pixels, &error);
	if (r != 0)
		fail_msg("%ux%u region %ux%u+%u+%u at 1/%u: %s", sample->width, sample->height,
			 region->width, region->height, region->x, region->y, denominator,
			 error.text);
	double scale = pixels.region_width / region->width;
	uint32_t actual = (uint32_t)(1 / scale);
	if (actual != denominator)
		fail_msg("asked for 1/%u, got 1/%u", denominator, actual);
	uint32_t x0 = (uint32_t)(region->x * scale - pixels.x + 0.5),
		 y0 = (uint32_t)(region->y * scale - pixels.y + 0.5);
	assert_true(pixels.x >= 0 && pixels.y >= 0);
	assert_true(pixels.x + pixels.region_width <= pixels.width + 1e-9 ||
		    x0 + pixels.width == full->width);
	assert_true(pixels.y + pixels.region_height <= pixels.height + 1e-9 ||
		    y0 + pixels.height == full->height);
	assert_true(x0 + pixels.width <= full->width && y0 + pixels.height <= full->height);
	for (uint32_t y = 0; y < pixels.height; y++) {
		const uint8_t *expected = full->pixels + ((size_t)(y0 + y) * full->width + x0) * 3;
		const uint8_t *got = pixels.data + y * pixels.stride;
		if (memcmp(got, expected, (size_t)pixels.width * 3) == 0)
			continue;
		for (uint32_t i = 0; i < pixels.width * 3; i++)
			if (got[i] != expected[i])
				fail_msg("%s: %ux%u region %ux%u+%u+%u at 1/%u: row %u column %u: "
					 "%u, expected %u",
					 what, sample->width, sample->height, region->width,
					 region->height, region->x, region->y, denominator, y,
					 i / 3, got[i], expected[i]);
	}
}

static void compare_file(uint32_t width, uint32_t height, const struct jpeg_kind *kind,
			 uint64_t seed, int regions)
{
	size_t size;
	uint8_t *data = image_jpeg(width, height, kind, seed, &size);
	struct packimg_sample sample = sample_of(data, size, width, height, kind->components);
	uint64_t state = seed;

	snprintf(what, sizeof(what), "%d components %dx%d%s%s", kind->components, kind->h, kind->v,
		 kind->progressive ? " progressive" : "", kind->arithmetic ? " arithmetic" : "");
	for (uint32_t denominator = 1; denominator <= 8; denominator *= 2) {
		struct picture scaled;
		scaled.pixels = reference(data, size, denominator, &scaled.width, &scaled.height);
		struct packimg_region whole = {0, 0, width, height};
		if (width >= 2 * denominator && height >= 2 * denominator)
			compare_region(&sample, &whole, denominator, &scaled);
		for (int i = 0; i < regions; i++) {
			uint32_t min = denominator == 1 ? 1 : 2 * denominator;
			if (width < min || height < min)
				break;
			struct packimg_region region;
			region.width = min + (uint32_t)(image_random(&state) % (width - min + 1));
			region.height = min + (uint32_t)(image_random(&state) % (height - min + 1));
			if (i % 4 == 0)
				region.width = min;
			region.x = (uint32_t)(image_random(&state) % (width - region.width + 1));
			region.y = (uint32_t)(image_random(&state) % (height - region.height + 1));
			compare_region(&sample, &region, denominator, &scaled);
		}
		free(scaled.pixels);
	}
	free(data);
}

TEST(samplings)
{
	static const int samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2},
					   {4, 1}, {1, 4}, {4, 2}, {2, 4}};
	static const uint32_t sizes[][2] = {{1, 1},   {7, 5},    {16, 16},  {17, 33},
					    {64, 48}, {133, 97}, {250, 201}};

	for (size_t s = 0; s < sizeof(samplings) / sizeof(*samplings); s++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			struct jpeg_kind kind = {
				.components = 3, .h = samplings[s][0], .v = samplings[s][1]};
			compare_file(sizes[i][0], sizes[i][1], &kind, s * 100 + i, 60);
		}
}

TEST(codings)
{
	static const struct jpeg_kind kinds[] = {
		{.components = 3, .h = 2, .v = 2, .progressive = true},
		{.components = 3, .h = 1, .v = 1, .progressive = true},
		{.components = 3, .h = 2, .v = 1, .progressive = true},
		{.components = 3, .h = 2, .v = 2, .arithmetic = true},
		{.components = 3, .h = 2, .v = 2, .restart_rows = 1},
		{.components = 3, .h = 2, .v = 1, .restart_rows = 3},
		{.components = 3, .h = 2, .v = 2, .separate = true},
		{.components = 3, .h = 1, .v = 1, .rgb = true},
		{.components = 3, .h = 2, .v = 2, .optimise = true, .quality = 30},
		{.components = 3, .h = 2, .v = 2, .optimise = true, .quality = 100},
		{.components = 1, .h = 1, .v = 1},
		{.components = 1, .h = 2, .v = 2},
		{.components = 1, .h = 1, .v = 1, .progressive = true},
		{.components = 4, .h = 1, .v = 1},
		{.components = 4, .h = 1, .v = 1, .not_adobe = true},
		{.components = 4, .h = 2, .v = 2, .ycck = true},
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		compare_file(131, 95, &kinds[k], k, 60);
		compare_file(34, 210, &kinds[k], k + 50, 40);
	}
}

/* The scaled region must have at least twice the size of the hint in both directions. */
TEST(choice_of_scale)
{
	static const struct {
		uint32_t width, height, hint_width, hint_height, denominator;
	} cases[] = {
		{256, 256, 0, 0, 1},   {256, 256, 256, 256, 1}, {256, 256, 65, 64, 1},
		{256, 256, 64, 65, 1}, {256, 256, 64, 64, 2},   {255, 256, 64, 64, 1},
		{256, 256, 33, 32, 2}, {256, 256, 32, 32, 4},   {256, 256, 16, 16, 8},
		{256, 256, 1, 1, 8},   {256, 64, 16, 16, 2},
	};
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2};
	size_t size;
	uint8_t *data = image_jpeg(256, 256, &kind, 1, &size);
	struct packimg_sample sample = sample_of(data, size, 256, 256, 3);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct packimg_region region = {0, 0, cases[i].width, cases[i].height};
		struct packimg_pixels pixels;

		assert_int_equal(packimg_decode(decoder, &sample, &region, cases[i].hint_width,
						cases[i].hint_height, &pixels, NULL),
				 0);
		assert_true(pixels.region_width == (double)cases[i].width / cases[i].denominator);
		assert_true(pixels.region_height == (double)cases[i].height / cases[i].denominator);
	}
	free(data);
}

TEST_MAIN(decoder_setup, decoder_teardown)
