/* Schemas in files: what the writer refuses, what a reader checks at every use, and verifying. */
#include "format/base/schema.h"
#include "format/layout.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <xxhash.h>

enum { SAMPLES = 7 };

static const char text[] = "image: image\n"
			   "boxes: boxes(image) f32[*,4]\n"
			   "class: class(boxes) i32[*]\n"
			   "area: value f32\n"
			   "small: value u8 sparse\n"
			   "target: value f32[2]\n"
			   "caption: text sparse\n"
			   "label: class i32\n";

static const uint8_t pixels[12 * 8 * 3];

static struct packimg_item make_item(uint32_t i)
{
	return (struct packimg_item){
		.data = pixels,
		.data_size = (size_t)(4 + i) * 8 * 3,
		.width = 4 + i,
		.height = 8,
		.label = (int32_t)(i % 3),
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
		.source = "name/of/it",
		.source_size = i,
	};
}

static uint32_t field_of(struct packimg_writer *writer, const char *name,
			 enum packimg_field_type type)
{
	uint32_t field;

	assert_int_equal(packimg_writer_field(writer, name, type, &field, &error), 0);
	return field;
}

static int set_bytes(struct packimg_writer *writer, const char *name, enum packimg_field_type type,
		     const void *bytes, size_t size)
{
	struct packimg_value value = {.present = true, .bytes = bytes, .size = size};

	return packimg_writer_value(writer, field_of(writer, name, type), &value, &error);
}

static int set_int(struct packimg_writer *writer, const char *name, int64_t number)
{
	struct packimg_value value = {.present = true, .int64 = number};

	return packimg_writer_value(writer, field_of(writer, name, PACKIMG_FIELD_INT64), &value,
				    &error);
}

static int set_float(struct packimg_writer *writer, const char *name, double number)
{
	struct packimg_value value = {.present = true, .float64 = number};

	return packimg_writer_value(writer, field_of(writer, name, PACKIMG_FIELD_FLOAT64), &value,
				    &error);
}

static const float boxes[4][4] = {{1, 2, 3, 4}, {0, 0, 2, 2}, {1, 1, 1, 1}, {0, 1, 2, 3}};
static const int32_t classes[4] = {0, 2, -1, 1};
static const float target[2] = {0.5F, -1};

/* Sets the values that are not sparse; the sample has i % 5 boxes. */
static void set_values(struct packimg_writer *writer, uint32_t i)
{
	assert_int_equal(set_bytes(writer, "boxes", PACKIMG_FIELD_BYTES, boxes, i % 5 * 16), 0);
	assert_int_equal(set_bytes(writer, "class", PACKIMG_FIELD_BYTES, classes, i % 5 * 4), 0);
	assert_int_equal(set_float(writer, "area", i / 4.0), 0);
	assert_int_equal(set_bytes(writer, "target", PACKIMG_FIELD_BYTES, target, 8), 0);
}

static struct packimg_writer *begin(const char *path, uint64_t shard_size, const char *schema)
{
	struct packimg_writer_options options = {.shard_size = shard_size};
	static const char *const names[] = {"a", "b", "c"};
	struct packimg_writer *writer;

	assert_int_equal(packimg_writer_new(path, &options, &writer, &error), 0);
	assert_int_equal(packimg_writer_classes(writer, names, 3, &error), 0);
	if (packimg_writer_schema(writer, schema, &error) < 0)
		fail_msg("%s", error.text);
	return writer;
}

static void finish(struct packimg_writer *writer)
{
	if (packimg_writer_finish(writer, &error) < 0)
		fail_msg("%s", error.text);
	packimg_writer_free(writer);
}

static void write_typed(const char *path, uint64_t shard_size)
{
	struct packimg_writer *writer = begin(path, shard_size, text);

	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct packimg_item item = make_item(i);

		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		set_values(writer, i);
		if (i % 2)
			assert_int_equal(set_int(writer, "small", 250 + i), i < 6 ? 0 : -EINVAL);
		if (i == 4)
			assert_int_equal(
				set_bytes(writer, "caption", PACKIMG_FIELD_TEXT, "four", 4), 0);
	}
	finish(writer);
}

static struct packimg *open_checked(const char *path)
{
	struct packimg *dataset;

	if (packimg_open(path, &dataset, &error) < 0 || packimg_check(dataset, &error) < 0)
		fail_msg("%s", error.text);
	return dataset;
}

static const struct schema_value *value_of(const struct packimg *dataset, const char *name)
{
	const struct schema *schema = packimg_schema(dataset);
	int index = schema_find(schema, name);

	assert_true(index >= 0);
	return &schema->values[index];
}

static void check_typed(const char *path)
{
	struct packimg *dataset = open_checked(path);
	struct packimg_value value;
	struct schema schema;

	assert_int_equal(schema_parse(text, strlen(text), &schema, NULL), 0);
	assert_true(packimg_has_schema(dataset));
	assert_true(schema_equal(&schema, packimg_schema(dataset)));
	assert_int_equal(value_of(dataset, "image")->width, 10);
	assert_int_equal(value_of(dataset, "image")->height, 8);
	assert_int_equal(value_of(dataset, "boxes")->longest, 4);
	assert_int_equal(value_of(dataset, "caption")->longest, 4);
	assert_int_equal(value_of(dataset, "key")->longest, 6);
	assert_int_equal(value_of(dataset, "target")->longest, 0);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(
			packimg_value(dataset, i, value_of(dataset, "class")->number, &value), 0);
		assert_int_equal(value.size, i % 5 * 4);
		assert_memory_equal(value.bytes, classes, value.size);
	}
	packimg_close(dataset);
}

TEST(typed_values_come_back)
{
	write_typed(path_of("typed.pimg"), 0);
	check_typed(path_of("typed.pimg"));
	write_typed(path_of("set.pimg"), 1200);
	check_typed(path_of("set.pimg"));
}

TEST(schema_is_part_of_the_content)
{
	struct packimg *datasets[4];
	static const char *const schemas[] = {"image: image\nn: value i32 sparse\n",
					      "image: image\nn: value u8 sparse\n",
					      "image: image\nn: value i32 sparse\n"};
	char path[32];

	for (uint32_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "content%u.pimg", i);
		struct packimg_writer *writer;
		assert_int_equal(packimg_writer_new(path_of(path), NULL, &writer, &error), 0);
		if (i < 3)
			assert_int_equal(packimg_writer_schema(writer, schemas[i], &error), 0);
		else
			field_of(writer, "n", PACKIMG_FIELD_INT64);
		struct packimg_item item = make_item(0);
		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		finish(writer);
		datasets[i] = open_checked(path_of(path));
	}
	assert_memory_equal(packimg_uuid(datasets[0]), packimg_uuid(datasets[2]), 16);
	assert_memory_not_equal(packimg_uuid(datasets[0]), packimg_uuid(datasets[1]), 16);
	assert_memory_not_equal(packimg_uuid(datasets[0]), packimg_uuid(datasets[3]), 16);
	for (uint32_t i = 0; i < 4; i++)
		packimg_close(datasets[i]);
}

TEST(implied_schema)
{
	struct packimg_item item = make_item(3);
	struct packimg_writer *writer;
	char line[128];

	assert_int_equal(packimg_writer_new(path_of("implied.pimg"), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	assert_int_equal(set_int(writer, "patient id", 5), 0);
	assert_int_equal(set_float(writer, "label", 5), 0);
	assert_int_equal(set_bytes(writer, "image", PACKIMG_FIELD_TEXT, "x", 1), 0);
	for (uint32_t i = 0; i < 70; i++) {
		snprintf(line, sizeof(line), "f%u", i);
		field_of(writer, line, PACKIMG_FIELD_JSON);
	}
	finish(writer);
	struct packimg *dataset = open_checked(path_of("implied.pimg"));
	const struct schema *schema = packimg_schema(dataset);
	assert_false(packimg_has_schema(dataset));
	assert_int_equal(schema_check(schema, NULL), 0);
	assert_int_equal(schema->count, SCHEMA_VALUES_MAX);
	static const struct {
		const char *name, *line;
	} expected[] = {
		{"_image", "_image: image u8[h,w,3]"},
		{"patient id", "\"patient id\": value i64 sparse"},
		{"label", "label: value f64 sparse"},
		{"image", "image: text sparse"},
		{"f0", "f0: json sparse"},
		{"_label", "_label: class i32"},
		{"sample", "sample: number u64"},
		{"key", "key: key"},
	};
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		int index = schema_find(schema, expected[i].name);
		assert_true(index >= 0);
		schema_print_value(schema, (unsigned)index, line, sizeof(line));
		assert_string_equal(line, expected[i].line);
	}
	assert_int_equal(value_of(dataset, "image")->longest, 1);
	assert_int_equal(value_of(dataset, "key")->longest, 3);
	packimg_close(dataset);
}

TEST(writer_refuses_values_that_break_the_schema)
{
	struct packimg_writer *writer = begin(path_of("bad.pimg"), 0, text);
	struct packimg_item item = make_item(0);

	assert_int_equal(packimg_writer_schema(writer, text, &error), -EINVAL);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	assert_int_equal(set_bytes(writer, "boxes", PACKIMG_FIELD_BYTES, boxes, 15), -EINVAL);
	assert_non_null(strstr(error.text, "sample 0: value 'boxes' has a size that is not"));
	assert_int_equal(set_bytes(writer, "target", PACKIMG_FIELD_BYTES, boxes, 12), -EINVAL);
	assert_non_null(strstr(error.text, "value 'target' has a size other than its shape's"));
	assert_int_equal(set_int(writer, "small", 256), -EINVAL);
	assert_int_equal(set_int(writer, "small", -1), -EINVAL);
	assert_int_equal(set_float(writer, "area", 1e300), -EINVAL);
	assert_non_null(strstr(error.text, "value 'area' does not fit its element"));
	assert_int_equal(set_float(writer, "area", 1.0 / 0.0), 0);
	assert_int_equal(set_bytes(writer, "class", PACKIMG_FIELD_BYTES, "\xfe\xff\xff\xff", 4),
			 -EINVAL);
	assert_non_null(strstr(error.text, "value 'class' has a number below -1"));
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EINVAL);
	assert_non_null(strstr(error.text, "sample 0: value 'boxes' is missing; set it"));
	assert_int_equal(set_bytes(writer, "boxes", PACKIMG_FIELD_BYTES, boxes, 32), 0);
	assert_int_equal(set_bytes(writer, "class", PACKIMG_FIELD_BYTES, classes, 4), 0);
	assert_int_equal(set_bytes(writer, "target", PACKIMG_FIELD_BYTES, target, 8), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), -EINVAL);
	assert_non_null(strstr(error.text, "value 'class' has 1 rows, and 'boxes', with whose"));
	packimg_writer_free(writer);
	writer = begin(path_of("bad.pimg"), 0, "image: image u8[8,5,3]\nc: class u8[2]\n");
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EINVAL);
	assert_non_null(strstr(error.text, "width and height must be those of the schema"));
	item = make_item(1);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	assert_int_equal(set_bytes(writer, "c", PACKIMG_FIELD_BYTES, "\0\3", 2), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), -EINVAL);
	assert_non_null(strstr(error.text, "number 3, but there are only 3 classes"));
	packimg_writer_free(writer);
	assert_int_equal(packimg_writer_new(path_of("bad.pimg"), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_schema(writer, "image: imag", &error), -EINVAL);
	assert_non_null(strstr(error.text, "bad.pimg: schema: line 1, column 8: unknown role"));
	packimg_writer_free(writer);
}

TEST_MAIN(directory_setup, directory_teardown)
