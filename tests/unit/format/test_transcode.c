/*
 * Lossless transcoding keeps coefficients, markers and pixels and gives one baseline scan. Damaged
 * files are refused. Also checks indexes against their scans.
 */
#include "format/codec/jpeg/jpeg_index.h"
#include "format/codec/side_data.h"
#include "format/layout.h"
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <jpeglib.h>

static struct packimg_error error;
static struct packimg_transcoder *transcoder;
static struct packimg_decoder *decoder;

static const struct jpeg_kind kinds[] = {
	{.components = 3, .h = 2, .v = 2, .progressive = true},
	{.components = 3, .h = 1, .v = 1, .progressive = true, .quality = 97},
	{.components = 3, .h = 2, .v = 1, .progressive = true, .restart_rows = 2},
	{.components = 3, .h = 1, .v = 2, .arithmetic = true},
	{.components = 3, .h = 2, .v = 2, .arithmetic = true, .progressive = true},
	{.components = 3, .h = 2, .v = 2, .separate = true},
	{.components = 3, .h = 2, .v = 2, .restart_mcus = 3},
	{.components = 1, .h = 1, .v = 1, .progressive = true},
	{.components = 1, .h = 1, .v = 1, .restart_rows = 1, .quality = 20},
	{.components = 4, .h = 1, .v = 1, .progressive = true},
	{.components = 4, .h = 2, .v = 2, .ycck = true, .progressive = true},
	{.components = 3, .h = 1, .v = 1, .rgb = true, .progressive = true},
	{.components = 3, .h = 2, .v = 2, .progressive = true, .orientation = 6},
};

static void open_jpeg(struct jpeg_decompress_struct *cinfo, struct jpeg_error_mgr *errors,
		      const uint8_t *data, size_t size)
{
	cinfo->err = jpeg_std_error(errors);
	jpeg_create_decompress(cinfo);
	jpeg_mem_src(cinfo, data, size);
	jpeg_read_header(cinfo, TRUE);
}

/*
 * Compares the coefficients of all blocks of the image, except blocks that only pad the last MCUs.
 */
static void same_coefficients(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
	struct jpeg_decompress_struct one, two;
	struct jpeg_error_mgr one_errors, two_errors;
	size_t blocks = 0;

	open_jpeg(&one, &one_errors, a, a_size);
	open_jpeg(&two, &two_errors, b, b_size);
	jvirt_barray_ptr *first = jpeg_read_coefficients(&one);
	jvirt_barray_ptr *second = jpeg_read_coefficients(&two);
	assert_int_equal(one.num_components, two.num_components);
	assert_int_equal(one.image_width, two.image_width);
	assert_int_equal(one.image_height, two.image_height);
	assert_int_equal(one.jpeg_color_space, two.jpeg_color_space);
	assert_int_equal(one.saw_Adobe_marker, two.saw_Adobe_marker);
	for (int c = 0; c < one.num_components; c++) {
		const jpeg_component_info *info = &one.comp_info[c], *other = &two.comp_info[c];
		assert_int_equal(info->h_samp_factor, other->h_samp_factor);
		assert_int_equal(info->v_samp_factor, other->v_samp_factor);
		assert_memory_equal(info->quant_table->quantval, other->quant_table->quantval,
				    sizeof(info->quant_table->quantval));
		for (JDIMENSION y = 0; y < info->height_in_blocks; y++) {
			JBLOCKARRAY p = one.mem->access_virt_barray((j_common_ptr)&one, first[c], y,
								    1, FALSE);
			JBLOCKARRAY q = two.mem->access_virt_barray((j_common_ptr)&two, second[c],
								    y, 1, FALSE);
			assert_memory_equal(p[0], q[0], info->width_in_blocks * sizeof(JBLOCK));
			blocks += info->width_in_blocks;
		}
	}
	assert_true(blocks > 0);
	jpeg_destroy_decompress(&one);
	jpeg_destroy_decompress(&two);
}

/* Copies the APPn and COM segments before the first scan, with their markers. */
static size_t collect_markers(const uint8_t *data, size_t size, uint8_t *ret_bytes)
{
	size_t at = 2, used = 0;

	while (at + 4 <= size && data[at + 1] != 0xda) {
		size_t length = 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);
		if ((data[at + 1] & 0xf0) == 0xe0 || data[at + 1] == 0xfe) {
			memcpy(ret_bytes + used, data + at, length);
			used += length;
		}
		at += length;
	}
	return used;
}

/*
 * Inserts a profile in two segments of maximum size, a comment, and an unusual APP segment before
 * the frame header.
 */
static uint8_t *add_markers(uint8_t *data, size_t *size)
{
	enum { BIG = 65533 };
	size_t added = 2 * (4 + BIG) + (4 + 11) + (4 + 3), at = 2;
	uint8_t *copy = malloc(*size + added), *p;

	while (data[at + 1] >= 0xe0 && data[at + 1] <= 0xef)
		at += 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);
	memcpy(copy, data, at);
	p = copy + at;
	for (uint8_t i = 1; i <= 2; i++) {
		memcpy(p, "\xff\xe2\xff\xff", 4);
		memset(p + 4, 40 + i, BIG);
		memcpy(p + 4, "ICC_PROFILE", 12);
		p[16] = i;
		p[17] = 2;
		p += 4 + BIG;
	}
	memcpy(p,
	       "\xff\xfe\x00\x0d"
	       "not so fast",
	       15);
	memcpy(p + 15,
	       "\xff\xed\x00\x05"
	       "abc",
	       7);
	memcpy(p + 22, data + at, *size - at);
	*size += added;
	free(data);
	return copy;
}

static void same_pixels(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
	uint32_t width, height, other_width, other_height;
	int components, other_components;
	uint8_t *one = image_decode_plain(a, a_size, 1, &width, &height, &components);
	uint8_t *two =
		image_decode_plain(b, b_size, 1, &other_width, &other_height, &other_components);

	assert_true(width == other_width && height == other_height &&
		    components == other_components);
	assert_memory_equal(one, two, (size_t)width * height * (size_t)components);
	free(one);
	free(two);
}

TEST(lossless)
{
	static const uint32_t sizes[][2] = {{8, 8}, {17, 33}, {131, 75}, {1, 1}, {64, 49}};
	static uint8_t before[300000], after[300000];

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
			struct packimg_jpeg_info info;
			const uint8_t *made, *side;
			size_t size, made_size, side_size;
			uint8_t *data =
				image_jpeg(sizes[s][0], sizes[s][1], &kinds[k], k + s, &size);

			data = add_markers(data, &size);
			if (packimg_transcode_jpeg(transcoder, data, size, &made, &made_size,
						   &error) < 0)
				fail_msg("kind %zu: %s", k, error.text);
			same_coefficients(data, size, made, made_size);
			same_pixels(data, size, made, made_size);
			size_t used = collect_markers(data, size, before);
			assert_int_equal(used, collect_markers(made, made_size, after));
			assert_memory_equal(before, after, used);
			assert_int_equal(packimg_jpeg_probe(made, made_size, &info, &error), 0);
			assert_false(info.progressive || info.arithmetic || info.several_scans ||
				     info.restart_interval);
			assert_int_equal(info.orientation,
					 kinds[k].orientation ? kinds[k].orientation : 1);
			if (info.components != 4 && !kinds[k].rgb && sizes[s][0] > 8)
				assert_int_equal(packimg_index_jpeg(decoder, made, made_size, &info,
								    &side, &side_size),
						 0);
			free(data);
		}
}

TEST(repeats)
{
	const uint8_t *made;
	size_t size, made_size;
	uint8_t *data = image_jpeg(90, 60, &kinds[0], 3, &size);

	assert_int_equal(packimg_transcode_jpeg(transcoder, data, size, &made, &made_size, &error),
			 0);
	uint8_t *first = malloc(made_size);
	size_t first_size = made_size;
	memcpy(first, made, made_size);
	/* a failure in between must not affect later files */
	assert_int_equal(
		packimg_transcode_jpeg(transcoder, data, size / 2, &made, &made_size, &error),
		-EBADMSG);
	assert_int_equal(packimg_transcode_jpeg(transcoder, data, size, &made, &made_size, &error),
			 0);
	assert_int_equal(made_size, first_size);
	assert_memory_equal(made, first, first_size);
	/* transcoding the result again gives the same bytes */
	assert_int_equal(
		packimg_transcode_jpeg(transcoder, first, first_size, &made, &made_size, &error),
		0);
	assert_int_equal(made_size, first_size);
	assert_memory_equal(made, first, first_size);
	free(first);
	free(data);
}

/* A file without tables must not be decoded with the tables of the previous file. */
TEST(no_tables)
{
	const uint8_t *made;
	size_t size, made_size, at = 2, used = 2;
	uint8_t *data = image_jpeg(90, 60, &kinds[6], 3, &size), *bare = malloc(size);

	memcpy(bare, data, 2);
	while (data[at + 1] != 0xda) {
		size_t length = 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);
		if (data[at + 1] != 0xc4 && data[at + 1] != 0xdb) {
			memcpy(bare + used, data + at, length);
			used += length;
		}
		at += length;
	}
	memcpy(bare + used, data + at, size - at);
	assert_int_equal(packimg_transcode_jpeg(transcoder, data, size, &made, &made_size, &error),
			 0);
	assert_int_equal(packimg_transcode_jpeg(transcoder, bare, used + size - at, &made,
						&made_size, &error),
			 -EBADMSG);
	free(bare);
	free(data);
}

TEST(damage)
{
	uint64_t random = 5;
	const uint8_t *made;
	size_t made_size;
	int refused = 0;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		size_t size;
		uint8_t *data = image_jpeg(70, 50, &kinds[k], k, &size);

		for (int i = 0; i < 200; i++) {
			size_t at = image_random(&random) % size;
			size_t cut = i % 4 ? size : image_random(&random) % size;
			/* exact size, so that a sanitizer detects overreads */
			uint8_t *copy = malloc(cut ? cut : 1);
			memcpy(copy, data, cut);
			if (at < cut)
				copy[at] ^= (uint8_t)(1 + image_random(&random) % 255);
			error.text[0] = '\0';
			int r = packimg_transcode_jpeg(transcoder, copy, cut, &made, &made_size,
						       &error);
			assert_true(r == 0 || r == -EBADMSG || r == -ENOTSUP);
			assert_true(r == 0 || error.text[0] != '\0');
			refused += r != 0;
			free(copy);
		}
		free(data);
	}
	assert_true(refused > 500);
}

/*
 * The blocks of all components exceed the limit of an MCU: this is valid in separate scans but
 * impossible in an interleaved one.
 */
TEST(too_large_for_one_scan)
{
	static const struct jpeg_kind kind = {.components = 3, .h = 4, .v = 4, .separate = true};
	const uint8_t *made;
	size_t size, made_size;
	uint8_t *data = image_jpeg(70, 50, &kind, 1, &size);

	assert_int_equal(packimg_transcode_jpeg(transcoder, data, size, &made, &made_size, &error),
			 -ENOTSUP);
	assert_true(error.text[0] != '\0');
	free(data);
}

static void expect_fault(const struct packimg_sample *sample, const char *words)
{
	error.text[0] = '\0';
	assert_int_equal(packimg_index_check(decoder, sample, &error), -EBADMSG);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

/*
 * Adds `more` to the bit position of an index entry and one to its predictor number `predictor`
 * (from 1; 0 for none). Expects an error text that contains `words`.
 */
static void check_forged(const struct packimg_sample *sample, uint32_t row, uint32_t entry,
			 uint32_t more, uint32_t predictor, const char *words)
{
	static struct jpeg_index_entry entries[64 * JPEG_INDEX_ENTRIES_MAX];
	uint8_t content[512], side[512];
	struct packimg_sample forged = *sample;
	struct jpeg_index index;
	struct jpeg_frame frame;
	const uint8_t *good;
	size_t size;

	assert_int_equal(jpeg_frame_parse(sample->data, sample->data_size, &frame), 0);
	assert_int_equal(
		side_data_find(sample->side, sample->side_size, PIMG_SIDE_JPEG_INDEX, &good, &size),
		0);
	assert_int_equal(jpeg_index_open(good, size, &frame, &index), 0);
	assert_true(entry < index.plan.entry_count);
	for (uint32_t i = 0; i < index.plan.row_count * index.plan.entry_count; i++)
		entries[i] = jpeg_index_get(&index, i / index.plan.entry_count,
					    i % index.plan.entry_count);
	struct jpeg_index_entry *changed = &entries[row * index.plan.entry_count + entry];
	changed->position += more;
	if (predictor > 0)
		changed->dc[predictor - 1]++;
	size = jpeg_index_pack(&index.plan, entries, content);
	side_data_item_write(side, PIMG_SIDE_JPEG_INDEX, content, (uint32_t)size);
	forged.side = side;
	forged.side_size = (uint32_t)side_data_item_size(size);
	expect_fault(&forged, words);
}

TEST(index_check)
{
	static const struct jpeg_kind kind = {.components = 3, .h = 1, .v = 1, .quality = 99};
	struct packimg_jpeg_info info;
	const uint8_t *made;
	size_t size, side_size;
	uint8_t *data = image_jpeg(160, 90, &kind, 1, &size), side[512];

	assert_int_equal(packimg_jpeg_probe(data, size, &info, &error), 0);
	assert_int_equal(packimg_index_jpeg(decoder, data, size, &info, &made, &side_size), 0);
	assert_true(side_size <= sizeof(side));
	memcpy(side, made, side_size);
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)size,
		.side = side,
		.side_size = (uint32_t)side_size,
		.width = 160,
		.height = 90,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = 3,
		.orientation = 1,
	};
	assert_true(packimg_sample_indexed(&sample));
	assert_int_equal(packimg_index_check(decoder, &sample, &error), 0);
	/*
	 * after the item header of 8 bytes come version, components, widths, entries per row, and
	 * rows
	 */
	for (size_t at = 9; at < 20; at++) {
		side[at] ^= 0x41;
		expect_fault(&sample, "its head or its size");
		side[at] ^= 0x41;
	}
	check_forged(&sample, 0, 0, 1, 0, "row 0, column 0: position is 1, the scan's 0");
	check_forged(&sample, 2, 1, 9, 0, "row 2, column 3: position is");
	check_forged(&sample, 0, 0, 0, 1, "row 0, column 0: predictor of component 0 is 1");
	check_forged(&sample, 5, 0, 0, 3, "row 5, column 0: predictor of component 2 is");
	check_forged(&sample, 5, 1, 0, 2, "row 5, column 3: predictor of component 1 is");
	/* the contents of other versions are not checked */
	side[8] = 1;
	assert_int_equal(packimg_index_check(decoder, &sample, &error), -ENODATA);
	side[8] = JPEG_INDEX_VERSION;
	/* a truncated item, and an empty one */
	side[4] = 8;
	sample.side_size = 16;
	expect_fault(&sample, "size of 8 bytes");
	side[4] = 0;
	sample.side_size = 8;
	expect_fault(&sample, "size of 0 bytes");
	sample.side_size = 0;
	assert_false(packimg_sample_indexed(&sample));
	assert_int_equal(packimg_index_check(decoder, &sample, &error), -ENODATA);
	memcpy(side, made, 16);
	free(data);
	data = image_jpeg(100, 90, &kinds[0], 1, &size);
	sample.data = data;
	sample.data_size = (uint32_t)size;
	side[4] = 8;
	sample.side_size = 16;
	expect_fault(&sample, "can have none");
	free(data);
}

static int setup(void **state)
{
	return packimg_transcoder_new(&transcoder) ?: packimg_decoder_new(&decoder);
}

static int teardown(void **state)
{
	packimg_transcoder_free(transcoder);
	packimg_transcoder_free(NULL);
	packimg_decoder_free(decoder);
	return 0;
}

TEST_MAIN(setup, teardown)
