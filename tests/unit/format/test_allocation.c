/*
 * There are no allocations in a decoder that has already decoded an image of the same size, in an
 * encoder, or when accessing samples or matching them with a filter. Parsing a filter reports each
 * failed allocation.
 */
#include "format/packimg.h"
#include "format/where.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"
#include "tests/unit/format/where_dataset.h"

#include <dlfcn.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void)
{
	return 77; /* skipped: a sanitizer replaces malloc() */
}

#else

static unsigned long allocations;
static unsigned long failing; /* the number of the allocation that fails; 0: none */

static bool allocation_fails(void)
{
	return ++allocations == failing;
}

/* glibc's allocator, under the names that remain available when malloc() is replaced */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	return allocation_fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return allocation_fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	return allocation_fails() ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return allocation_fails() ? NULL : __libc_memalign(alignment, size);
}

static struct packimg_error error;

static const struct jpeg_kind kinds[] = {
	{.components = 3, .h = 2, .v = 2},
	{.components = 3, .h = 1, .v = 1},
	{.components = 3, .h = 2, .v = 2, .progressive = true},
	{.components = 3, .h = 2, .v = 2, .arithmetic = true},
	{.components = 3, .h = 2, .v = 1, .restart_rows = 1},
	{.components = 4, .h = 1, .v = 1},
	{.components = 1, .h = 1, .v = 1},
};

static void decode_all(struct packimg_decoder *decoder, struct packimg_sample *samples,
		       size_t count, uint64_t seed)
{
	for (size_t i = 0; i < count; i++)
		for (int n = 0; n < 8; n++) {
			struct packimg_region region = {0, 0, samples[i].width, samples[i].height};
			struct packimg_pixels pixels;
			/* seed 0 decodes only whole images, in every orientation */
			if (seed != 0) {
				region.x = (uint32_t)(image_random(&seed) % samples[i].width);
				region.y = (uint32_t)(image_random(&seed) % samples[i].height);
				region.width = 1 + (uint32_t)(image_random(&seed) %
							      (samples[i].width - region.x));
				region.height = 1 + (uint32_t)(image_random(&seed) %
							       (samples[i].height - region.y));
			}
			samples[i].orientation =
				(uint8_t)(samples[i].width == samples[i].height ? 1 + n : 1);
			uint32_t hint = n % 2 ? 16 : 0;
			if (packimg_decode(decoder, &samples[i], &region, hint, hint, &pixels,
					   &error) < 0)
				fail_msg("%s", error.text);
		}
}

TEST(decode)
{
	enum { COUNT = sizeof(kinds) / sizeof(*kinds), SIDE = 200 };
	struct packimg_decoder *decoder;
	struct packimg_encoder *encoder;
	struct packimg_sample samples[COUNT + 3];
	uint8_t *pixels = image_pixels(SIDE, SIDE, 3, 1), *data[COUNT];
	const uint8_t *packed;
	size_t size;

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_encode_zstd(encoder, pixels, SIDE * SIDE * 3, 3, &packed, &size),
			 0);
	for (size_t i = 0; i < COUNT + 3; i++)
		samples[i] = (struct packimg_sample){.data = pixels,
						     .data_size = SIDE * SIDE * 3,
						     .width = SIDE,
						     .height = SIDE,
						     .channels = 3,
						     .codec = PACKIMG_CODEC_RAW};
	samples[COUNT + 1].channels = 1;
	samples[COUNT + 1].data_size /= 3;
	samples[COUNT + 2].codec = PACKIMG_CODEC_RAW_ZSTD;
	samples[COUNT + 2].data = packed;
	samples[COUNT + 2].data_size = (uint32_t)size;
	for (size_t i = 0; i < COUNT; i++) {
		data[i] = image_jpeg(SIDE, SIDE, &kinds[i], i, &size);
		samples[i].codec = PACKIMG_CODEC_JPEG;
		samples[i].channels = (uint8_t)kinds[i].components;
		samples[i].data = data[i];
		samples[i].data_size = (uint32_t)size;
	}
	decode_all(decoder, samples, COUNT + 3, 0);
	unsigned long before = allocations;
	for (uint64_t seed = 1; seed < 8; seed++)
		decode_all(decoder, samples, COUNT + 3, seed);
	assert_int_equal(allocations, before);
	for (size_t i = 0; i < COUNT; i++)
		free(data[i]);
	packimg_encoder_free(encoder);
	packimg_decoder_free(decoder);
	free(pixels);
}

static void encode_all(struct packimg_encoder *encoder, const uint8_t *pixels)
{
	const uint8_t *data;
	size_t size;

	for (int n = 0; n < 4; n++) {
		assert_int_equal(packimg_encode_jpeg(encoder, pixels, 600, 200, 200, n % 2 ? 3 : 1,
						     90, n / 2, &data, &size),
				 0);
		assert_int_equal(packimg_encode_zstd(encoder, pixels, 120000, 3, &data, &size), 0);
	}
}

TEST(encode)
{
	struct packimg_encoder *encoder;
	uint8_t *pixels = image_pixels(200, 200, 3, 1);

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	encode_all(encoder, pixels);
	unsigned long before = allocations;
	encode_all(encoder, pixels);
	assert_int_equal(allocations, before);
	packimg_encoder_free(encoder);
	free(pixels);
}

TEST(access)
{
	struct packimg *dataset;
	char path[4096];

	snprintf(path, sizeof(path), "%s/good/set.pimg", getenv("PIMG_GOLDEN"));
	assert_int_equal(packimg_open(path, &dataset, &error), 0);
	unsigned long before = allocations;
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		struct packimg_sample sample;
		struct packimg_value value;
		const char *name;
		size_t size;
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		assert_int_equal(packimg_sample_check(&sample), 0);
		assert_int_equal(packimg_source(dataset, i, &name, &size), 0);
		assert_int_equal(packimg_value(dataset, i, 0, &value), 0);
	}
	assert_int_equal(allocations, before);
	packimg_close(dataset);
}

static const char filter[] =
	"width * 2 >= 200 and label in (3, 1, 0) and not (class in ('dog', 'cat') and score > 0.5)"
	" or key like '*a*' and count(outlines) > 0 or caption == 'x' or key < caption";

/* Parses the filter after failures of each allocation. */
static struct where *parse_filter(const struct packimg *dataset)
{
	struct where *where = NULL;

	for (unsigned long i = 1;; i++) {
		failing = allocations + i;
		int r = where_parse(filter, dataset, &where, NULL);
		bool failed = allocations >= failing;

		failing = 0;
		assert_int_equal(r, failed ? -ENOMEM : 0);
		if (!failed) {
			assert_true(i > 8);
			return where;
		}
	}
}

TEST(filter)
{
	char *directory = image_directory(), path[4096];
	struct packimg *dataset;
	int matches = 0;

	snprintf(path, sizeof(path), "%s/where.pimg", directory);
	where_dataset_write(path);
	assert_int_equal(packimg_open(path, &dataset, &error), 0);
	struct where *where = parse_filter(dataset);
	unsigned long before = allocations;
	for (uint64_t i = 0; i < WHERE_SAMPLES; i++)
		matches += where_match(where, dataset, i);
	assert_int_equal(allocations, before);
	assert_int_equal(matches, 3);
	where_free(where);
	packimg_close(dataset);
	image_directory_remove(directory);
}

TEST_MAIN(NULL, NULL)

#endif
