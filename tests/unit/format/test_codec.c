/*
 * Raw and zstd samples, orientation in every codec, the encoders, and errors of packimg_decode().
 */
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <math.h>

static struct packimg_decoder *decoder;
static struct packimg_encoder *encoder;
static struct packimg_error error;

static int setup(void **state)
{
	return packimg_decoder_new(&decoder) | packimg_encoder_new(&encoder);
}

static int teardown(void **state)
{
	packimg_decoder_free(decoder);
	packimg_encoder_free(encoder);
	return 0;
}

/*
 * Defines the orientations: returns the stored pixel that belongs at (x, y) of the upright picture.
 */
static const uint8_t *upright_pixel(const uint8_t *stored, uint32_t w, uint32_t h, int orientation,
				    uint32_t x, uint32_t y)
{
	uint32_t s = x, t = y;

	switch (orientation) {
	case 2: /* mirrored */
		s = w - 1 - x;
		break;
	case 3: /* upside down */
		s = w - 1 - x, t = h - 1 - y;
		break;
	case 4: /* mirrored upside down */
		t = h - 1 - y;
		break;
	case 5: /* mirrored, then turned left by 90 degrees */
		s = y, t = x;
		break;
	case 6: /* the stored left edge is the top */
		s = y, t = h - 1 - x;
		break;
	case 7: /* mirrored, then turned right by 90 degrees */
		s = w - 1 - y, t = h - 1 - x;
		break;
	case 8: /* the stored right edge is the top */
		s = w - 1 - y, t = x;
		break;
	}
	return stored + ((size_t)t * w + s) * 3;
}

static struct packimg_sample sample_of(enum packimg_codec codec, const uint8_t *data, size_t size,
				       uint32_t w, uint32_t h, uint8_t channels, int orientation)
{
	return (struct packimg_sample){
		.data = data,
		.data_size = (uint32_t)size,
		.codec = (uint8_t)codec,
		.channels = channels,
		.orientation = (uint8_t)orientation,
		.width = orientation < 5 ? w : h,
		.height = orientation < 5 ? h : w,
	};
}

/* Decodes random regions of a sample and compares them with the stored RGB pixels. */
static void compare(const struct packimg_sample *sample, const uint8_t *stored, int regions)
{
	uint32_t w = sample->orientation < 5 ? sample->width : sample->height;
	uint32_t h = sample->orientation < 5 ? sample->height : sample->width;
	uint64_t random = w * 1000 + h;

	for (int i = 0; i < regions; i++) {
		struct packimg_region region = {0, 0, sample->width, sample->height};
		struct packimg_pixels pixels;
		if (i > 0) {
			region.x = (uint32_t)(image_random(&random) % sample->width);
			region.y = (uint32_t)(image_random(&random) % sample->height);
			region.width =
				1 + (uint32_t)(image_random(&random) % (sample->width - region.x));
			region.height =
				1 + (uint32_t)(image_random(&random) % (sample->height - region.y));
		}
		if (packimg_decode(decoder, sample, &region, 0, 0, &pixels, &error) < 0)
			fail_msg("%s", error.text);
		assert_true(pixels.region_width == region.width &&
			    pixels.region_height == region.height);
		assert_true(pixels.x + region.width <= pixels.width &&
			    pixels.y + region.height <= pixels.height);
		for (uint32_t y = 0; y < region.height; y++)
			for (uint32_t x = 0; x < region.width; x++) {
				const uint8_t *got = pixels.data +
						     (y + (uint32_t)pixels.y) * pixels.stride +
						     (x + (uint32_t)pixels.x) * 3;
				const uint8_t *expected =
					upright_pixel(stored, w, h, sample->orientation,
						      region.x + x, region.y + y);
				if (memcmp(got, expected, 3) != 0)
					fail_msg(
						"codec %u orientation %u region %u,%u: pixel %u,%u",
						sample->codec, sample->orientation, region.x,
						region.y, x, y);
			}
	}
}

static uint8_t *grey_to_rgb(const uint8_t *grey, size_t count)
{
	uint8_t *rgb = malloc(count * 3);

	for (size_t i = 0; i < count * 3; i++)
		rgb[i] = grey[i / 3];
	return rgb;
}

TEST(raw)
{
	static const uint32_t sizes[][2] = {{1, 1}, {1, 9}, {33, 1}, {31, 32}, {70, 41}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int orientation = 1; orientation <= 8; orientation++)
			for (uint8_t channels = 1; channels <= 3; channels += 2) {
				uint32_t w = sizes[i][0], h = sizes[i][1];
				size_t size = (size_t)w * h * channels, packed_size;
				const uint8_t *packed;
				uint8_t *stored = image_pixels(w, h, channels, i);
				uint8_t *rgb = channels == 3 ? stored : grey_to_rgb(stored, size);
				struct packimg_sample sample =
					sample_of(PACKIMG_CODEC_RAW, stored, size, w, h, channels,
						  orientation);
				compare(&sample, rgb, 20);
				assert_int_equal(packimg_encode_zstd(encoder, stored, size, 3,
								     &packed, &packed_size),
						 0);
				sample = sample_of(PACKIMG_CODEC_RAW_ZSTD, packed, packed_size, w,
						   h, channels, orientation);
				compare(&sample, rgb, 20);
				if (rgb != stored)
					free(rgb);
				free(stored);
			}
}

/* Raw RGB pixels are returned in place, without a copy. */
TEST(raw_in_place)
{
	uint8_t *stored = image_pixels(20, 10, 3, 1);
	struct packimg_sample sample = sample_of(PACKIMG_CODEC_RAW, stored, 600, 20, 10, 3, 1);
	struct packimg_region region = {5, 3, 7, 4};
	struct packimg_pixels pixels;

	assert_int_equal(packimg_decode(decoder, &sample, &region, 2, 2, &pixels, &error), 0);
	assert_ptr_equal(pixels.data, stored + (3 * 20 + 5) * 3);
	assert_int_equal(pixels.stride, 60);
	free(stored);
}

TEST(jpeg_orientation)
{
	static const struct jpeg_kind kinds[] = {
		{.components = 3, .h = 2, .v = 2},
		{.components = 3, .h = 1, .v = 1, .progressive = true},
		{.components = 1, .h = 1, .v = 1},
	};

	for (size_t k = 0; k < 3; k++)
		for (int orientation = 1; orientation <= 8; orientation++) {
			uint32_t w, h;
			size_t size;
			int components;
			uint8_t *data = image_jpeg(83, 45, &kinds[k], 7, &size);
			uint8_t *stored = image_decode_plain(data, size, 1, &w, &h, &components);
			struct packimg_sample sample =
				sample_of(PACKIMG_CODEC_JPEG, data, size, w, h,
					  (uint8_t)kinds[k].components, orientation);
			compare(&sample, stored, 20);
			free(stored);
			free(data);
		}
}

/*
 * Scaling with orientation: the position of the region in the result rotates too. The file is
 * progressive, which only libjpeg-turbo decodes.
 */
TEST(scaled_orientation)
{
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2, .progressive = true};
	size_t size;
	uint8_t *data = image_jpeg(203, 118, &kind, 3, &size);

	for (uint32_t denominator = 2; denominator <= 8; denominator *= 2) {
		uint32_t w, h;
		int components;
		uint8_t *stored = image_decode_plain(data, size, denominator, &w, &h, &components);
		for (int orientation = 1; orientation <= 8; orientation++) {
			struct packimg_sample sample =
				sample_of(PACKIMG_CODEC_JPEG, data, size, 203, 118, 3, orientation);
			struct packimg_region region = {21, 13, sample.width - 50,
							sample.height - 40};
			struct packimg_pixels pixels;
			assert_int_equal(packimg_decode(decoder, &sample, &region,
							region.width / denominator / 2,
							region.height / denominator / 2, &pixels,
							&error),
					 0);
			assert_true(pixels.region_width == (double)region.width / denominator);
			assert_true(pixels.region_height == (double)region.height / denominator);
			/* position of the first returned pixel in the upright full-scale picture */
			double left = region.x - pixels.x * denominator,
			       top = region.y - pixels.y * denominator;
			for (uint32_t y = 0; y < pixels.height; y++)
				for (uint32_t x = 0; x < pixels.width; x++) {
					/*
					 * centre of the returned pixel in the upright full-scale
					 * picture, then in the stored one
					 */
					double cx = left + (x + 0.5) * denominator,
					       cy = top + (y + 0.5) * denominator;
					double s = orientation >= 5 ? cy : cx,
					       t = orientation >= 5 ? cx : cy;
					if (orientation == 2 || orientation == 3 ||
					    orientation == 7 || orientation == 8)
						s = 203 - s;
					if (orientation == 3 || orientation == 4 ||
					    orientation == 6 || orientation == 7)
						t = 118 - t;
					uint32_t sx = (uint32_t)(s / denominator),
						 sy = (uint32_t)(t / denominator);
					assert_memory_equal(pixels.data + y * pixels.stride + x * 3,
							    stored + ((size_t)sy * w + sx) * 3, 3);
				}
		}
		free(stored);
	}
	free(data);
}

static void refuse(const struct packimg_sample *sample, struct packimg_region region, int expected,
		   const char *part)
{
	struct packimg_pixels pixels = {.width = 77};

	assert_int_equal(packimg_decode(decoder, sample, &region, 0, 0, &pixels, NULL), expected);
	assert_int_equal(packimg_decode(decoder, sample, &region, 0, 0, &pixels, &error), expected);
	assert_int_equal(pixels.width, 77);
	if (!strstr(error.text, part) || !strstr(error.text, "sample 12"))
		fail_msg("expected \"%s\" in: %s", part, error.text);
}

TEST(refusals)
{
	uint8_t *stored = image_pixels(20, 10, 3, 1);
	const uint8_t *packed;
	size_t packed_size;
	struct packimg_sample sample = sample_of(PACKIMG_CODEC_RAW, stored, 600, 20, 10, 3, 1);
	struct packimg_region whole = {0, 0, 20, 10};

	sample.index = 12;
	refuse(&sample, (struct packimg_region){0, 0, 0, 10}, -EINVAL, "region");
	refuse(&sample, (struct packimg_region){0, 0, 20, 0}, -EINVAL, "region");
	refuse(&sample, (struct packimg_region){1, 0, 20, 10}, -EINVAL, "region");
	refuse(&sample, (struct packimg_region){0, 1, 20, 10}, -EINVAL, "region");
	refuse(&sample, (struct packimg_region){UINT32_MAX, 0, 1, 1}, -EINVAL, "region");
	refuse(&sample, (struct packimg_region){0, 2, 1, UINT32_MAX}, -EINVAL, "region");
	sample.data_size = 599;
	refuse(&sample, whole, -EBADMSG, "600");
	sample.codec = 9;
	refuse(&sample, whole, -EBADMSG, "codec");
	sample.codec = PACKIMG_CODEC_RAW;
	sample.orientation = 0;
	refuse(&sample, whole, -EBADMSG, "orientation");

	assert_int_equal(packimg_encode_zstd(encoder, stored, 600, 3, &packed, &packed_size), 0);
	sample = sample_of(PACKIMG_CODEC_RAW_ZSTD, packed, packed_size, 20, 10, 3, 1);
	sample.index = 12;
	sample.data_size--;
	refuse(&sample, whole, -EBADMSG, "zstd");
	sample.data_size++;
	sample.width = 19;
	refuse(&sample, (struct packimg_region){0, 0, 19, 10}, -EBADMSG, "570");
	free(stored);
}

static double mean_error(const uint8_t *a, const uint8_t *b, size_t size)
{
	double sum = 0;

	for (size_t i = 0; i < size; i++)
		sum += abs(a[i] - b[i]);
	return sum / (double)size;
}

/* A smooth picture, so that chroma subsampling loses little. */
static uint8_t *smooth_pixels(uint32_t width, uint32_t height, uint32_t channels)
{
	uint8_t *pixels = malloc((size_t)width * height * channels);

	for (uint32_t i = 0; i < width * height * channels; i++) {
		uint32_t x = i / channels % width, y = i / channels / width, c = i % channels;
		pixels[i] = (uint8_t)(128 + 60 * sin(x * 0.03 * (c + 1)) + 60 * cos(y * 0.05));
	}
	return pixels;
}

TEST(encode_jpeg)
{
	static const uint32_t sizes[][2] = {{1, 1}, {17, 9}, {300, 200}};

	for (size_t i = 0; i < 3; i++)
		for (uint32_t channels = 1; channels <= 3; channels += 2) {
			uint32_t w = sizes[i][0], h = sizes[i][1], dw, dh;
			uint8_t *pixels = smooth_pixels(w, h, channels);
			const uint8_t *data;
			size_t sizes_by_quality[2], optimised;
			struct packimg_jpeg_info info;
			int components;
			for (int k = 0; k < 2; k++)
				assert_int_equal(packimg_encode_jpeg(encoder, pixels, w * channels,
								     w, h, channels, k ? 95 : 50,
								     false, &data,
								     &sizes_by_quality[k]),
						 0);
			size_t size = sizes_by_quality[1];
			assert_true(w < 100 || sizes_by_quality[0] < sizes_by_quality[1]);
			assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
			assert_true(info.width == w && info.height == h &&
				    info.components == channels);
			assert_true(info.precision == 8 && !info.progressive && !info.arithmetic &&
				    info.orientation == 1);
			uint8_t *decoded = image_decode_plain(data, size, 1, &dw, &dh, &components);
			uint8_t *rgb = channels == 3 ? pixels : grey_to_rgb(pixels, (size_t)w * h);
			assert_true(mean_error(decoded, rgb, (size_t)w * h * 3) < 3);
			assert_int_equal(packimg_encode_jpeg(encoder, pixels, w * channels, w, h,
							     channels, 95, true, &data, &optimised),
					 0);
			assert_true(optimised < size);
			uint8_t *same =
				image_decode_plain(data, optimised, 1, &dw, &dh, &components);
			assert_memory_equal(same, decoded, (size_t)w * h * 3);
			if (rgb != pixels)
				free(rgb);
			free(same);
			free(decoded);
			free(pixels);
		}
}

/* Rows with gaps. An encoder must give the same bytes whatever it encoded before. */
TEST(encode_again)
{
	uint8_t *pixels = image_pixels(64, 48, 3, 9), *gaps = calloc(48, 200);
	const uint8_t *data;
	size_t size, again_size;

	for (int y = 0; y < 48; y++)
		memcpy(gaps + y * 200, pixels + y * 192, 192);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 64, 48, 3, 80, false, &data, &size), 0);
	uint8_t *first = malloc(size);
	memcpy(first, data, size);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 64, 64, 48, 1, 99, true, &data, &again_size),
		0);
	assert_int_equal(
		packimg_encode_jpeg(encoder, gaps, 200, 64, 48, 3, 80, false, &data, &again_size),
		0);
	assert_int_equal(size, again_size);
	assert_memory_equal(data, first, size);
	free(first);
	free(gaps);
	/* refused input does not affect later images */
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 64, 48, 2, 80, false, &data, &size),
		-EINVAL);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 191, 64, 48, 3, 80, false, &data, &size),
		-EINVAL);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 0, 48, 3, 80, false, &data, &size),
		-EINVAL);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 64, 65536, 3, 80, false, &data, &size),
		-EINVAL);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 64, 48, 3, 0, false, &data, &size),
		-EINVAL);
	assert_int_equal(
		packimg_encode_jpeg(encoder, pixels, 192, 64, 48, 3, 101, false, &data, &size),
		-EINVAL);
	assert_int_equal(packimg_encode_zstd(encoder, pixels, 10, 100, &data, &size), -EINVAL);
	assert_int_equal(packimg_encode_zstd(encoder, pixels, 0, 3, &data, &size), -EINVAL);
	free(pixels);
}

TEST_MAIN(setup, teardown)
