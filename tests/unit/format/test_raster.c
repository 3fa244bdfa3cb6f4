/*
 * Codec 4: pixels survive every method, element, band height and orientation; only the region's
 * bands are read; each kind of damage is reported.
 */
#include "format/codec/raster.h"
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

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

/* Returns a mask with regions of constant values; some rows repeat. The caller frees it. */
static uint8_t *mask_pixels(uint32_t width, uint32_t height, uint32_t channels,
			    enum packimg_element element, struct packimg_raster *ret_raster)
{
	size_t element_size = packimg_element_size(element), pixel_size = element_size * channels;
	uint8_t *pixels = malloc(width * height * pixel_size);

	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (size_t k = 0; k < pixel_size; k++)
				pixels[(y * width + x) * pixel_size + k] =
					(uint8_t)((x / 5 + y / 3 * 7) * 31 + k);
	*ret_raster = (struct packimg_raster){
		.data = pixels,
		.step_x = (ptrdiff_t)pixel_size,
		.step_y = (ptrdiff_t)(width * pixel_size),
		.width = width,
		.height = height,
		.channels = channels,
		.element = element,
	};
	return pixels;
}

static struct packimg_sample encode(const struct packimg_raster *raster,
				    enum packimg_raster_method method, uint32_t rows_log2,
				    int orientation)
{
	struct packimg_raster_coding coding = {method, 3, rows_log2};
	struct packimg_sample sample = {
		.codec = PACKIMG_CODEC_RASTER,
		.channels = (uint8_t)raster->channels,
		.orientation = (uint8_t)orientation,
		.width = orientation < 5 ? raster->width : raster->height,
		.height = orientation < 5 ? raster->height : raster->width,
	};
	size_t size;

	if (packimg_encode_raster(encoder, raster, &coding, &sample.data, &size, &error) < 0)
		fail_msg("%s", error.text);
	sample.data_size = (uint32_t)size;
	return sample;
}

/* Returns the stored pixel of upright pixel (x, y): SPEC.md, "Orientation". */
static const uint8_t *stored_pixel(const struct packimg_raster *stored, int orientation, uint32_t x,
				   uint32_t y)
{
	bool swap = orientation > 4;
	bool flip_s = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
	bool flip_t = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
	uint32_t s = swap ? y : x, t = swap ? x : y;

	s = flip_s ? stored->width - 1 - s : s;
	t = flip_t ? stored->height - 1 - t : t;
	return stored->data + (ptrdiff_t)s * stored->step_x + (ptrdiff_t)t * stored->step_y;
}

/* How a region is decoded: alone, or as the first or a later one of which bands are kept. */
enum how { ALONE, FIRST, LATER };

static int decode_raster(const struct packimg_sample *sample, const struct packimg_region *region,
			 enum how how, struct packimg_raster *ret_raster)
{
	return how == ALONE ? packimg_decode_raster(decoder, sample, region, ret_raster, &error)
			    : packimg_decode_raster_bands(decoder, sample, region, how == FIRST,
							  ret_raster, &error);
}

/* Decodes a region of a sample and compares it with what was stored. */
static void compare_as(enum how how, const struct packimg_sample *sample,
		       const struct packimg_raster *stored, const struct packimg_region *region)
{
	size_t size = packimg_element_size(stored->element) * stored->channels;
	struct packimg_raster got;

	if (decode_raster(sample, region, how, &got) < 0)
		fail_msg("%s", error.text);
	assert_int_equal(got.width, region->width);
	assert_int_equal(got.height, region->height);
	assert_int_equal(got.channels, stored->channels);
	assert_int_equal(got.element, stored->element);
	for (uint32_t y = 0; y < got.height; y++)
		for (uint32_t x = 0; x < got.width; x++)
			if (memcmp(got.data + (ptrdiff_t)x * got.step_x + (ptrdiff_t)y * got.step_y,
				   stored_pixel(stored, sample->orientation, region->x + x,
						region->y + y),
				   size) != 0)
				fail_msg("codec %u, orientation %u, region %ux%u+%u+%u: pixel "
					 "%u,%u differs",
					 sample->codec, sample->orientation, region->width,
					 region->height, region->x, region->y, x, y);
}

static void compare(const struct packimg_sample *sample, const struct packimg_raster *stored,
		    const struct packimg_region *region)
{
	compare_as(ALONE, sample, stored, region);
}

/* The whole, and parts; then parts of which bands are kept, and the whole. */
static void compare_regions(const struct packimg_sample *sample,
			    const struct packimg_raster *stored)
{
	uint64_t random = sample->width * 1000 + sample->height;
	const int rounds = sample->codec == PACKIMG_CODEC_RASTER ? 12 : 6;

	for (int i = 0; i < rounds; i++) {
		struct packimg_region region = {0, 0, sample->width, sample->height};

		if (i > 0 && i < 11) {
			region.x = (uint32_t)(image_random(&random) % sample->width);
			region.y = (uint32_t)(image_random(&random) % sample->height);
			region.width =
				1 + (uint32_t)(image_random(&random) % (sample->width - region.x));
			region.height =
				1 + (uint32_t)(image_random(&random) % (sample->height - region.y));
		}
		compare_as(i < 6 ? ALONE : i == 6 ? FIRST : LATER, sample, stored, &region);
	}
}

TEST(every_coding_is_lossless)
{
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32,
							PACKIMG_ELEMENT_F32};
	static const uint32_t sizes[][2] = {{1, 1}, {1, 9}, {300, 2}, {31, 33}},
			      channels[] = {1, 3, 32};

	for (unsigned e = 0; e < 5; e++)
		for (unsigned c = 0; c < 3; c++)
			for (unsigned s = 0; s < 4; s++)
				for (int method = 0; method <= PACKIMG_RASTER_BEST; method++) {
					struct packimg_raster raster;
					uint8_t *pixels =
						mask_pixels(sizes[s][0], sizes[s][1], channels[c],
							    elements[e], &raster);

					if (method != PACKIMG_RASTER_RUNS || (c == 0 && e < 2))
						for (int i = 0; i <= 8; i++) {
							struct packimg_sample sample =
								encode(&raster, method, (uint32_t)i,
								       i > 0 ? i : 1);

							compare_regions(&sample, &raster);
						}
					free(pixels);
				}
}

/* Raw and raw+zstd samples can be decoded as rasters of bytes. */
TEST(raw_samples_keep_channels)
{
	for (uint32_t channels = 1; channels <= 3; channels += 2)
		for (int orientation = 1; orientation <= 8; orientation++) {
			struct packimg_raster raster;
			uint8_t *pixels =
				mask_pixels(31, 18, channels, PACKIMG_ELEMENT_U8, &raster);
			struct packimg_sample sample =
				encode(&raster, PACKIMG_RASTER_RAW, 0, orientation);
			size_t size;

			sample.codec = PACKIMG_CODEC_RAW;
			sample.data = pixels;
			sample.data_size = 31 * 18 * channels;
			compare_regions(&sample, &raster);
			assert_int_equal(packimg_encode_zstd(encoder, pixels, sample.data_size, 3,
							     &sample.data, &size),
					 0);
			sample.codec = PACKIMG_CODEC_RAW_ZSTD;
			sample.data_size = (uint32_t)size;
			compare_regions(&sample, &raster);
			free(pixels);
		}
}

/* The bytes of SPEC.md's example. */
TEST(runs_are_as_specified)
{
	static const uint16_t pixels[] = {7, 7, 7, 300, 7, 7, 7, 300, 9, 9, 9, 9};
	static const uint8_t expected[] = {
		1,  5,    1, 1,
		2,  0,    0, 0, /* head: u16, 1 channel, bands of 2 rows, 2 bands */
		32, 0,    0, 0,
		2,  0,    0, 0, /* band 0 ends at byte 32; runs */
		36, 0,    0, 0,
		2,  0,    0, 0, /* band 1 ends at byte 36; runs */
		2,  3,    7, 0,
		1,  0x2c, 1, 0, /* row 0: 2 runs, 3 x 7 and 1 x 300; row 1: a copy of row 0 */
		1,  4,    9, 0, /* row 2: 1 run, 4 x 9 */
	};
	struct packimg_raster raster = {
		.data = (const uint8_t *)pixels,
		.step_x = 2,
		.step_y = 8,
		.width = 4,
		.height = 3,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U16,
	};
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_RUNS, 1, 1);

	assert_int_equal(sample.data_size, sizeof(expected));
	assert_memory_equal(sample.data, expected, sizeof(expected));
	compare_regions(&sample, &raster);
}

/* Runs longer than the rest of the row write nothing after it. */
TEST(runs_stay_within_their_rows)
{
	static const uint8_t data[] = {2, 3, 7, 4, 9, 0};
	uint8_t pixels[16];
	uint32_t row = 1;

	memset(pixels, 0xee, sizeof(pixels));
	assert_string_equal(runs_decode(data, sizeof(data), 4, 2, 1, pixels, &row),
			    "the lengths of its runs do not add up to the width");
	assert_int_equal(row, 0);
	for (unsigned i = 3; i < sizeof(pixels); i++)
		assert_int_equal(pixels[i], 0xee);
}

/* Runs are filled word by word, but stay within rows of any width. */
TEST(runs_of_every_width_stay_within_their_rows)
{
	uint8_t pixels[2 * 200], got[2 * 200 + 64], data[4096];
	uint64_t random = 1;
	uint32_t row;

	for (uint32_t width = 1; width <= 200; width++)
		for (uint32_t size = 1; size <= 2; size++) {
			for (uint32_t x = 0; x < width; x++) {
				bool same = x > 0 && image_random(&random) % 64 > 1;

				for (uint32_t k = 0; k < size; k++)
					pixels[x * size + k] =
						same ? pixels[(x - 1) * size + k]
						     : (uint8_t)(image_random(&random) >> 40);
			}
			size_t n = runs_encode(pixels, width, 1, size, data, sizeof(data));

			assert_true(n > 0);
			memset(got, 0xee, sizeof(got));
			assert_null(runs_decode(data, n, width, 1, size, got, &row));
			assert_memory_equal(got, pixels, width * size);
			for (size_t i = width * size; i < sizeof(got); i++)
				assert_int_equal(got[i], 0xee);
		}
}

/*
 * The best method: runs where they are small, else zstd, else raw if zstd does not make it smaller.
 */
TEST(best_method_follows_the_pixels)
{
	uint8_t pixels[3][64][256];
	struct packimg_raster raster = {
		.data = pixels[0][0],
		.step_x = 1,
		.step_y = 256,
		.width = 256,
		.height = 3 * 64,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U8,
	};
	uint64_t random = 1;

	for (unsigned y = 0; y < 64; y++)
		for (unsigned x = 0; x < 256; x++) {
			pixels[0][y][x] = x > 100;
			pixels[1][y][x] = (uint8_t)((x + y) % 2);
			pixels[2][y][x] = (uint8_t)(image_random(&random) >> 32);
		}
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_BEST, 6, 1);

	assert_int_equal(sample.data[8 + 4], PACKIMG_RASTER_RUNS);
	assert_int_equal(sample.data[16 + 4], PACKIMG_RASTER_ZSTD);
	assert_int_equal(sample.data[24 + 4], PACKIMG_RASTER_RAW);
	compare_regions(&sample, &raster);
}

/* A region does not depend on the bytes of bands outside it. */
TEST(only_bands_of_the_region_are_read)
{
	struct packimg_region top = {0, 0, 40, 16}, middle = {3, 16, 20, 16}, low = {0, 31, 40, 2};
	struct packimg_raster raster, got;
	uint8_t *pixels = mask_pixels(40, 48, 1, PACKIMG_ELEMENT_U8, &raster);

	for (int method = PACKIMG_RASTER_ZSTD; method <= PACKIMG_RASTER_RUNS; method++) {
		struct packimg_sample sample = encode(&raster, method, 4, 1);
		uint8_t *data = malloc(sample.data_size);
		uint32_t ends[3];

		memcpy(data, sample.data, sample.data_size);
		for (int i = 0; i < 3; i++)
			memcpy(&ends[i], data + 8 + 8 * i, 4);
		memset(data + 32, 0xff, ends[0] - 32);
		memset(data + ends[1], 0xff, ends[2] - ends[1]);
		sample.data = data;
		compare(&sample, &raster, &middle);
		assert_int_equal(packimg_decode_raster(decoder, &sample, &top, &got, &error),
				 -EBADMSG);
		assert_int_equal(packimg_decode_raster(decoder, &sample, &low, &got, &error),
				 -EBADMSG);
		free(data);
	}
	free(pixels);
}

/* Changes of a band that is kept are not seen; those of others are. */
TEST(kept_bands_are_not_decoded_again)
{
	struct packimg_region middle = {3, 16, 20, 16}, rest = {0, 20, 40, 28}, top = {0, 0, 9, 9};
	struct packimg_raster raster, got;
	uint8_t *pixels = mask_pixels(40, 48, 1, PACKIMG_ELEMENT_U8, &raster);

	for (int method = PACKIMG_RASTER_ZSTD; method <= PACKIMG_RASTER_RUNS; method++) {
		struct packimg_sample sample = encode(&raster, method, 4, 1);
		uint8_t *data = malloc(sample.data_size);
		uint32_t ends[3];

		memcpy(data, sample.data, sample.data_size);
		for (int i = 0; i < 3; i++)
			memcpy(&ends[i], data + 8 + 8 * i, 4);
		sample.data = data;
		compare_as(FIRST, &sample, &raster, &middle);
		memset(data, 0xff, 32);
		memset(data + ends[0], 0xff, ends[1] - ends[0]);
		compare_as(LATER, &sample, &raster, &rest);
		compare_as(LATER, &sample, &raster, &middle);
		memset(data + 32, 0xff, ends[0] - 32);
		assert_int_equal(decode_raster(&sample, &top, LATER, &got), -EBADMSG);
		/* begins again, and reads the head */
		assert_int_equal(decode_raster(&sample, &middle, LATER, &got), -EBADMSG);
		sample = encode(&raster, method, 4, 1);
		compare_as(FIRST, &sample, &raster, &middle);
		/* another use of the decoder */
		compare_as(ALONE, &sample, &raster, &top);
		compare_as(LATER, &sample, &raster, &rest);
		sample.codec = PACKIMG_CODEC_RAW;
		assert_int_equal(decode_raster(&sample, &top, FIRST, &got), -ENOTSUP);
		free(data);
	}
	free(pixels);
}

/* Rasters of bytes with 1 or 3 channels can be decoded as images. */
TEST(bytes_decode_to_rgb)
{
	struct packimg_region region = {4, 3, 20, 11};
	struct packimg_pixels got;
	struct packimg_raster raster;

	for (uint32_t channels = 1; channels <= 3; channels += 2) {
		uint8_t *pixels = mask_pixels(31, 18, channels, PACKIMG_ELEMENT_U8, &raster);
		struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_ZSTD, 2, 1);

		assert_int_equal(packimg_decode(decoder, &sample, &region, 2, 2, &got, &error), 0);
		for (uint32_t y = 0; y < region.height; y++)
			for (uint32_t x = 0; x < region.width; x++)
				for (uint32_t k = 0; k < 3; k++)
					assert_int_equal(
						got.data[y * got.stride + 3 * x + k],
						stored_pixel(&raster, 1, region.x + x,
							     region.y + y)[channels == 3 ? k : 0]);
		free(pixels);
	}
	uint8_t *pixels = mask_pixels(31, 18, 1, PACKIMG_ELEMENT_U16, &raster);
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_ZSTD, 2, 1);

	assert_int_equal(packimg_decode(decoder, &sample, &region, 0, 0, &got, &error), -ENOTSUP);
	assert_non_null(strstr(error.text, "no image of RGB or grey bytes"));
	free(pixels);
}

struct damage {
	size_t at;    /* offset of the byte of the sample to change */
	uint8_t byte; /* its new value */
	const char *text;
};

static void check_damages(const struct packimg_sample *whole, const struct damage *damages,
			  size_t count)
{
	struct packimg_region region = {0, 0, whole->width, whole->height};
	struct packimg_sample sample = *whole;
	struct packimg_raster got;

	for (size_t i = 0; i < count; i++) {
		/* of exactly that size, so that AddressSanitizer sees reads beyond the end */
		uint8_t *data = malloc(whole->data_size);

		memcpy(data, whole->data, whole->data_size);
		data[damages[i].at] = damages[i].byte;
		sample.data = data;
		assert_int_equal(packimg_decode_raster(decoder, &sample, &region, &got, &error),
				 -EBADMSG);
		if (!strstr(error.text, damages[i].text))
			fail_msg("byte %zu = %u: \"%s\" lacks \"%s\"", damages[i].at,
				 damages[i].byte, error.text, damages[i].text);
		free(data);
	}
	for (uint32_t size = 0; size < whole->data_size; size++) {
		uint8_t *data = malloc(size + !size);

		memcpy(data, whole->data, size);
		sample.data = data;
		sample.data_size = size;
		assert_int_equal(packimg_decode_raster(decoder, &sample, &region, &got, &error),
				 -EBADMSG);
		free(data);
	}
}

TEST(damage_is_reported)
{
	static const uint8_t pixels[] = {7, 7, 7, 3, 7, 7, 7, 3, 9, 9, 9, 9};
	static const struct damage runs[] = {
		{0, 2, "version 2"},
		{1, 2, "element 2"},
		{1, 6, "does not store element 6"},
		{2, 2, "2 channels in the raster, 1 in the record"},
		{2, 0, "0 channels"},
		{3, 9, "bands of 2^9 rows"},
		{3, 0, "2 bands, expected 3"},
		{4, 3, "3 bands, expected 2"},
		{7, 255, "bands, expected 2"},
		{8, 23, "band 0 ends at byte 23, outside 24 to 33"},
		{8, 34, "band 0 ends at byte 34"},
		{16, 29, "band 1 ends at byte 29, outside 30"},
		{16, 32, "bands end at byte 32 of 33"},
		{12, 3, "band 0: method 3 is unknown"},
		{12, 0, "band 0 has 6 bytes, expected 8"},
		{12, 1, "does not declare"},
		{13, 1, "band 0: reserved bytes"},
		{23, 1, "band 1: reserved bytes"},
		{24, 0, "band 0, row 0: it repeats a row above the band"},
		{24, 1, "band 0, row 0: the lengths of its runs do not add up"},
		{24, 3, "band 0, row 0: its runs end early"},
		{24, 0x82, "band 0, row 0:"},
		{25, 0, "do not add up"},
		{25, 4, "do not add up"},
		{27, 2, "do not add up"},
		{29, 1, "band 0, row 1: its runs end early"},
		{29, 0x80, "band 0, row 1: its number of runs is cut off"},
		{8, 29, "band 0, row 1: its number of runs is cut off"},
		{8, 31, "band 0, row 1: bytes follow it"},
		{30, 2, "band 1, row 0: its runs end early"},
		{31, 0x84, "band 1, row 0: its runs end early"},
	};
	struct packimg_raster raster = {
		.data = pixels,
		.step_x = 1,
		.step_y = 4,
		.width = 4,
		.height = 3,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U8,
	};
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_RUNS, 1, 1);

	check_damages(&sample, runs, sizeof(runs) / sizeof(*runs));
}

TEST(damaged_frames_are_reported)
{
	struct packimg_raster raster;
	uint8_t *pixels = mask_pixels(40, 30, 2, PACKIMG_ELEMENT_I16, &raster);
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_ZSTD, 8, 1);
	/* the frame begins at byte 16 with magic number, descriptor and content size */
	const struct damage damages[] = {
		{16, 0, "does not declare the 4800 bytes"},
		{21, 0xc1, "does not declare the 4800 bytes"},
		{sample.data_size - 1, 0xff, "band 0"},
	};

	check_damages(&sample, damages, 2);
	/* A second frame, which zstd would skip, is hidden data. */
	static const uint8_t skipped[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
	struct packimg_region region = {0, 0, 40, 30};
	uint8_t *data = malloc(sample.data_size + sizeof(skipped));
	struct packimg_raster got;

	memcpy(data, sample.data, sample.data_size);
	memcpy(data + sample.data_size, skipped, sizeof(skipped));
	sample.data = data;
	sample.data_size += sizeof(skipped);
	memcpy(data + 8, &sample.data_size, 4);
	assert_int_equal(packimg_decode_raster(decoder, &sample, &region, &got, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "band 0 is not one zstd frame"));
	free(data);
	free(pixels);
}

/* A small file that declares many pixels takes no more memory than the limit. */
TEST(memory_is_limited)
{
	struct packimg_region row = {0, 0, 65535, 1}, all = {0, 0, 65535, 4096};
	uint8_t *pixels = calloc(65535, 4096);
	struct packimg_raster got, raster = {
					   .data = pixels,
					   .step_x = 1,
					   .step_y = 65535,
					   .width = 65535,
					   .height = 4096,
					   .channels = 1,
					   .element = PACKIMG_ELEMENT_U8,
				   };
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_RUNS, 5, 1);

	assert_true(sample.data_size < 8192);
	packimg_decoder_limit(decoder, 16 << 20);
	assert_int_equal(packimg_decode_raster(decoder, &sample, &row, &got, &error), 0);
	assert_int_equal(packimg_decode_raster(decoder, &sample, &all, &got, &error), -E2BIG);
	assert_non_null(strstr(error.text, "the limit is 16777216"));
	packimg_decoder_limit(decoder, 0);
	free(pixels);
}

/* Bands of very long rows have fewer rows; a decoder refuses larger bands. */
TEST(long_rows_make_low_bands)
{
	struct packimg_raster raster;
	uint8_t *pixels = mask_pixels(65535, 5, 24, PACKIMG_ELEMENT_U8, &raster);
	struct packimg_sample sample = encode(&raster, PACKIMG_RASTER_ZSTD, 8, 1);

	assert_int_equal(sample.data[3], 1);
	compare(&sample, &raster, &(struct packimg_region){0, 0, 65535, 5});
	const struct damage high[] = {{3, 2, "bands of 6291360 bytes, at most 4194304"}};
	struct packimg_region region = {0, 0, 65535, 5};
	uint8_t *data = malloc(sample.data_size);
	struct packimg_raster got;

	memcpy(data, sample.data, sample.data_size);
	data[high[0].at] = high[0].byte;
	sample.data = data;
	assert_int_equal(packimg_decode_raster(decoder, &sample, &region, &got, &error), -EBADMSG);
	assert_non_null(strstr(error.text, high[0].text));
	free(data);
	free(pixels);
}

TEST(bad_arguments_are_refused)
{
	uint8_t pixels[64] = {0};
	const struct packimg_raster good = {pixels, 1, 8, 8, 8, 1, PACKIMG_ELEMENT_U8};
	const struct {
		struct packimg_raster raster;
		struct packimg_raster_coding coding;
		const char *text;
	} cases[] = {
		{{pixels, 1, 8, 8, 8, 1, 2}, {0}, "element 2 with 1 channels"},
		{{pixels, 33, 8, 1, 1, 33, 1}, {0}, "33 channels"},
		{{pixels, 0, 8, 1, 1, 0, 1}, {0}, "0 channels"},
		{{pixels, 1, 8, 0, 8, 1, 1}, {0}, "0 x 8 pixels"},
		{{pixels, 1, 8, 8, 65536, 1, 1}, {0}, "8 x 65536 pixels"},
		{{pixels, 2, 8, 4, 8, 1, 1}, {0}, "pixels are 2 bytes apart"},
		{{pixels, 2, 8, 4, 8, 2, 1}, {PACKIMG_RASTER_RUNS, 3, 0}, "method 2 cannot store"},
		{good, {4, 3, 0}, "method 4 cannot store"},
		{good, {PACKIMG_RASTER_ZSTD, 23, 0}, "zstd level 23"},
		{good, {PACKIMG_RASTER_ZSTD, 3, 9}, "bands of 2^9 rows"},
	};
	const uint8_t *data;
	size_t size;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(packimg_encode_raster(encoder, &cases[i].raster, &cases[i].coding,
						       &data, &size, &error),
				 -EINVAL);
		if (!strstr(error.text, cases[i].text))
			fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].text);
	}
	struct packimg_raster huge = {pixels, 128, 0, 65535, 65535, 32, PACKIMG_ELEMENT_F32};
	struct packimg_raster_coding coding = {0};

	assert_int_equal(packimg_encode_raster(encoder, &huge, &coding, &data, &size, &error),
			 -E2BIG);
	struct packimg_sample jpeg = {
		.codec = PACKIMG_CODEC_JPEG, .orientation = 1, .width = 8, .height = 8};
	struct packimg_raster got;

	assert_int_equal(packimg_decode_raster(decoder, &jpeg, &(struct packimg_region){0, 0, 8, 8},
					       &got, &error),
			 -ENOTSUP);
}

TEST_MAIN(setup, teardown)
