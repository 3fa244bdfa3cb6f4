/*
 * The golden files: good ones, of every version, have their original contents; bad ones fail as
 * their name says; the writer still makes the same bytes; and the listing in SPEC.md matches the
 * file. The environment names the folder, the program and SPEC.md.
 */
#include "format/base/schema.h"
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

static struct packimg_error error;

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	if (value)
		return value;
	fprintf(stderr, "%s is not set; run this through meson test\n", name);
	abort();
}

static const char *golden_path(const char *folder, const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s/%s", environment("PIMG_GOLDEN"), folder, name);
	return path;
}

static struct packimg *open_good(const char *name)
{
	struct packimg *dataset;

	if (packimg_open(golden_path("good", name), &dataset, &error) < 0)
		fail_msg("%s", error.text);
	if (packimg_check(dataset, &error) < 0)
		fail_msg("%s", error.text);
	return dataset;
}

static void check_values(const struct packimg *dataset, uint32_t i, uint64_t longest)
{
	static const char *const names[] = {"id", "score", "blob", "note"};
	char text[32];

	snprintf(text, sizeof(text), "{\"n\":%u}", i);
	assert_int_equal(packimg_field_count(dataset), 4);
	for (uint32_t f = 0; f < 4; f++) {
		struct packimg_field field;
		struct packimg_value value;
		assert_int_equal(packimg_field(dataset, f, &field), 0);
		assert_string_equal(field.name, names[f]);
		assert_int_equal(field.type, PACKIMG_FIELD_INT64 + f);
		if (f >= 2)
			assert_int_equal(field.longest, longest);
		assert_int_equal(packimg_value(dataset, i, f, &value), 0);
		assert_int_equal(value.present, i % 3 != f % 3);
		if (!value.present)
			continue;
		if (f == 0)
			assert_int_equal(value.int64, 1000 + i);
		if (f == 1)
			assert_true(value.float64 == i / 4.0);
		if (f >= 2) {
			assert_int_equal(value.size, strlen(text));
			assert_memory_equal(value.bytes, text, value.size);
		}
	}
}

/*
 * The pixels of sample i are those of fill(i) in make_golden.c. JPEG changes them slightly, and
 * sample 4 has orientation 6.
 */
static void check_pixels(const struct packimg_sample *sample, uint32_t i)
{
	struct packimg_decoder *decoder;
	struct packimg_pixels pixels;
	struct packimg_region region = {0, 0, sample->width, sample->height};

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	if (packimg_decode(decoder, sample, &region, 0, 0, &pixels, &error) < 0)
		fail_msg("%s", error.text);
	if (sample->codec != PACKIMG_CODEC_JPEG) {
		for (uint32_t y = 0; y < pixels.height; y++)
			for (uint32_t x = 0; x < pixels.width; x++)
				for (uint32_t c = 0; c < 3; c++) {
					/*
					 * orientation 6: upright (x, y) is stored at (y, h - 1 - x)
					 */
					uint32_t sx = i == 4 ? y : x, sy = i == 4 ? 7 - x : y;
					uint32_t k = i == 1 ? sy * 16 + sx : (sy * 16 + sx) * 3 + c;
					uint8_t expected = (uint8_t)(i * 37 + k * 11 + k / 7 * 5);
					assert_int_equal(pixels.data[y * pixels.stride + x * 3 + c],
							 expected);
				}
	} else {
		uint32_t width, height;
		int components;
		uint8_t *plain = image_decode_plain(sample->data, sample->data_size, 1, &width,
						    &height, &components);
		for (uint32_t y = 0; y < pixels.height; y++)
			for (uint32_t x = 0; x < pixels.width; x++) {
				uint32_t sx = i == 4 ? y : x, sy = i == 4 ? 7 - x : y;
				assert_memory_equal(pixels.data + y * pixels.stride + x * 3,
						    plain + (sy * width + sx) * 3, 3);
			}
		free(plain);
	}
	packimg_decoder_free(decoder);
}

/* `longest` is the expected maximum length of a bytes field, or "unknown". */
static void check_full(const char *file, bool raw_only, uint64_t longest)
{
	static const uint8_t side[16] = {1, 0, 0, 0x80, 5, 0, 0, 0, 1, 2, 3, 4, 5};
	struct packimg *dataset = open_good(file);
	double mean[3], std[3];

	assert_int_equal(packimg_count(dataset), 6);
	for (uint32_t i = 0; i < 6; i++) {
		struct packimg_sample sample;
		const char *name;
		char expected[32];
		size_t size;
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		assert_int_equal(packimg_sample_check(&sample), 0);
		assert_int_equal(sample.label, i == 5 ? -1 : (int)(i % 3));
		assert_int_equal(sample.codec, raw_only           ? PACKIMG_CODEC_RAW
					       : i == 2           ? PACKIMG_CODEC_RAW_ZSTD
					       : i == 3 || i == 4 ? PACKIMG_CODEC_JPEG
								  : PACKIMG_CODEC_RAW);
		assert_int_equal(sample.orientation, i == 4 ? 6 : 1);
		assert_int_equal(sample.width, i == 4 ? 8 : 16);
		assert_int_equal(sample.height, i == 4 ? 16 : 8);
		assert_int_equal(sample.side_size, i == 3 ? sizeof(side) : 0);
		if (i == 3)
			assert_memory_equal(sample.side, side, sizeof(side));
		assert_int_equal(packimg_source(dataset, i, &name, &size), 0);
		snprintf(expected, sizeof(expected), "%u.png", i);
		assert_int_equal(size, i == 2 ? 0 : strlen(expected));
		assert_memory_equal(name, expected, size);
		check_values(dataset, i, longest);
		check_pixels(&sample, i);
	}
	assert_int_equal(packimg_source_longest(dataset), longest == 7 ? 5 : longest);
	assert_int_equal(packimg_class_count(dataset), 3);
	assert_string_equal(packimg_class_name(dataset, 0), "one");
	assert_string_equal(packimg_class_name(dataset, 2), "три");
	assert_string_equal(packimg_metadata(dataset), "note=two\\nlines\ntool=make_golden\n");
	assert_int_equal(packimg_statistics(dataset, mean, std), 0);
	assert_true(mean[1] == 115.5 && mean[2] == 100.25 && std[0] == 60 && std[2] == 58);
	packimg_close(dataset);
}

TEST(good)
{
	struct packimg *dataset = open_good("minimal.pimg");
	struct packimg_sample sample;

	assert_int_equal(packimg_sample(dataset, 0, &sample), 0);
	assert_memory_equal(sample.data, "\xff\0\0\0\xff\0\0\0\xff\xff\xff\xff", 12);
	assert_string_equal(packimg_class_name(dataset, (uint32_t)sample.label), "dog");
	packimg_close(dataset);
	check_full("full.pimg", false, 7);
	check_full("extended.pimg", false, 7);
	check_full("no_members.pimg", false, 7);
	check_full("no_field_stats.pimg", false, PACKIMG_LONGEST_UNKNOWN);
	check_full("set-00000-of-00003.pimg", true, 7);
	check_full("set-00002-of-00003.pimg", true, 7);
	check_full("set.pimg", true, 7);
}

static const void *typed_value(const struct packimg *dataset, uint32_t i, const char *name,
			       size_t size)
{
	const struct schema *schema = packimg_schema(dataset);
	struct packimg_value value;
	int index = schema_find(schema, name);

	assert_true(index >= 0);
	assert_int_equal(packimg_value(dataset, i, schema->values[index].number, &value), 0);
	assert_true(value.present);
	assert_int_equal(value.size, size);
	return value.bytes;
}

TEST(typed)
{
	static const char expected[] = "image: image u8[h,w,3]\n"
				       "boxes: boxes(image) f32[*,4] xyxy\n"
				       "points: keypoints(image) f32[*,2] xy\n"
				       "class: class(boxes) i32[*]\n"
				       "target: value f32[2]\n"
				       "area: value f32\n"
				       "small: value u8\n"
				       "caption: text sparse\n"
				       "label: class i32\n"
				       "sample: number u64\n"
				       "key: key\n";
	static const float coordinates[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11.5F};
	static const int32_t classes[3] = {2, -1, 0};
	struct packimg *dataset = open_good("typed.pimg");
	const struct schema *schema = packimg_schema(dataset);
	char text[SCHEMA_TEXT_MAX];

	schema_print(schema, text, sizeof(text));
	assert_string_equal(text, expected);
	assert_int_equal(schema->values[0].width, 16);
	assert_int_equal(schema->values[0].height, 8);
	assert_int_equal(schema->values[1].longest, 2);
	assert_int_equal(schema->values[2].longest, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_memory_equal(typed_value(dataset, i, "boxes", i * 16), coordinates, i * 16);
		typed_value(dataset, i, "points", (3 - i) * 8);
		assert_memory_equal(typed_value(dataset, i, "class", i * 4), classes, i * 4);
		assert_memory_equal(typed_value(dataset, i, "target", 8), coordinates, 8);
	}
	assert_memory_equal(typed_value(dataset, 1, "caption", 3), "one", 3);
	packimg_close(dataset);
}

/* A file whose schema is of a later version opens with the implied one. */
TEST(later_schema)
{
	struct packimg *dataset = open_good("later_schema.pimg");

	assert_false(packimg_has_schema(dataset));
	assert_int_equal(packimg_schema(dataset)->values[1].role, SCHEMA_BYTES);
	assert_memory_equal(typed_value(dataset, 1, "class", 4), "\2\0\0\0", 4);
	packimg_close(dataset);
}

TEST(images)
{
	static const uint32_t sizes[3][2] = {{14, 8}, {15, 8}, {8, 16}};
	struct packimg *dataset = open_good("images.pimg");
	struct packimg_region region = {0, 0, 9, 5};
	struct packimg_decoder *decoder;
	struct packimg_sample image;
	struct packimg_raster raster;

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(packimg_image_count(dataset), 2);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(packimg_image(dataset, i, 0, &image), 0);
		assert_true(image.width == sizes[i][0] && image.height == sizes[i][1]);
		for (uint32_t k = 0; k < image.data_size; k++) {
			uint32_t element = k / 2 / 20 + i * 300;
			assert_int_equal(image.data[k], (uint8_t)(element >> k % 2 * 8));
		}
		assert_int_equal(packimg_image(dataset, i, 1, &image), i < 2 ? 0 : -ENODATA);
		if (i == 2)
			continue;
		if (packimg_decode_raster(decoder, &image, &region, &raster, &error) < 0)
			fail_msg("%s", error.text);
		for (uint32_t y = 0; y < 5; y++)
			for (uint32_t x = 0; x < 9; x++) {
				uint16_t element;
				memcpy(&element,
				       raster.data + y * raster.step_y + x * raster.step_x, 2);
				assert_int_equal(element, (y * 9 + x) / 20 + i * 300);
			}
	}
	packimg_decoder_free(decoder);
	packimg_close(dataset);
}

/* A file whose main image is a raster. */
TEST(raster)
{
	static const uint16_t last_row[5] = {300, 300, 300};
	struct packimg *dataset = open_good("raster.pimg");
	struct packimg_region region = {0, 2, 5, 1};
	struct packimg_decoder *decoder;
	struct packimg_sample sample;
	struct packimg_raster raster;

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(packimg_sample(dataset, 0, &sample), 0);
	assert_int_equal(sample.label, 2);
	assert_int_equal(packimg_decode_raster(decoder, &sample, &region, &raster, &error), 0);
	assert_int_equal(raster.element, PACKIMG_ELEMENT_U16);
	assert_int_equal(raster.step_x, sizeof(last_row[0]));
	assert_memory_equal(raster.data, last_row, sizeof(last_row));
	packimg_decoder_free(decoder);
	packimg_close(dataset);
}

/*
 * A damaged record of section `images` is refused at each use; neighbouring records are not
 * affected.
 */
TEST(bad_image_at_use)
{
	static const char *const names[] = {
		"check_image_label.pimg",     "check_image_frame.pimg",
		"check_image_jpeg.pimg",      "check_image_channels.pimg",
		"check_image_data_size.pimg", "check_image_data_offset.pimg",
	};
	struct packimg_sample image;
	struct packimg *dataset;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		assert_int_equal(packimg_open(golden_path("bad", names[i]), &dataset, &error), 0);
		assert_int_equal(packimg_image(dataset, 0, 0, &image), -EBADMSG);
		assert_int_equal(packimg_image(dataset, 0, 1, &image), 0);
		assert_int_equal(packimg_image(dataset, 1, 0, &image), 0);
		packimg_close(dataset);
	}
}

/* A value that breaks the schema is refused at each use. */
TEST(typed_at_use)
{
	static const struct {
		const char *name;
		uint32_t field, sample;
	} cases[] = {
		{"check_typed_missing.pimg", 6, 0},
		{"check_typed_shape.pimg", 3, 1},
		{"check_typed_number.pimg", 5, 2},
		{"check_typed_float.pimg", 4, 2},
	};
	struct packimg_value value;
	struct packimg *dataset;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(packimg_open(golden_path("bad", cases[i].name), &dataset, &error),
				 0);
		assert_int_equal(packimg_value(dataset, cases[i].sample, cases[i].field, &value),
				 -EBADMSG);
		assert_int_equal(packimg_value(dataset, cases[i].sample, 0, &value), 0);
		packimg_close(dataset);
	}
}

TEST(shared)
{
	struct packimg *dataset = open_good("shared.pimg");
	struct packimg_sample samples[6];

	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(packimg_sample(dataset, i, &samples[i]), 0);
	assert_ptr_equal(samples[5].data, samples[3].data);
	assert_ptr_equal(samples[5].side, samples[3].side);
	assert_ptr_equal(samples[0].data, samples[3].data);
	assert_null(samples[0].side);
	packimg_close(dataset);
}

static const struct overlap_text {
	const char *file, *text;
} overlap_texts[] = {
	{"open_section_overlap.pimg", "sections of types 1 ("},
	{"open_field_name_overlap.pimg", "the name of field 1 overlaps the name of field 0"},
	{"open_field_name_entry.pimg", "the name of field 1 overlaps the entry of field 0"},
	{"check_side_inside.pimg", "the data of sample 3 (bytes 1792 to 2537) and the side data "
				   "of sample 3 (bytes 1856 to 1871) overlap"},
	{"check_side_other_data.pimg", "the data of sample 0 (bytes 1024 to 1407) and the side data"
				       " of sample 3 (bytes 1024 to 1039) overlap"},
	{"check_side_section.pimg", "the section of type 2"},
	{"check_side_shared.pimg", "the side data of sample 0"},
	{"check_data_overlap.pimg", "the data of sample 1 (bytes 1088 to 1215) overlap"},
	{"check_data_begin.pimg", "the data of sample 1 (bytes 1024 to 1151) overlap"},
	{"check_data_section.pimg", "the section of type 1"},
	{"check_data_column.pimg", "the column of field id"},
	{"check_column_section.pimg", "the column of field id"},
	{"check_column_overlap.pimg", "the column of field score"},
};

/* The error text names both overlapping ranges. */
TEST(overlap_texts)
{
	for (size_t i = 0; i < sizeof(overlap_texts) / sizeof(*overlap_texts); i++) {
		const struct overlap_text *overlap = &overlap_texts[i];
		struct packimg *dataset;
		int r = packimg_open(golden_path("bad", overlap->file), &dataset, &error);
		if (r == 0) {
			r = packimg_check(dataset, &error);
			packimg_close(dataset);
		}
		assert_int_equal(r, -EBADMSG);
		if (!strstr(error.text, overlap->text) || !strstr(error.text, "overlap"))
			fail_msg("%s: %s", overlap->file, error.text);
	}
}

/* Checks of a single record or column take place at each use. */
TEST(overlap_at_use)
{
	static const char *const samples[] = {"check_side_inside.pimg", "check_side_section.pimg"};
	struct packimg_sample sample;
	struct packimg_value value;
	struct packimg *dataset;

	for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
		assert_int_equal(packimg_open(golden_path("bad", samples[i]), &dataset, &error), 0);
		assert_int_equal(packimg_sample(dataset, 3, &sample), -EBADMSG);
		assert_int_equal(packimg_sample(dataset, 2, &sample), 0);
		packimg_close(dataset);
	}
	assert_int_equal(
		packimg_open(golden_path("bad", "check_data_section.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_sample(dataset, 1, &sample), -EBADMSG);
	packimg_close(dataset);
	assert_int_equal(
		packimg_open(golden_path("bad", "check_column_section.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_value(dataset, 1, 0, &value), -EBADMSG);
	assert_int_equal(packimg_value(dataset, 0, 1, &value), 0);
	packimg_close(dataset);
}

TEST(bad)
{
	unsigned count = 0;
	struct dirent *entry;
	char folder[4096];

	snprintf(folder, sizeof(folder), "%s", golden_path("bad", ""));
	DIR *listing = opendir(folder);
	assert_non_null(listing);
	while ((entry = readdir(listing))) {
		struct packimg *dataset;
		if (entry->d_name[0] == '.')
			continue;
		count++;
		error.text[0] = '\0';
		bool newer = strncmp(entry->d_name, "newer", 5) == 0,
		     check = strncmp(entry->d_name, "check", 5) == 0;
		int r = packimg_open(golden_path("bad", entry->d_name), &dataset, &error);
		int expected = check ? 0 : newer ? -ENOTSUP : -EBADMSG;
		if (r != expected)
			fail_msg("%s: opening gives %d, expected %d: %s", entry->d_name, r,
				 expected, error.text);
		if (r == 0) {
			r = packimg_check(dataset, &error);
			packimg_close(dataset);
			if (r != -EBADMSG)
				fail_msg("%s: checking gives %d", entry->d_name, r);
		}
		/* the error text names the file */
		if (!strstr(error.text, entry->d_name))
			fail_msg("%s: the error does not name it: %s", entry->d_name, error.text);
	}
	closedir(listing);
	assert_true(count > 80);
}

/*
 * packimg_sample() refuses a record that packimg_check() refuses, but not the records next to it.
 */
TEST(bad_record)
{
	struct packimg *dataset;
	struct packimg_sample sample;

	assert_int_equal(packimg_open(golden_path("bad", "check_codec.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_sample(dataset, 0, &sample), -EBADMSG);
	assert_int_equal(packimg_sample(dataset, 1, &sample), 0);
	packimg_close(dataset);
}

/*
 * Each access to a value, and not only packimg_check(), detects a recorded maximum length that is
 * too small.
 */
TEST(longer_than_recorded)
{
	struct packimg *dataset;
	struct packimg_value value;
	const char *name;
	size_t size;

	assert_int_equal(
		packimg_open(golden_path("bad", "check_field_stats_short.pimg"), &dataset, &error),
		0);
	assert_int_equal(packimg_value(dataset, 0, 2, &value), -EBADMSG);
	assert_int_equal(packimg_value(dataset, 1, 3, &value), 0);
	assert_int_equal(packimg_check(dataset, &error), -EBADMSG);
	assert_non_null(strstr(error.text,
			       "sample 0: value of field blob has 7 bytes, and the longest is "
			       "recorded as 6"));
	packimg_close(dataset);
	assert_int_equal(packimg_open(golden_path("bad", "check_field_stats_source_short.pimg"),
				      &dataset, &error),
			 0);
	assert_int_equal(packimg_source(dataset, 0, &name, &size), -EBADMSG);
	assert_int_equal(packimg_source(dataset, 2, &name, &size), 0);
	packimg_close(dataset);
}

TEST(same_bytes)
{
	static const char *const names[] = {"minimal.pimg",
					    "typed.pimg",
					    "images.pimg",
					    "set-00000-of-00003.pimg",
					    "set-00001-of-00003.pimg",
					    "set-00002-of-00003.pimg"};
	char *directory = image_directory(), command[8200], path[4200];

	const char *emulator = getenv("MESON_EXE_WRAPPER"); /* set when cross-compiled */

	snprintf(command, sizeof(command), "%s '%s' '%s'", emulator ? emulator : "",
		 environment("PIMG_MAKE_GOLDEN"), directory);
	assert_int_equal(system(command), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t size, made_size;
		snprintf(path, sizeof(path), "%s/good/%s", directory, names[i]);
		uint8_t *golden = image_file_read(golden_path("good", names[i]), &size);
		uint8_t *made = image_file_read(path, &made_size);
		assert_int_equal(size, made_size);
		assert_memory_equal(golden, made, size);
		free(golden);
		free(made);
	}
	image_directory_remove(directory);
}

/*
 * Parses one line of the listing after its offset. Returns the number of bytes, or -1 for a line of
 * zeros.
 */
static int parse_line(const char *line, uint8_t bytes[16])
{
	int count = 0;

	if (line[0] == '*')
		return -1;
	while (count < 16 && isxdigit((unsigned char)line[0]) && isxdigit((unsigned char)line[1]) &&
	       (line[2] == ' ' || line[2] == '\n')) {
		bytes[count++] = (uint8_t)strtoul(line, NULL, 16);
		line += 3;
	}
	return count;
}

TEST(listing)
{
	char line[1024];
	size_t size, position = 0;
	bool inside = false, zeros = false;
	uint8_t *data = image_file_read(golden_path("good", "minimal.pimg"), &size), bytes[16];

	FILE *spec = fopen(environment("PIMG_SPEC"), "r");
	assert_non_null(spec);
	while (fgets(line, sizeof(line), spec)) {
		if (!inside) {
			inside = strcmp(line, "```hexdump\n") == 0;
			continue;
		}
		if (line[0] == '`')
			break;
		char *end;
		size_t offset = strtoul(line, &end, 16);
		assert_true(offset <= size);
		while (zeros && position < offset)
			assert_int_equal(data[position++], 0);
		assert_int_equal(offset, position);
		int count = parse_line(end + 2, bytes);
		zeros = count < 0;
		if (!zeros) {
			assert_true(count > 0 && position + (size_t)count <= size);
			assert_memory_equal(data + position, bytes, (size_t)count);
			position += (size_t)count;
		}
	}
	fclose(spec);
	free(data);
	assert_int_equal(position, size);
}
