/*
 * Probing JPEG headers: sizes, codings, EXIF orientation in both byte orders, and headers with
 * wrong contents.
 */
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

static struct packimg_error error;

static struct packimg_jpeg_info probe(const struct jpeg_kind *kind, uint32_t width, uint32_t height)
{
	struct packimg_jpeg_info info;
	size_t size;
	uint8_t *data = image_jpeg(width, height, kind, 1, &size);

	if (packimg_jpeg_probe(data, size, &info, &error) < 0)
		fail_msg("%s", error.text);
	free(data);
	return info;
}

TEST(kinds)
{
	static const struct jpeg_kind kinds[] = {
		{.components = 3, .h = 2, .v = 2},
		{.components = 1, .h = 1, .v = 1},
		{.components = 4, .h = 1, .v = 1},
		{.components = 3, .h = 2, .v = 2, .progressive = true},
		{.components = 3, .h = 2, .v = 2, .arithmetic = true},
		{.components = 3, .h = 2, .v = 2, .arithmetic = true, .progressive = true},
		{.components = 3, .h = 2, .v = 2, .separate = true},
		{.components = 3, .h = 2, .v = 2, .restart_rows = 1},
		{.components = 3, .h = 2, .v = 2, .restart_mcus = 7},
		{.components = 1, .h = 2, .v = 2, .restart_mcus = 38},
		{.components = 1, .h = 2, .v = 2, .restart_mcus = 19},
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct packimg_jpeg_info info = probe(&kinds[k], 300, 7);
		assert_int_equal(info.width, 300);
		assert_int_equal(info.height, 7);
		assert_int_equal(info.components, kinds[k].components);
		assert_int_equal(info.precision, 8);
		assert_int_equal(info.progressive, kinds[k].progressive);
		assert_int_equal(info.arithmetic, kinds[k].arithmetic);
		assert_int_equal(info.orientation, 1);
		/* a progressive file begins with one scan of all DC coefficients */
		assert_int_equal(info.several_scans, kinds[k].separate);
		assert_int_equal(info.restart_interval,
				 kinds[k].restart_rows ? 19 : kinds[k].restart_mcus);
		/* 300 pixels are 19 MCUs of 16 pixels, or 38 blocks of a single component */
		assert_int_equal(info.restart_within_rows, kinds[k].restart_mcus % 38 != 0);
	}
}

TEST(orientations)
{
	for (int orientation = 1; orientation <= 8; orientation++)
		for (int big = 0; big < 2; big++) {
			struct jpeg_kind kind = {.components = 3,
						 .h = 2,
						 .v = 2,
						 .orientation = orientation,
						 .exif_big = big};
			assert_int_equal(probe(&kind, 40, 30).orientation, orientation);
		}
}

/*
 * Invalid values and the types BYTE and ASCII count as no orientation. Other integer types and
 * counts are accepted like one SHORT.
 */
TEST(odd_exif)
{
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2, .orientation = 6};
	struct packimg_jpeg_info info;
	size_t size;
	uint8_t *data = image_jpeg(40, 30, &kind, 1, &size);
	uint8_t *exif = NULL;

	for (size_t i = 0; i + 6 < size && !exif; i++)
		if (memcmp(data + i, "Exif\0", 6) == 0)
			exif = data + i;
	assert_non_null(exif);
	/*
	 * Changes of one byte of the EXIF segment: offset, new value. Offsets are 10 for the IFD's
	 * offset, 14 for the entry count, 16 for the tag, 18 for the type, 20 for the count, 24 for
	 * the value.
	 */
	static const struct {
		uint8_t place, value;
	} changes[] = {{24, 0}, {24, 9},  {25, 1}, {18, 1},   {18, 2},
		       {18, 7}, {18, 14}, {20, 0}, {10, 200}, {13, 0xff},
		       {14, 0}, {6, 'X'}, {8, 43}, {0, 'e'},  {18, 12}};
	static const struct {
		uint8_t place, value;
	} harmless[] = {{18, 4}, {18, 6}, {18, 8}, {18, 9}, {20, 2}};
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		uint8_t old = exif[changes[i].place];
		exif[changes[i].place] = changes[i].value;
		assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
		if (info.orientation != 1)
			fail_msg("byte %u set to %u: orientation %u", changes[i].place,
				 changes[i].value, info.orientation);
		exif[changes[i].place] = old;
	}
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
		uint8_t old = exif[harmless[i].place];
		exif[harmless[i].place] = harmless[i].value;
		assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
		assert_int_equal(info.orientation, 6);
		exif[harmless[i].place] = old;
	}
	/* with too large an entry count, the existing entries are used */
	exif[14] = 200;
	assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
	assert_int_equal(info.orientation, 6);
	free(data);
}

static void refuse(const char *bytes, size_t size, int expected)
{
	/* exact size, so that a sanitizer detects overreads */
	uint8_t *copy = malloc(size ? size : 1);
	struct packimg_jpeg_info info = {.width = 77};

	memcpy(copy, bytes, size);
	error.text[0] = '\0';
	int r = packimg_jpeg_probe(copy, size, &info, &error);
	if (r != expected)
		fail_msg("%d, expected %d: %s", r, expected, error.text);
	assert_int_equal(info.width, 77);
	assert_true(error.text[0] != '\0');
	assert_int_equal(packimg_jpeg_probe(copy, size, &info, NULL), expected);
	free(copy);
}

#define REFUSE(bytes, expected) refuse(bytes, sizeof(bytes) - 1, expected)
#define SOF(width_height)       "\xff\xc0\x00\x0b\x08" width_height "\x01\x01\x11\x00"

TEST(refusals)
{
	REFUSE("", -EBADMSG);
	REFUSE("\xff\xd8", -EBADMSG);
	REFUSE("\x89PNG\r\n\x1a\n", -EBADMSG);
	REFUSE("\xff\xd8\xff\xd9", -EBADMSG);
	REFUSE("\xff\xd8\xff\xd8\xff\xd9", -EBADMSG);
	REFUSE("\xff\xd8\xff\xe0\x00", -EBADMSG);
	REFUSE("\xff\xd8\xff\xe0\x00\x01zzzz", -EBADMSG);
	REFUSE("\xff\xd8\xff\xe0\xff\xff", -EBADMSG);
	REFUSE("\xff\xd8zzzzzz", -EBADMSG);
	REFUSE("\xff\xd8\xff\xff\xff\xff\xff", -EBADMSG);
	REFUSE("\xff\xd8\xff\xda\x00\x02", -EBADMSG);
	REFUSE("\xff\xd8\xff\xc0\x00\x02\xff\xda", -EBADMSG);
	REFUSE("\xff\xd8" SOF("\x00\x10\x00\x00") "\xff\xda", -EBADMSG);
	REFUSE("\xff\xd8" SOF("\x00\x00\x00\x10") "\xff\xda", -ENOTSUP);
	REFUSE("\xff\xd8" SOF("\x00\x10\x00\x10") SOF("\x00\x10\x00\x10") "\xff\xda", -EBADMSG);
	REFUSE("\xff\xd8" SOF("\x00\x10\x00\x10"), -EBADMSG);
	REFUSE("\xff\xd8\xff\xc3\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00\xff\xda", -ENOTSUP);
	/* the component count exceeds the segment */
	REFUSE("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x10\x00\x10\x03\x01\x11\x00\xff\xda", -EBADMSG);
}

TEST(fill_bytes)
{
	static const char bytes[] = "\xff\xd8\xff\x01\xff\xff\xff"
				    "\xe0\x00\x04zz" SOF("\x00\x10\x00\x20") "\xff\xff\xda";
	struct packimg_jpeg_info info;

	assert_int_equal(
		packimg_jpeg_probe((const uint8_t *)bytes, sizeof(bytes) - 1, &info, &error), 0);
	assert_true(info.width == 32 && info.height == 16 && info.components == 1);
}
