/* Polygons of objects: rows that are not finite end polygons and objects. */
#include "format/base/polygons.h"
#include "format/layout.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <math.h>
#include <xxhash.h>

enum { ROWS = 10 };
/* Objects with two polygons, none, and one. */
static const float three[ROWS][2] = {{1, 2},        {3, 4},     {NAN, NAN}, {5, 6},     {NAN, 0},
				     {INFINITY, 1}, {NAN, NAN}, {7, 8},     {NAN, NAN}, {NAN, NAN}};

TEST(objects_are_counted)
{
	const uint64_t counts[ROWS + 1] = {0,          UINT64_MAX, UINT64_MAX, UINT64_MAX,
					   UINT64_MAX, UINT64_MAX, 1,          2,
					   UINT64_MAX, UINT64_MAX, 3};

	for (size_t rows = 0; rows <= ROWS; rows++)
		assert_int_equal(polygons_count(three, rows), counts[rows]);
}

/* Rows are at any address. */
TEST(objects_are_dropped_with_all_their_polygons)
{
	static const struct {
		uint8_t keep[3];
		size_t count, rows[ROWS];
	} cases[] = {
		{{1, 1, 1}, 10, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{{0, 1, 1}, 4, {6, 7, 8, 9}},
		{{1, 0, 1}, 9, {0, 1, 2, 3, 4, 5, 7, 8, 9}},
		{{0, 0, 1}, 3, {7, 8, 9}},
		{{0, 1, 0}, 1, {6}},
		{{0, 0, 0}, 0, {0}},
	};
	uint8_t bytes[sizeof(three) + 1];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memcpy(bytes + 1, three, sizeof(three));
		assert_int_equal(polygons_keep(bytes + 1, ROWS, cases[i].keep, 3), cases[i].count);
		for (size_t row = 0; row < cases[i].count; row++)
			assert_memory_equal(bytes + 1 + row * sizeof(three[0]),
					    three[cases[i].rows[row]], sizeof(three[0]));
	}
}

/* The rows may change after they were counted: there may be more objects, or fewer. */
TEST(rows_of_other_objects_are_not_read)
{
	const uint8_t keep[] = {0, 1, 1, 1};
	uint8_t bytes[sizeof(three)];

	memcpy(bytes, three, sizeof(three));
	assert_int_equal(polygons_keep(bytes, ROWS, keep, 2), 1);
	memcpy(bytes, three, sizeof(three));
	assert_int_equal(polygons_keep(bytes, ROWS - 1, keep, 4), 3);
}

enum { BOXES, POLYGONS };

/* Writes a sample with two boxes and `rows` rows of polygons. Returns the first error. */
static int write_polygons(const float (*polygons)[2], size_t rows)
{
	static const char schema[] = "image: image\nboxes: boxes(image) f32[*,4]\n"
				     "polygons: polygons(boxes) f32[*,2]\n";
	static const char *const names[] = {"boxes", "polygons"};
	static const uint8_t pixels[3];
	static const float boxes[2][4];
	const struct packimg_item item = {
		pixels,        sizeof(pixels),  .width = 1, .height = 1, .codec = PACKIMG_CODEC_RAW,
		.channels = 3, .orientation = 1};
	const struct packimg_value values[] = {
		{.present = true, .bytes = boxes, .size = sizeof(boxes)},
		{.present = true, .bytes = polygons, .size = rows * sizeof(*polygons)},
	};
	struct packimg_writer *writer;

	assert_int_equal(packimg_writer_new(path_of("polygons.pimg"), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_schema(writer, schema, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	int r = 0;
	for (unsigned i = 0; r == 0 && i < 2; i++) {
		uint32_t field;

		assert_int_equal(
			packimg_writer_field(writer, names[i], PACKIMG_FIELD_BYTES, &field, &error),
			0);
		r = packimg_writer_value(writer, field, &values[i], &error);
	}
	r = r ? r : packimg_writer_finish(writer, &error);
	packimg_writer_free(writer);
	return r;
}

static const float two[5][2] = {{1, 2}, {3, 4}, {NAN, NAN}, {NAN, NAN}, {NAN, NAN}};

/* Replaces a row of the stored polygons and updates the checksums. Returns the error of checking.
 */
static int check_with(size_t row, float x)
{
	size_t size;
	uint8_t *file = image_file_read(path_of("polygons.pimg"), &size);
	struct pimg_header *header = (struct pimg_header *)file;
	struct packimg *dataset;

	for (uint32_t i = 0; i < header->section_count; i++) {
		struct pimg_section *section = &header->sections[i];
		struct pimg_column *columns = (struct pimg_column *)(file + section->offset);

		if (section->type != PIMG_SECTION_COLUMNS)
			continue;
		uint8_t *column = file + columns[POLYGONS].offset;
		uint8_t *rows = memmem(column, columns[POLYGONS].size, two, sizeof(two));
		assert_non_null(rows);
		memcpy(rows + row * sizeof(two[0]), (float[]){x, x}, sizeof(two[0]));
		columns[POLYGONS].xxh3 = XXH3_64bits(column, columns[POLYGONS].size);
		section->xxh3 = XXH3_64bits(columns, section->size);
	}
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	image_file_write(path_of("changed.pimg"), file, size);
	free(file);
	assert_int_equal(packimg_open(path_of("changed.pimg"), &dataset, &error), 0);
	int r = packimg_check(dataset, &error);
	packimg_close(dataset);
	return r;
}

TEST(writer_and_check_compare_objects_with_boxes)
{
	assert_int_equal(write_polygons(two, 3), -EINVAL);
	assert_non_null(strstr(error.text, "value 'polygons' ends within an object"));
	assert_int_equal(write_polygons(two, 4), -EINVAL);
	assert_non_null(strstr(error.text, "value 'polygons' has 1 objects, but 'boxes', to"));
	assert_int_equal(write_polygons(two, 5), 0);
	assert_int_equal(check_with(1, 5), 0);
	assert_int_equal(check_with(4, 5), -EBADMSG);
	assert_non_null(
		strstr(error.text, "sample 0: the polygons of value 'polygons' end within"));
	assert_int_equal(check_with(0, NAN), -EBADMSG);
	assert_non_null(strstr(error.text, "value 'polygons' has 3 objects, but 'boxes', to"));
}

TEST_MAIN(directory_setup, directory_teardown)
