/*
 * Memory limit of a decoder: it bounds the memory for a sample, whatever samples came before. The
 * decoder releases the memory for a rare large sample.
 */
#include "format/codec/scratch.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <xxhash.h>
#include <zstd.h>

enum { MIB = 1 << 20, SIDE = 4096 };

static struct packimg_sample sample_of(const void *data, size_t size, enum packimg_codec codec,
				       uint32_t side)
{
	return (struct packimg_sample){
		.index = 7,
		.data = data,
		.data_size = (uint32_t)size,
		.width = side,
		.height = side,
		.codec = (uint8_t)codec,
		.channels = 3,
		.orientation = 1,
	};
}

static int decode(const struct packimg_sample *sample, uint64_t limit)
{
	struct packimg_region region = {0, 0, sample->width, sample->height};
	struct packimg_pixels pixels;

	packimg_decoder_limit(decoder, limit);
	return packimg_decode(decoder, sample, &region, 0, 0, &pixels, &error);
}

/* Makes a zstd frame of side x side x 3 zeros. */
static void *pack_zeros(uint32_t side, size_t *ret_size)
{
	size_t size = (size_t)side * side * 3, bound = ZSTD_compressBound(size);
	void *pixels = calloc(1, size), *data = malloc(bound);

	*ret_size = ZSTD_compress(data, bound, pixels, size, 1);
	assert_false(ZSTD_isError(*ret_size));
	free(pixels);
	return data;
}

/* The header of the frame is enough to request 12 GB. */
TEST(declared)
{
	static const uint8_t zero[16];
	uint64_t size = (uint64_t)PACKIMG_SIDE_MAX * PACKIMG_SIDE_MAX * 3;
	uint8_t frame[32] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0};

	memcpy(frame + 5, &size, sizeof(size));
	memcpy(frame + 13, zero, sizeof(zero));
	struct packimg_sample sample =
		sample_of(frame, sizeof(frame), PACKIMG_CODEC_RAW_ZSTD, PACKIMG_SIDE_MAX);
	assert_int_equal(decode(&sample, 256 * MIB), -E2BIG);
	assert_non_null(strstr(error.text, "sample 7: decoding 65535x65535 pixels takes at least"));
	assert_non_null(strstr(error.text, "the limit is 268435456"));
}

TEST(zstd)
{
	size_t size;
	void *data = pack_zeros(SIDE, &size);
	struct packimg_sample sample = sample_of(data, size, PACKIMG_CODEC_RAW_ZSTD, SIDE);

	assert_int_equal(decode(&sample, 40 * MIB), -E2BIG);
	assert_int_equal(decode(&sample, 80 * MIB), 0);
	/* rotation needs a second copy of the pixels */
	sample.orientation = 6;
	assert_int_equal(decode(&sample, 80 * MIB), -E2BIG);
	assert_int_equal(decode(&sample, 160 * MIB), 0);
	/* memory kept from the rotated sample does not count against the next one */
	sample.orientation = 1;
	assert_int_equal(decode(&sample, 80 * MIB), 0);
	assert_int_equal(decode(&sample, 0), 0);
	free(data);
}

static void check_jpeg(const struct jpeg_kind *kind, uint64_t little, uint64_t enough)
{
	size_t size;
	uint8_t *data = image_jpeg(1024, 1024, kind, 1, &size);
	struct packimg_sample sample = sample_of(data, size, PACKIMG_CODEC_JPEG, 1024);

	assert_int_equal(decode(&sample, little), -E2BIG);
	assert_non_null(strstr(error.text, "sample 7: decoding 1024x1024 pixels takes at least"));
	assert_int_equal(decode(&sample, enough), 0);
	free(data);
}

/*
 * Tests our own decoder, and libjpeg-turbo, which for a progressive file needs more memory than its
 * pixels take.
 */
TEST(jpeg)
{
	check_jpeg(&(struct jpeg_kind){.components = 3, .h = 2, .v = 2}, 3 * MIB, 16 * MIB);
	check_jpeg(&(struct jpeg_kind){.components = 3, .h = 1, .v = 1, .progressive = true},
		   6 * MIB, 24 * MIB);
}

/* The decoder copies side data, so it counts. */
TEST(side)
{
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2};
	size_t size, side_size = 20 * MIB;
	uint8_t *data = image_jpeg(64, 64, &kind, 1, &size), *side = calloc(1, side_size);
	struct packimg_sample sample = sample_of(data, size, PACKIMG_CODEC_JPEG, 64);

	sample.side = side;
	sample.side_size = (uint32_t)side_size;
	assert_int_equal(decode(&sample, 16 * MIB), -E2BIG);
	assert_int_equal(decode(&sample, 64 * MIB), 0);
	free(side);
	free(data);
}

static void next_image(struct scratch_budget *budget, struct scratch *scratch, size_t size)
{
	scratch_budget_next(budget);
	assert_int_equal(scratch_reserve(scratch, size), 0);
}

TEST(given_back)
{
	struct scratch_budget budget = {0};
	struct scratch a, b;

	scratch_init(&a, &budget);
	scratch_init(&b, &budget);
	next_image(&budget, &a, 300 * MIB);
	assert_true(budget.held >= 300 * MIB);
	/* if large images recur, the decoder keeps their memory */
	for (int i = 0; i < 100; i++)
		next_image(&budget, i % 10 == 0 ? &a : &b, i % 10 == 0 ? 300 * MIB : MIB);
	assert_true(budget.held >= 300 * MIB);
	for (int i = 0; i < 64; i++)
		next_image(&budget, &b, MIB);
	assert_true(budget.held > 0 && budget.held < 10 * MIB);
	scratch_deinit(&a);
	scratch_deinit(&b);
}

TEST(gives_way)
{
	struct scratch_budget budget = {.limit = 40 * MIB};
	struct scratch a, b;

	scratch_init(&a, &budget);
	scratch_init(&b, &budget);
	next_image(&budget, &a, 24 * MIB);
	next_image(&budget, &b, 24 * MIB);
	assert_true(budget.held <= 40 * MIB);
	assert_int_equal(scratch_reserve(&a, 24 * MIB), -E2BIG);
	assert_true(budget.refused >= 48 * MIB);
	scratch_deinit(&a);
	scratch_deinit(&b);
}

/*
 * If adding the spare quarter to a size overflows, the reservation fails instead of being too
 * small.
 */
TEST(enormous)
{
	struct scratch_budget budget = {0};
	struct scratch scratch;

	scratch_init(&scratch, &budget);
	assert_int_equal(scratch_reserve(&scratch, SIZE_MAX), -ENOMEM);
	assert_int_equal(scratch_reserve(&scratch, SIZE_MAX / 5 * 4 + 64), -ENOMEM);
	assert_null(scratch.data);
	scratch_deinit(&scratch);
}

TEST_MAIN(decoder_setup, decoder_teardown)
