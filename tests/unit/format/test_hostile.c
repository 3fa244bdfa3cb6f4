/*
 * Malicious or damaged JPEG files: each gives an error after bounded work, and leaves no state for
 * the next image.
 */
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <time.h>

static int decode(const uint8_t *data, size_t size, uint32_t width, uint32_t height, int components,
		  struct packimg_pixels *ret_pixels)
{
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)size,
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = (uint8_t)components,
		.orientation = 1,
	};
	struct packimg_region region = {0, 0, width, height};

	error.text[0] = '\0';
	return packimg_decode(decoder, &sample, &region, 0, 0, ret_pixels, &error);
}

/* Returns the offset just after the first marker of this kind. */
static size_t find_marker(const uint8_t *data, size_t size, uint8_t marker)
{
	for (size_t i = 2; i + 4 < size;) {
		assert_int_equal(data[i], 0xff);
		if (data[i + 1] == marker)
			return i + 2;
		i += 2 + (size_t)data[i + 2] * 256 + data[i + 3];
	}
	fail_msg("no marker %02x", marker);
	return 0;
}

static const struct jpeg_kind kinds[] = {
	{.components = 3, .h = 2, .v = 2},
	{.components = 3, .h = 1, .v = 1, .restart_rows = 1},
	{.components = 3, .h = 2, .v = 1, .progressive = true},
	{.components = 3, .h = 2, .v = 2, .arithmetic = true},
	{.components = 4, .h = 1, .v = 1},
	{.components = 1, .h = 1, .v = 1},
	{.components = 3, .h = 2, .v = 2, .separate = true},
};

/* Truncations: an error, or the same pixels if only bytes after the image are missing. */
TEST(truncated)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		size_t size, last = 0;
		uint8_t *data = image_jpeg(60, 44, &kinds[k], k, &size),
			*whole = malloc(60 * 44 * 3);
		struct packimg_pixels pixels;
		assert_int_equal(decode(data, size, 60, 44, kinds[k].components, &pixels), 0);
		for (int y = 0; y < 44; y++)
			memcpy(whole + y * 180, pixels.data + y * pixels.stride, 180);
		for (size_t cut = 0; cut < size; cut++) {
			/* exact size, so that a sanitizer detects overreads */
			uint8_t *copy = malloc(cut + 64);
			memcpy(copy, data, cut);
			memset(copy + cut, 0xa5, 64);
			int r = decode(copy, cut, 60, 44, kinds[k].components, &pixels);
			if (r != 0 && r != -EBADMSG)
				fail_msg("kind %zu cut at %zu: %d %s", k, cut, r, error.text);
			if (r == 0)
				for (int y = 0; y < 44; y++)
					assert_memory_equal(whole + y * 180,
							    pixels.data + y * pixels.stride, 180);
			if (r < 0)
				last = cut;
			free(copy);
		}
		/* only the EOI marker, and zeros that arithmetic coding may omit, may be missing */
		assert_true(last + 8 >= size);
		free(whole);
		free(data);
	}
}

TEST(wrong_size)
{
	struct packimg_pixels pixels;
	size_t size;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		uint8_t *data = image_jpeg(60, 44, &kinds[k], k, &size);
		assert_int_equal(decode(data, size, 60, 45, kinds[k].components, &pixels),
				 -EBADMSG);
		assert_non_null(strstr(error.text, "60x44"));
		assert_int_equal(decode(data, size, 44, 60, kinds[k].components, &pixels),
				 -EBADMSG);
		assert_int_equal(
			decode(data, size, 60, 44, kinds[k].components == 3 ? 1 : 3, &pixels),
			-EBADMSG);
		assert_non_null(strstr(error.text, "components"));
		free(data);
	}
}

/* A small file that claims the maximum image size must not cause a large allocation. */
TEST(huge)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct packimg_pixels pixels;
		size_t size;
		uint8_t *data = image_jpeg(60, 44, &kinds[k], k, &size);
		uint8_t marker = kinds[k].arithmetic ? 0xc9 : kinds[k].progressive ? 0xc2 : 0xc0;
		size_t frame = find_marker(data, size, marker);
		/* larger than libjpeg's limit of 65500 */
		memcpy(data + frame + 3, "\xff\xdc\xff\xdc", 4);
		clock_t start = clock();
		int r = decode(data, size, 65500, 65500, kinds[k].components, &pixels);
		if (r != -EBADMSG || !strstr(error.text, "too few bytes"))
			fail_msg("kind %zu: %d %s", k, r, error.text);
		assert_true(clock() - start < CLOCKS_PER_SEC / 10);
		free(data);
	}
}

/* A progressive file that repeats its last scan: each repetition costs a pass over the image. */
TEST(many_scans)
{
	struct jpeg_kind kind = {.components = 3, .h = 1, .v = 1, .progressive = true};
	struct packimg_pixels pixels;
	size_t size, position = 0;
	uint8_t *data = image_jpeg(64, 64, &kind, 1, &size);

	for (size_t i = 0; i + 1 < size; i++)
		if (data[i] == 0xff && data[i + 1] == 0xda)
			position = i;
	size_t scan_size = size - 2 - position;
	uint8_t *bomb = malloc(size + scan_size * 1000);
	memcpy(bomb, data, size - 2);
	size_t bomb_size = size - 2;
	for (int i = 0; i < 1000; i++) {
		memcpy(bomb + bomb_size, data + position, scan_size);
		bomb_size += scan_size;
	}
	memcpy(bomb + bomb_size, data + size - 2, 2);
	/* repeating a refinement is invalid too, so the error may be either one */
	assert_int_equal(decode(bomb, bomb_size + 2, 64, 64, 3, &pixels), -EBADMSG);
	free(bomb);
	free(data);
}

/*
 * An unbounded number of valid scans: one first DC scan is allowed per component and position, and
 * EOB runs take no bytes.
 */
TEST(scan_limit)
{
	struct jpeg_kind kind = {.components = 1, .h = 1, .v = 1, .separate = true};
	struct packimg_pixels pixels;
	size_t size;
	uint8_t *data = image_jpeg(64, 64, &kind, 1, &size);
	size_t position = find_marker(data, size, 0xda) - 2, scan_size = size - 2 - position;
	uint8_t *bomb = malloc(size + scan_size * 300);
	size_t bomb_size = size - 2;

	memcpy(bomb, data, size - 2);
	for (int i = 0; i < 300; i++) {
		memcpy(bomb + bomb_size, data + position, scan_size);
		bomb_size += scan_size;
	}
	memcpy(bomb + bomb_size, data + size - 2, 2);
	/* a sequential image is complete after its first scan, and the rest is not read */
	assert_int_equal(decode(bomb, bomb_size + 2, 64, 64, 1, &pixels), 0);
	/*
	 * turned into a progressive image (SOF2, spectral selection 0..0), each scan would be
	 * another pass
	 */
	bomb[find_marker(bomb, bomb_size, 0xc0) - 1] = 0xc2;
	for (size_t i = position; i + 10 < bomb_size; i++)
		if (bomb[i] == 0xff && bomb[i + 1] == 0xda)
			bomb[i + 8] = 0;
	clock_t start = clock();
	assert_int_equal(decode(bomb, bomb_size + 2, 64, 64, 1, &pixels), -EBADMSG);
	assert_true(clock() - start < CLOCKS_PER_SEC);
	free(bomb);
	free(data);
}

TEST(unsupported)
{
	struct packimg_pixels pixels;
	struct packimg_jpeg_info info;
	size_t size;
	uint8_t *data = image_jpeg(60, 44, &kinds[0], 1, &size);
	size_t frame = find_marker(data, size, 0xc0);

	data[frame + 2] = 12;
	assert_int_equal(decode(data, size, 60, 44, 3, &pixels), -ENOTSUP);
	assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
	assert_int_equal(info.precision, 12);
	data[frame + 2] = 8;
	data[frame - 1] = 0xc3;
	assert_int_equal(decode(data, size, 60, 44, 3, &pixels), -ENOTSUP);
	assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), -ENOTSUP);
	data[frame - 1] = 0xc0;
	assert_int_equal(decode(data, size, 60, 44, 3, &pixels), 0);
	free(data);
}

/* Removes every segment with this marker. */
static size_t strip(uint8_t *data, size_t size, uint8_t marker)
{
	for (size_t i = 2; i + 4 < size && data[i + 1] != 0xda;) {
		size_t length = 2 + (size_t)data[i + 2] * 256 + data[i + 3];
		if (data[i + 1] == marker) {
			memmove(data + i, data + i + length, size - i - length);
			size -= length;
		} else {
			i += length;
		}
	}
	return size;
}

/*
 * An image without tables must not be decoded with the previous image's tables, or results would
 * depend on the order of images.
 */
TEST(no_inheritance)
{
	static const struct jpeg_kind both[] = {
		{.components = 3, .h = 2, .v = 2, .optimise = true},
		{.components = 3, .h = 2, .v = 2, .progressive = true, .optimise = true},
	};

	for (int k = 0; k < 2; k++) {
		struct packimg_pixels pixels;
		size_t size;
		uint8_t *data = image_jpeg(60, 44, &both[k], 1, &size), *stripped = malloc(size);
		memcpy(stripped, data, size);
		size_t stripped_size = strip(stripped, size, 0xdb);
		assert_true(stripped_size < size);
		assert_int_equal(decode(data, size, 60, 44, 3, &pixels), 0);
		assert_int_equal(decode(stripped, stripped_size, 60, 44, 3, &pixels), -EBADMSG);
		/*
		 * a decoder may assume the standard Huffman tables if there are none, but never the
		 * optimised ones of the image before
		 */
		memcpy(stripped, data, size);
		stripped_size = strip(stripped, size, 0xc4);
		struct packimg_decoder *fresh, *used = decoder;
		assert_int_equal(packimg_decoder_new(&fresh), 0);
		decoder = fresh;
		int r_fresh = decode(stripped, stripped_size, 60, 44, 3, &pixels);
		decoder = used;
		assert_int_equal(decode(data, size, 60, 44, 3, &pixels), 0);
		assert_int_equal(decode(stripped, stripped_size, 60, 44, 3, &pixels), r_fresh);
		packimg_decoder_free(fresh);
		free(stripped);
		free(data);
	}
}

/* After a failure the decoder still decodes the next image correctly. */
TEST(recovers)
{
	struct packimg_pixels pixels;
	uint32_t width, height;
	int components;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		size_t size;
		uint8_t *data = image_jpeg(60, 44, &kinds[k], k, &size);
		uint8_t *expected =
			kinds[k].components == 4
				? NULL
				: image_decode_plain(data, size, 1, &width, &height, &components);
		for (size_t cut = size / 8; cut < size; cut += size / 8) {
			decode(data, cut, 60, 44, kinds[k].components, &pixels);
			assert_int_equal(decode(data, size, 60, 44, kinds[k].components, &pixels),
					 0);
			for (int y = 0; expected && y < 44; y++)
				assert_memory_equal(pixels.data + y * pixels.stride,
						    expected + y * 180, 180);
		}
		free(expected);
		free(data);
	}
}

TEST_MAIN(decoder_setup, decoder_teardown)
