/*
 * A wrong JPEG index has no effect, or gives an error that names the index and the remedy. Tests
 * changed bytes, truncations, the index of another image and swapped rows, with packimg_decode()
 * and by rows.
 */
#include "format/codec/jpeg/jpeg_index.h"
#include "format/codec/side_data.h"
#include "format/layout.h"
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/jpeg/baseline.h"

#include <xxhash.h>

enum {
	WIDTH = 150,
	HEIGHT = 190,
	ROWS = 12, /* in MCUs */
	HEAD = 8,  /* size of the item header in bytes */
	SIDE_MAX = 512,
};

static struct packimg_decoder *decoder;
static struct picture picture;
static uint8_t good[SIDE_MAX];
static size_t good_size;

static struct picture make_indexed_picture(uint64_t seed, uint8_t side[SIDE_MAX], size_t *ret_size)
{
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2, .quality = 92, .optimise = true};
	struct picture made = picture_make(WIDTH, HEIGHT, &kind, seed);
	struct packimg_jpeg_info info;
	const uint8_t *bytes;

	assert_int_equal(packimg_jpeg_probe(made.jpeg, made.jpeg_size, &info, NULL), 0);
	assert_int_equal(
		packimg_index_jpeg(decoder, made.jpeg, made.jpeg_size, &info, &bytes, ret_size), 0);
	assert_true(*ret_size <= SIDE_MAX);
	memcpy(side, bytes, *ret_size);
	return made;
}

static int setup(void **state)
{
	if (packimg_decoder_new(&decoder) < 0)
		return -1;
	picture = make_indexed_picture(1, good, &good_size);
	return 0;
}

static int teardown(void **state)
{
	picture_drop(&picture);
	packimg_decoder_free(decoder);
	return 0;
}

static struct packimg_sample sample_of(const uint8_t *side, size_t side_size, uint64_t checksum)
{
	return (struct packimg_sample){
		.data = picture.jpeg,
		.data_size = (uint32_t)picture.jpeg_size,
		.side = side,
		.side_size = (uint32_t)side_size,
		.side_xxh3 = checksum,
		.width = WIDTH,
		.height = HEIGHT,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = 3,
		.orientation = 1,
	};
}

static uint64_t good_checksum(void)
{
	return XXH3_64bits(good, good_size);
}

/* The only two outcomes that a decode may have. */
enum outcome { RIGHT, REFUSED };

static enum outcome refused(int r, const struct packimg_error *error)
{
	assert_int_equal(r, -EBADMSG);
	assert_non_null(strstr(error->text, "index"));
	assert_non_null(strstr(error->text, "packimg index --rebuild"));
	return REFUSED;
}

static void compare_row(const struct packimg_region *region, uint32_t y, const uint8_t *row)
{
	assert_memory_equal(row, picture.pixels + ((size_t)(region->y + y) * WIDTH + region->x) * 3,
			    3 * (size_t)region->width);
}

static enum outcome decode(const struct packimg_sample *sample, const struct packimg_region *region)
{
	struct packimg_pixels pixels;
	struct packimg_error error;
	int r = packimg_decode(decoder, sample, region, 0, 0, &pixels, &error);

	if (r < 0)
		return refused(r, &error);
	for (uint32_t y = 0; y < region->height; y++)
		compare_row(region, y, pixels.data + y * pixels.stride);
	return RIGHT;
}

static enum outcome decode_rows(const struct packimg_sample *sample,
				const struct packimg_region *region)
{
	struct packimg_pixels pixels;
	struct packimg_error error;
	uint32_t ready;
	int r = packimg_decode_begin(decoder, sample, region, 0, 0, &pixels, &error);

	for (uint32_t y = 0; r == 0 && y < region->height; y++) {
		r = packimg_decode_rows(decoder, y + 1, &ready, &error);
		if (r == 0)
			compare_row(region, y,
				    pixels.data +
					    (pixels.ring ? y % pixels.ring : y) * pixels.stride);
	}
	return r < 0 ? refused(r, &error) : RIGHT;
}

/* Decodes in several ways, asserts that all have the same outcome, and returns it. */
static enum outcome check(const uint8_t *side, size_t side_size, uint64_t checksum)
{
	static const struct packimg_region whole = {0, 0, WIDTH, HEIGHT}, part = {40, 90, 60, 80};
	struct packimg_sample sample = sample_of(side, side_size, checksum);
	enum outcome outcome = decode(&sample, &whole);

	assert_int_equal(decode(&sample, &part), outcome);
	assert_int_equal(decode_rows(&sample, &whole), outcome);
	assert_int_equal(decode_rows(&sample, &part), outcome);
	return outcome;
}

TEST(every_byte)
{
	static const uint8_t changes[] = {0x01, 0x80, 0xff};
	const uint8_t *content;
	size_t content_size;

	assert_int_equal(
		side_data_find(good, good_size, PIMG_SIDE_JPEG_INDEX, &content, &content_size), 0);
	assert_int_equal(check(good, good_size, good_checksum()), RIGHT);
	for (size_t at = 0; at < good_size; at++)
		for (unsigned i = 0; i < sizeof(changes); i++) {
			uint8_t side[SIDE_MAX];

			memcpy(side, good, good_size);
			side[at] ^= changes[i];
			enum outcome outcome = check(side, good_size, good_checksum());
			/* a changed item header can hide the index, so both outcomes are allowed */
			if (at >= HEAD && at < HEAD + content_size)
				assert_int_equal(outcome, REFUSED);
		}
	for (unsigned bit = 0; bit < 64; bit++)
		assert_int_equal(check(good, good_size, good_checksum() ^ UINT64_C(1) << bit),
				 REFUSED);
}

TEST(truncations)
{
	for (size_t size = 0; size < good_size; size++) {
		uint8_t *side =
			malloc(size ? size : 1); /* exact size, so that overreads are detected */

		memcpy(side, good, size);
		check(size ? side : NULL, size, good_checksum());
		check(size ? side : NULL, size, XXH3_64bits(side, size));
		free(side);
	}
}

TEST(other_image)
{
	uint8_t side[SIDE_MAX];
	size_t size;
	struct picture other = make_indexed_picture(2, side, &size);

	assert_int_equal(check(side, size, good_checksum()), REFUSED);
	picture_drop(&other);
}

/* Makes an index with two rows swapped. */
static size_t swap_rows(unsigned i, unsigned j, uint8_t *side)
{
	static struct jpeg_index_entry entries[64 * JPEG_INDEX_ENTRIES_MAX];
	uint8_t content[SIDE_MAX];
	struct jpeg_index index;
	struct jpeg_frame frame;
	const uint8_t *bytes;
	size_t size;

	assert_int_equal(jpeg_frame_parse(picture.jpeg, picture.jpeg_size, &frame), 0);
	assert_int_equal(side_data_find(good, good_size, PIMG_SIDE_JPEG_INDEX, &bytes, &size), 0);
	assert_int_equal(jpeg_index_open(bytes, size, &frame, &index), 0);
	assert_int_equal(index.plan.row_count, ROWS);
	uint32_t count = index.plan.entry_count;
	for (uint32_t row = 0; row < ROWS; row++)
		for (uint32_t e = 0; e < count; e++)
			entries[row * count + e] = jpeg_index_get(&index,
								  row == i   ? j
								  : row == j ? i
									     : row,
								  e);
	size = jpeg_index_pack(&index.plan, entries, content);
	side_data_item_write(side, PIMG_SIDE_JPEG_INDEX, content, (uint32_t)size);
	return side_data_item_size(size);
}

TEST(swapped_rows)
{
	for (unsigned i = 0; i < ROWS; i++)
		for (unsigned j = 0; j < i; j++) {
			static const struct packimg_region whole = {0, 0, WIDTH, HEIGHT};
			uint8_t side[SIDE_MAX];
			size_t size = swap_rows(i, j, side);

			assert_int_equal(check(side, size, good_checksum()), REFUSED);
			/* descending offsets are harmless even with a matching checksum */
			struct packimg_sample sample =
				sample_of(side, size, XXH3_64bits(side, size));
			decode(&sample, &whole);
			decode_rows(&sample, &whole);
		}
}

TEST(other_version)
{
	uint8_t side[SIDE_MAX];

	memcpy(side, good, good_size);
	memset(side + HEAD, 0xee, good_size - HEAD - 7); /* all bytes except possible padding */
	assert_int_equal(check(side, good_size, XXH3_64bits(side, good_size)), RIGHT);
}

TEST_MAIN(setup, teardown)
