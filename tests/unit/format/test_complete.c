/*
 * Irregular and incomplete JPEGs (SPEC.md, "Complete JPEGs"). Each kind of damage to each coding is
 * either tolerated, with the pixels of the intact file, or refused. All modes must agree: whole,
 * scaled, by rows, in part, indexed, transcoded.
 */
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <xxhash.h>

enum { WIDTH = 200, HEIGHT = 150, FILE_MAX = 1 << 18, PADDING = 64 };

static const struct {
	const char *name;
	struct jpeg_kind kind;
} codings[] = {
	{"baseline", {.components = 3, .h = 2, .v = 2}},
	{"grey", {.components = 1, .h = 1, .v = 1}},
	{"restarts", {.components = 3, .h = 2, .v = 1, .restart_rows = 2}},
	{"restarts within rows", {.components = 3, .h = 1, .v = 1, .restart_mcus = 3}},
	{"RGB", {.components = 3, .h = 1, .v = 1, .rgb = true}},
	{"YCCK", {.components = 4, .h = 2, .v = 2, .ycck = true}},
	{"separate", {.components = 3, .h = 2, .v = 2, .separate = true}},
	{"progressive", {.components = 3, .h = 2, .v = 2, .progressive = true}},
	{"arithmetic", {.components = 3, .h = 2, .v = 2, .arithmetic = true}},
	{"arithmetic, separate",
	 {.components = 3, .h = 1, .v = 1, .arithmetic = true, .separate = true}},
	{"arithmetic, restarts",
	 {.components = 3, .h = 1, .v = 1, .arithmetic = true, .restart_rows = 4}},
	{"arithmetic, progressive",
	 {.components = 3, .h = 1, .v = 1, .arithmetic = true, .progressive = true}},
};

struct file {
	uint8_t data[FILE_MAX];
	size_t size;
	const struct jpeg_kind *kind;
	/*
	 * offsets of the first DQT, of the first SOS and its coded data, and of the second SOS or
	 * the tables before it (0 if none)
	 */
	size_t table, scan, coded, second;
};

static struct packimg_decoder *decoders[2];
static struct packimg_transcoder *transcoder;
static struct packimg_error error;

/* Returns the offset of the first marker at or after `at`, not counting restart markers. */
static size_t next_marker(const struct file *file, size_t at)
{
	while (file->data[at] != 0xff || file->data[at + 1] == 0 ||
	       (file->data[at + 1] >= 0xd0 && file->data[at + 1] <= 0xd7))
		at++;
	return at;
}

static void find_places(struct file *file)
{
	file->table = file->scan = file->second = 0;
	for (size_t at = 2; file->data[at + 1] != 0xd9;) {
		uint8_t marker = file->data[at + 1];
		size_t length = 2 + (size_t)file->data[at + 2] * 256 + file->data[at + 3];

		if (marker == 0xdb && !file->table)
			file->table = at;
		if (marker != 0xda) {
			at += length;
			continue;
		}
		if (file->scan)
			return;
		file->scan = at;
		file->coded = at + length;
		at = next_marker(file, at + length);
		file->second = file->data[at + 1] == 0xd9 ? 0 : at;
	}
}

static void make(const struct jpeg_kind *kind, struct file *ret_file)
{
	uint8_t *data = image_jpeg(WIDTH, HEIGHT, kind, 7, &ret_file->size);

	assert_true(ret_file->size + PADDING < FILE_MAX / 2);
	memcpy(ret_file->data, data, ret_file->size);
	ret_file->kind = kind;
	find_places(ret_file);
	free(data);
}

static void insert(struct file *file, size_t at, const void *bytes, size_t count)
{
	memmove(file->data + at + count, file->data + at, file->size - at);
	memcpy(file->data + at, bytes, count);
	file->size += count;
}

static void cut(struct file *file, size_t size, bool end)
{
	file->size = size;
	if (end)
		insert(file, size, "\xff\xd9", 2);
}

/* ---- damage: a function returns false if it does not apply to the coding ---- */

static bool none(struct file *file)
{
	return true;
}

static bool junk_before_end(struct file *file)
{
	insert(file, file->size - 2, "belongs to nothing at all", 25);
	return true;
}

static bool junk_before_end_of_huffman(struct file *file)
{
	return junk_before_end(file) && !file->kind->arithmetic;
}

static bool junk_before_end_of_arithmetic(struct file *file)
{
	return junk_before_end(file) && file->kind->arithmetic;
}

static bool zeros_before_end(struct file *file)
{
	static const uint8_t zeros[100];

	insert(file, file->size - 2, zeros, sizeof(zeros));
	return true;
}

static bool restart_before_end(struct file *file)
{
	insert(file, file->size - 2, "\xff\xd3", 2);
	return true;
}

static bool junk_after_end(struct file *file)
{
	insert(file, file->size, "\xff\xd8\xff\xc0 more", 9);
	return true;
}

static bool junk_in_header(struct file *file)
{
	insert(file, file->scan, "junk\xff\0more\xff", 11);
	insert(file, file->table, "\0\0\0\0\0", 5);
	return true;
}

static bool odd_scan_header(struct file *file)
{
	file->data[file->coded - 2] = 0;
	return !file->kind->progressive;
}

static bool odd_revision(struct file *file)
{
	file->data[2 + 9] = 9;
	return memcmp(file->data + 6, "JFIF", 4) == 0;
}

/* Sets an unknown transform, which counts as YCbCr or YCCK. */
static bool odd_transform(struct file *file)
{
	uint8_t *segment = file->data + 2;

	if (file->kind->rgb || file->kind->components == 1)
		return false;
	if (segment[1] == 0xe0) {
		memmove(segment, segment + 18, file->size - 20);
		file->size -= 18;
		insert(file, 2,
		       "\xff\xee\0\x0e"
		       "Adobe\0d\0\0\0\0\1",
		       16);
	}
	assert_int_equal(segment[1], 0xee);
	segment[15] = 0x75;
	return true;
}

static bool no_end(struct file *file)
{
	cut(file, file->size - 2, false);
	return !file->kind->arithmetic;
}

/* The removed bytes may be zeros, which arithmetic coding may omit, or other data. */
static bool no_end_of_arithmetic(struct file *file)
{
	cut(file, file->size - 2, false);
	return file->kind->arithmetic;
}

/* An interrupted download in a file of the final size. */
static bool filled_up(struct file *file)
{
	size_t half = (file->coded + file->size) / 2;

	memset(file->data + half, 0, file->size - half);
	return true;
}

static bool cut_at_half(struct file *file)
{
	cut(file, file->size / 2, false);
	return true;
}

static bool cut_and_ended(struct file *file)
{
	cut(file, (file->scan + file->size) / 2, true);
	return true;
}

static bool cut_late_and_ended(struct file *file)
{
	cut(file, file->size - (file->kind->arithmetic ? 100 : 4), true);
	return true;
}

static bool first_scan_alone(struct file *file)
{
	cut(file, file->second, true);
	return file->second > 0;
}

/* Removes the last scan. The file does not show that it existed. */
static bool last_scan_lost(struct file *file)
{
	size_t last = 0;

	for (size_t at = file->scan; file->data[at + 1] != 0xd9;
	     at = next_marker(file, at + 2 + (size_t)file->data[at + 2] * 256 + file->data[at + 3]))
		if (file->data[at + 1] == 0xda)
			last = at;
	cut(file, last, true);
	return file->second > 0;
}

static bool scan_header_bogus(struct file *file)
{
	size_t at = file->second;

	while (file->second && file->data[at + 1] != 0xda)
		at = next_marker(file, at + 2);
	file->data[at + 1] = 0xe5;
	return file->second > 0;
}

static bool scan_twice(struct file *file)
{
	static struct file copy;

	if (!file->kind->separate)
		return false;
	copy = *file;
	insert(file, file->second, copy.data + copy.scan, copy.second - copy.scan);
	return true;
}

static bool junk_between_scans(struct file *file)
{
	insert(file, file->second, "belongs to nothing at all, and more of it", 41);
	return file->second > 0;
}

static bool bogus_marker(struct file *file)
{
	size_t end = next_marker(file, file->coded);

	memcpy(file->data + (file->coded + end) / 2, "\xff\x47", 2);
	return true;
}

static bool restart_out_of_turn(struct file *file)
{
	size_t at = file->coded;

	if (!file->kind->restart_rows && !file->kind->restart_mcus)
		return false;
	while (file->data[at] != 0xff || file->data[at + 1] != 0xd1)
		at++;
	file->data[at + 1] = 0xd5;
	return true;
}

static const struct {
	const char *name;
	bool (*apply)(struct file *file);
	bool tolerated;
} damages[] = {
	{"none", none, true},
	{"junk before the end", junk_before_end_of_huffman, true},
	{"junk before the end, arithmetic", junk_before_end_of_arithmetic, false},
	{"zeros before the end", zeros_before_end, true},
	{"a restart marker before the end", restart_before_end, true},
	{"junk behind the end", junk_after_end, true},
	{"junk in the header", junk_in_header, true},
	{"scan parameters", odd_scan_header, true},
	{"JFIF revision", odd_revision, true},
	{"Adobe transform", odd_transform, true},
	{"no end marker", no_end, true},
	{"no end marker, arithmetic", no_end_of_arithmetic, false},
	{"filled up", filled_up, false},
	{"cut", cut_at_half, false},
	{"cut and ended", cut_and_ended, false},
	{"cut late and ended", cut_late_and_ended, false},
	{"first scan alone", first_scan_alone, false},
	{"last scan lost", last_scan_lost, false},
	{"bogus scan header", scan_header_bogus, false},
	{"scan twice", scan_twice, false},
	{"junk between scans", junk_between_scans, false},
	{"bogus marker", bogus_marker, false},
	{"restart marker out of turn", restart_out_of_turn, false},
};

/* ---- modes ---- */

struct mode {
	const char *name;
	struct packimg_region region;
	uint32_t hint;
	bool by_rows, indexed;
};

static const struct mode modes[] = {
	{"at once", {0, 0, WIDTH, HEIGHT}, 0, false, false},
	{"by rows", {0, 0, WIDTH, HEIGHT}, 0, true, false},
	{"at 1/8", {0, 0, WIDTH, HEIGHT}, 1, false, false},
	{"at 1/4 by rows", {0, 0, WIDTH, HEIGHT}, 20, true, false},
	{"in part", {101, 50, 90, HEIGHT - 50}, 0, false, false},
	{"indexed", {0, 0, WIDTH, HEIGHT}, 0, false, true},
	{"indexed in part by rows", {101, 50, 90, HEIGHT - 50}, 0, true, true},
};

static struct packimg_sample sample_of(const struct file *file)
{
	return (struct packimg_sample){
		.data = file->data,
		.data_size = (uint32_t)file->size,
		.width = WIDTH,
		.height = HEIGHT,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = (uint8_t)file->kind->components,
		.orientation = 1,
	};
}

enum { NO_INDEX = 1 };

/*
 * Returns a hash of the pixels through ret_hash. Returns NO_INDEX in a mode with an index if the
 * file cannot have one.
 */
static int decode(struct packimg_decoder *decoder, const struct file *file, const struct mode *mode,
		  uint64_t *ret_hash)
{
	struct packimg_sample sample = sample_of(file);
	struct packimg_jpeg_info info;
	struct packimg_pixels pixels;
	XXH3_state_t *hash = XXH3_createState();
	uint32_t ready = 0;
	int r = packimg_jpeg_probe(file->data, file->size, &info, &error);

	if (r == 0 && mode->indexed) {
		size_t size;

		r = packimg_index_jpeg(decoder, file->data, file->size, &info, &sample.side, &size);
		sample.side_size = (uint32_t)size;
		if (r == 0)
			sample.side_xxh3 = XXH3_64bits(sample.side, size);
		r = r == -ENOTSUP || r == -EBADMSG ? NO_INDEX : r;
	}
	if (r == 0)
		r = (mode->by_rows ? packimg_decode_begin : packimg_decode)(
			decoder, &sample, &mode->region, mode->hint, mode->hint, &pixels, &error);
	XXH3_64bits_reset(hash);
	for (uint32_t y = 0; r == 0 && y < pixels.height; y++) {
		if (mode->by_rows && y >= ready)
			r = packimg_decode_rows(decoder, y + 1, &ready, &error);
		if (r == 0)
			XXH3_64bits_update(hash,
					   pixels.data + (pixels.ring ? y % pixels.ring : y) *
								 pixels.stride,
					   3 * (size_t)pixels.width);
	}
	*ret_hash = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return r;
}

static void check_mode(const struct file *good, const struct file *file, const struct mode *mode,
		       bool tolerated, const char *coding, const char *damage)
{
	uint64_t expected, hash;
	int r_good = decode(decoders[0], good, mode, &expected);
	int r = decode(decoders[1], file, mode, &hash);

	if (r_good < 0)
		fail_msg("%s %s: %s", coding, mode->name, error.text);
	if (r_good == NO_INDEX || r == NO_INDEX)
		return;
	if (tolerated ? r != 0 : r != -EBADMSG)
		fail_msg("%s, %s, %s: %d %s", coding, damage, mode->name, r, error.text);
	if (tolerated && hash != expected)
		fail_msg("%s, %s, %s: other pixels", coding, damage, mode->name);
}

static void check_transcoded(const struct file *good, const struct file *file, bool tolerated,
			     const char *coding, const char *damage)
{
	static struct file made;
	const uint8_t *data;
	int r = packimg_transcode_jpeg(transcoder, file->data, file->size, &data, &made.size,
				       &error);

	if (tolerated ? r != 0 : r != -EBADMSG)
		fail_msg("%s, %s, transcoded: %d %s", coding, damage, r, error.text);
	if (r < 0)
		return;
	memcpy(made.data, data, made.size);
	made.kind = good->kind;
	check_mode(good, &made, &modes[0], true, coding, damage);
}

TEST(damages)
{
	static struct file good, file;

	for (size_t c = 0; c < sizeof(codings) / sizeof(*codings); c++) {
		make(&codings[c].kind, &good);
		for (size_t d = 0; d < sizeof(damages) / sizeof(*damages); d++) {
			file = good;
			if (!damages[d].apply(&file))
				continue;
			for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++)
				check_mode(&good, &file, &modes[m], damages[d].tolerated,
					   codings[c].name, damages[d].name);
			check_transcoded(&good, &file, damages[d].tolerated, codings[c].name,
					 damages[d].name);
		}
	}
}

/*
 * Arithmetic coding omits zeros at the end of the data, which are nearly all data of a picture of
 * one colour.
 */
TEST(short_arithmetic_scan)
{
	static const struct jpeg_kind kinds[] = {
		{.content = IMAGE_FLAT, .components = 3, .h = 2, .v = 2, .arithmetic = true},
		{.content = IMAGE_FLAT, .components = 1, .h = 1, .v = 1, .arithmetic = true},
		{.content = IMAGE_FLAT,
		 .components = 3,
		 .h = 1,
		 .v = 1,
		 .arithmetic = true,
		 .progressive = true},
		{.content = IMAGE_FLAT,
		 .components = 1,
		 .h = 1,
		 .v = 1,
		 .arithmetic = true,
		 .progressive = true},
		{.content = IMAGE_FLAT,
		 .components = 3,
		 .h = 2,
		 .v = 2,
		 .arithmetic = true,
		 .restart_rows = 1},
		{.content = IMAGE_GRADIENT, .components = 3, .h = 2, .v = 2, .arithmetic = true},
		{.content = IMAGE_GRADIENT,
		 .components = 3,
		 .h = 2,
		 .v = 2,
		 .arithmetic = true,
		 .progressive = true},
	};
	static const uint16_t sides[] = {1, 8, 17, 64, 300, 1000};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (size_t s = 0; s < sizeof(sides) / sizeof(*sides); s++)
			for (uint64_t seed = 0; seed < (sides[s] < 1000 ? 10 : 2); seed++) {
				size_t size;
				uint8_t *data =
					image_jpeg(sides[s], sides[s], &kinds[k], seed, &size);
				struct packimg_sample sample = {
					.data = data,
					.data_size = (uint32_t)size,
					.width = sides[s],
					.height = sides[s],
					.codec = PACKIMG_CODEC_JPEG,
					.channels = (uint8_t)kinds[k].components,
					.orientation = 1,
				};
				struct packimg_region region = {0, 0, sides[s], sides[s]};
				struct packimg_pixels pixels;

				if (packimg_decode(decoders[0], &sample, &region, 1, 1, &pixels,
						   &error) != 0)
					fail_msg("kind %zu of %u pixels: %s", k, sides[s],
						 error.text);
				free(data);
			}
}

/*
 * A refinement scan of DC coefficients can consume all zeros after it. The junk after the next
 * marker then does not lie between the scan's code and the zeros, and can be longer than everything
 * before it: searching backwards from that marker would leave the file.
 */
TEST(junk_behind_refinement)
{
	static const struct jpeg_kind kind = {
		.components = 1, .h = 1, .v = 1, .arithmetic = true, .progressive = true};
	static const uint8_t comment[] = {0xff, 0xfe, 0, 2};
	enum { JUNK = 1 << 26 };
	size_t size, made = 0, refinements = 0;
	uint8_t *good = image_jpeg(WIDTH, HEIGHT, &kind, 7, &size);
	uint8_t *data = calloc(1, size + JUNK + PADDING);

	assert_non_null(data);
	for (size_t at = 2; good[at + 1] != 0xd9;) {
		size_t end = at + 2 + (size_t)good[at + 2] * 256 + good[at + 3];

		if (good[at + 1] == 0xda && good[end - 3] == 0 && good[end - 1] >> 4 != 0) {
			refinements++;
			memcpy(data, good, made = end);
			break;
		}
		at = end;
		while (good[at] != 0xff || good[at + 1] == 0)
			at++;
	}
	assert_int_equal(refinements, 1);
	memcpy(data + made, comment, sizeof(comment));
	made += sizeof(comment) + JUNK;
	/* no marker ends the scan's code */
	memcpy(data + made, (uint8_t[]){0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0x01}, 10);
	made += 10;
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)made,
		.width = WIDTH,
		.height = HEIGHT,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = 1,
		.orientation = 1,
	};
	struct packimg_region region = {0, 0, WIDTH, HEIGHT};
	struct packimg_pixels pixels;
	assert_int_equal(
		packimg_decode(decoders[0], &sample, &region, WIDTH, HEIGHT, &pixels, &error),
		-EBADMSG);
	assert_non_null(strstr(error.text, "extraneous bytes before marker 0xda"));
	free(data);
	free(good);
}

static int setup(void **state)
{
	return packimg_decoder_new(&decoders[0]) ?: packimg_decoder_new(&decoders[1]) ?:
	       packimg_transcoder_new(&transcoder);
}

static int teardown(void **state)
{
	packimg_decoder_free(decoders[0]);
	packimg_decoder_free(decoders[1]);
	packimg_transcoder_free(transcoder);
	return 0;
}

TEST_MAIN(setup, teardown)
