/*
 * What our baseline decoder refuses, and damaged files, which must give errors and no memory
 * errors. test_jpeg_matrix.c compares its pixels.
 */
#include "format/codec/jpeg/jpeg_frame.h"
#include "tests/test.h"
#include "tests/unit/format/jpeg/baseline.h"

static uint64_t seed = 1;

static uint32_t draw(uint32_t bound)
{
	return (uint32_t)(image_random(&seed) % bound);
}

TEST(leaves_the_rest)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {
		.components = 3, .h = 2, .v = 2, .quality = 90, .progressive = true};
	struct picture picture = picture_make(40, 40, &kind, 1);
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -ENOTSUP);
	assert_int_equal(picture_index(decoder, &picture), -ENOTSUP);
	picture_drop(&picture);
	kind.progressive = false;
	picture = picture_make(40, 40, &kind, 1);
	assert_int_equal(picture_decode(decoder, &picture, false, 1, 0, 40, 40, &pixels), -EINVAL);
	picture.height = 41;
	assert_int_equal(picture_decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -EBADMSG);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

struct headers {
	uint8_t application; /* APPn marker; 0 leaves the segment out */
	const char *content;
	uint8_t content_size;
	const char *ids;
	uint16_t width;
};

static void append(uint8_t **out, const void *bytes, size_t size)
{
	memcpy(*out, bytes, size);
	*out += size;
}

static int parse(const struct headers *headers)
{
	uint8_t file[512] = {0xff, 0xd8}, *out = file + 2;
	uint8_t scan[] = {0xff, 0xda, 0, 12, 3, 0, 0, 0, 0, 0, 0, 0, 63, 0};
	uint8_t frame[] = {0xff, 0xc0, 0, 17, 8, 0, 8, 0, 0, 3, 0, 0x11, 0, 0, 0x11, 0, 0, 0x11, 0};
	struct jpeg_frame parsed;

	if (headers->application) {
		append(&out,
		       (uint8_t[]){0xff, headers->application, 0,
				   (uint8_t)(headers->content_size + 2)},
		       4);
		append(&out, headers->content, headers->content_size);
	}
	append(&out, "\xff\xdb\0\x43", 5);
	memset(out, 1, 64);
	out += 64;
	for (char slot = 0; slot <= 0x10; slot += 0x10) {
		append(&out, "\xff\xc4\0\x14", 4);
		append(&out, &slot, 1);
		append(&out, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
	}
	frame[7] = (uint8_t)(headers->width >> 8);
	frame[8] = (uint8_t)headers->width;
	for (unsigned i = 0; i < 3; i++) {
		frame[10 + 3 * i] = (uint8_t)headers->ids[i];
		scan[5 + 2 * i] = (uint8_t)headers->ids[i];
	}
	append(&out, frame, sizeof(frame));
	append(&out, scan, sizeof(scan));
	return jpeg_frame_parse(file, (size_t)(out - file), &parsed);
}

/* Our decoder leaves files to libjpeg that libjpeg treats as RGB or refuses. */
TEST(leaves_headers)
{
	static const char jfif[] = "JFIF\0\1\1\0\0\1\0\1\0\0", adobe[] = "Adobe\0d\0\0\0\0";
	const struct {
		struct headers headers;
		int expected;
	} cases[] = {
		{{0, NULL, 0, "\1\2\3", 100}, 0},
		{{0, NULL, 0, "\1\2\3", 65500}, 0},
		{{0, NULL, 0, "\1\2\3", 65501}, -ENOTSUP},
		{{0, NULL, 0, "\1\2\3", 0}, -ENOTSUP},
		{{0, NULL, 0, "RGB", 100}, -ENOTSUP},
		{{0xe0, jfif, 14, "RGB", 100}, 0},
		{{0xe0, jfif, 13, "RGB", 100}, -ENOTSUP},     /* one byte too short for JFIF */
		{{0xee, adobe, 12, "\1\2\3", 100}, -ENOTSUP}, /* transform 0 means RGB */
		{{0xee, adobe, 11, "\1\2\3", 100}, 0},
		{{0xee, "Adobe\0d\0\0\0\0\1", 12, "RGB", 100}, 0},
		{{0xee, "Adobe\0d\0\0\0\0\2", 12, "\1\2\3", 100},
		 0}, /* transforms unknown to libjpeg */
		{{0xee, "Adobe\0d\0\0\0\0\x75", 12, "\1\2\3", 100}, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (parse(&cases[i].headers) != cases[i].expected)
			fail_msg("case %u: should be %d", i, cases[i].expected);
}

/*
 * Decoding the last rows of a truncated file always fails; flipped bytes cause no memory error
 * (checked by sanitizers).
 */
TEST(damaged_scan)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3,
				 .h = 2,
				 .v = 1,
				 .quality = 85,
				 .restart_mcus = 4,
				 .optimise = true};
	struct picture picture = picture_make(90, 50, &kind, 2), broken = picture;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	for (size_t size = 0; size + 4 < picture.jpeg_size; size++) {
		broken.jpeg =
			malloc(size ? size : 1); /* exact size, so that overreads are detected */
		broken.jpeg_size = size;
		memcpy(broken.jpeg, picture.jpeg, size);
		assert_true(picture_decode(decoder, &broken, false, 0, 0, 90, 50, &pixels) < 0);
		assert_true(picture_index(decoder, &broken) < 0);
		free(broken.jpeg);
	}
	broken.jpeg_size = picture.jpeg_size;
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			broken.jpeg[draw((uint32_t)picture.jpeg_size)] = (unsigned char)draw(256);
		picture_decode(decoder, &broken, false, 3, 5, 60, 40, &pixels);
	}
	free(broken.jpeg);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

/* A marker that is not allowed in a scan ends the scan; later bytes do not belong to the image. */
TEST(marker_in_scan)
{
	static const uint8_t markers[] = {0xd9, 0xd0, 0xfe}; /* EOI, RST and COM */
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 1, .quality = 85, .optimise = true};
	struct picture picture = picture_make(90, 50, &kind, 2), broken = picture;
	struct jpeg_frame frame;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_decode(decoder, &picture, false, 0, 0, 90, 50, &pixels), 0);
	assert_int_equal(jpeg_frame_parse(picture.jpeg, picture.jpeg_size, &frame), 0);
	broken.jpeg_size = picture.jpeg_size + 2;
	broken.jpeg = malloc(broken.jpeg_size);
	for (size_t at = (size_t)(frame.scan - picture.jpeg); at + 4 < picture.jpeg_size; at++) {
		if (picture.jpeg[at - 1] == 0xff)
			continue;
		memcpy(broken.jpeg, picture.jpeg, at);
		memcpy(broken.jpeg + at + 2, picture.jpeg + at, picture.jpeg_size - at);
		broken.jpeg[at] = 0xff;
		broken.jpeg[at + 1] = markers[at % sizeof(markers)];
		assert_int_equal(picture_decode(decoder, &broken, false, 0, 0, 90, 50, &pixels),
				 -EBADMSG);
	}
	free(broken.jpeg);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

/*
 * An image cannot have an index if restart intervals end within its rows. Any index of it is
 * refused, even one that would give pixels.
 */
TEST(impossible_index)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 1, .quality = 85};
	struct picture plain = picture_make(90, 50, &kind, 2);
	const uint8_t *pixels;

	kind.restart_mcus = 4; /* rows have 6 MCUs */
	struct picture restarting = picture_make(90, 50, &kind, 2);
	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_index(decoder, &restarting), -ENOTSUP);
	assert_int_equal(picture_index(decoder, &plain), 0);
	assert_int_equal(picture_decode(decoder, &plain, true, 0, 0, 16, 8, &pixels), 0);
	restarting.index = plain.index;
	restarting.index_size = plain.index_size;
	assert_int_equal(picture_decode(decoder, &restarting, true, 0, 0, 16, 8, &pixels),
			 -EBADMSG);
	restarting.index = NULL;
	assert_int_equal(picture_decode(decoder, &restarting, false, 0, 0, 16, 8, &pixels), 0);
	picture_drop(&restarting);
	picture_drop(&plain);
	jpeg_baseline_free(decoder);
}

/*
 * A wrong index, or a damaged scan with a valid index, gives an error or pixels, but no memory
 * error.
 */
TEST(damaged_index)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2, .quality = 92, .optimise = true};
	struct picture picture = picture_make(150, 190, &kind, 3);
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_index(decoder, &picture), 0);
	struct picture broken = picture;
	broken.index_size--;
	assert_int_equal(picture_decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = 0;
	assert_int_equal(picture_decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = picture.index_size;
	broken.index = malloc(picture.index_size);
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		memcpy(broken.index, picture.index, picture.index_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			if (n & 1)
				broken.index[draw((uint32_t)broken.index_size)] =
					(uint8_t)draw(256);
			else
				broken.jpeg[draw((uint32_t)picture.jpeg_size)] =
					(unsigned char)draw(256);
		picture_decode(decoder, &broken, true, 10, 20, 100, 150, &pixels);
	}
	free(broken.index);
	free(broken.jpeg);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

/*
 * Decodes the whole picture by rows. Returns false if the result differs from decoding it with one
 * call.
 */
static bool rows_equal(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		       const uint8_t *whole)
{
	struct packimg_region region = {0, 0, sample->width, sample->height};
	struct packimg_pixels rows;
	struct packimg_error error;
	uint32_t ready;

	assert_int_equal(packimg_decode_begin(decoder, sample, &region, 0, 0, &rows, &error), 0);
	for (uint32_t y = 0; y < sample->height; y++) {
		if (packimg_decode_rows(decoder, y + 1, &ready, &error) < 0)
			fail_msg("row %u: %s", y, error.text);
		if (memcmp(rows.data + (rows.ring ? y % rows.ring : y) * rows.stride,
			   whole + (size_t)y * sample->width * 3, sample->width * 3) != 0)
			return false;
	}
	return true;
}

/*
 * Damage that libjpeg-turbo ignores but our decoder detects halfway: a run beyond the end of a
 * block. libjpeg-turbo decodes the remaining rows, and all rows must equal those of a whole decode.
 */
TEST(library_takes_over)
{
	struct jpeg_kind kind = {
		.components = 1, .h = 1, .v = 1, .quality = 60, .content = IMAGE_GRADIENT};
	struct picture picture = picture_make(80, 200, &kind, 4);
	struct packimg_region region = {0, 0, 80, 200};
	struct packimg_decoder *decoder, *by_rows;
	struct jpeg_baseline *own;
	unsigned found = 0;

	assert_int_equal(jpeg_baseline_new(&own), 0);
	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(packimg_decoder_new(&by_rows), 0);
	for (size_t at = picture.jpeg_size / 2; at < picture.jpeg_size - 2; at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			struct packimg_sample sample = {
				.data = picture.jpeg,
				.data_size = (uint32_t)picture.jpeg_size,
				.width = 80,
				.height = 200,
				.codec = PACKIMG_CODEC_JPEG,
				.channels = 1,
				.orientation = 1,
			};
			struct packimg_pixels pixels;
			const uint8_t *own_pixels;

			picture.jpeg[at] ^= (uint8_t)(1u << bit);
			if (picture_decode(own, &picture, false, 0, 0, 80, 200, &own_pixels) ==
				    -EBADMSG &&
			    packimg_decode(decoder, &sample, &region, 0, 0, &pixels, NULL) == 0) {
				uint8_t *whole = malloc(80 * 200 * 3);

				for (unsigned y = 0; y < 200; y++)
					memcpy(whole + y * 240, pixels.data + y * pixels.stride,
					       240);
				found++;
				assert_true(rows_equal(by_rows, &sample, whole));
				free(whole);
			}
			picture.jpeg[at] ^= (uint8_t)(1u << bit);
		}
	print_message("%u such files\n", found);
	assert_true(found > 0);
	packimg_decoder_free(by_rows);
	packimg_decoder_free(decoder);
	jpeg_baseline_free(own);
	picture_drop(&picture);
}
