/*
 * Schemas in files: input that the writer refuses, checks of a reader at every use, and verifying.
 */
#include "format/base/schema.h"
#include "format/base/schema_rules.h"
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

/* Sets the values of sample i that are not sparse; it has i % 5 boxes. */
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
	struct schema_fault fault;
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
	assert_true(schema_is_sound(schema, &fault));
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

/*
 * Writes a file with a field for every name that the implied value `word` can get: word, _word and
 * so on. Checks the schema: the value has the longest name, and the field of that name is missing.
 */
static void check_exhausted_names(const char *word)
{
	char names[SCHEMA_NAME_MAX + 1];
	char *begin = names + SCHEMA_NAME_MAX - strlen(word);
	struct packimg_writer *writer;
	struct schema_fault fault;

	memset(names, '_', sizeof(names));
	strcpy(begin, word);
	assert_int_equal(packimg_writer_new(path_of("names.pimg"), NULL, &writer, &error), 0);
	for (const char *name = names; name <= begin; name++)
		field_of(writer, name, PACKIMG_FIELD_INT64);
	finish(writer);
	struct packimg *dataset = open_checked(path_of("names.pimg"));
	const struct schema *schema = packimg_schema(dataset);
	assert_int_equal(packimg_field_count(dataset), begin - names + 1);
	assert_int_equal(schema->count, begin - names + 4);
	assert_true(schema_is_sound(schema, &fault));
	assert_int_equal(schema_find(schema, names + 1), 1);
	assert_int_not_equal(value_of(dataset, names)->store, SCHEMA_IN_COLUMN);
	for (const char *name = names + 1; name <= begin; name++)
		assert_int_equal(value_of(dataset, name)->store, SCHEMA_IN_COLUMN);
	packimg_close(dataset);
}

TEST(fields_may_use_all_names_of_an_implied_value)
{
	check_exhausted_names("image");
	check_exhausted_names("label");
	check_exhausted_names("sample");
	check_exhausted_names("key");
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
	assert_non_null(strstr(error.text, "value 'class' has 1 rows, but 'boxes', to whose"));
	packimg_writer_free(writer);
	writer = begin(path_of("bad.pimg"), 0, "image: image u8[8,5,3]\nc: class u8[2]\n");
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EINVAL);
	assert_non_null(strstr(error.text, "width or height is not that of the schema"));
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

/* Several images: a mask, an image of independent size, and the depth of the latter. */
static const char images_text[] = "image: image\n"
				  "mask: mask(image) u8[h,w]\n"
				  "right: image u8[h,w,3]\n"
				  "depth: raster(right) u16[h,w] sparse\n";

enum { MASK, RIGHT, DEPTH, IMAGES };

static const uint8_t bytes_of[64] = {9, 8, 7, 6, 5, 4, 3, 2, 1};

static struct packimg_item make_mask(uint32_t width, uint32_t height)
{
	return (struct packimg_item){
		.data = bytes_of,
		.data_size = (size_t)width * height,
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 1,
		.orientation = 1,
	};
}

static struct packimg_item make_depth(struct packimg_encoder *encoder, uint32_t width,
				      uint32_t height, const uint16_t *elements)
{
	const struct packimg_raster_coding coding = {.method = PACKIMG_RASTER_RAW, .rows_log2 = 1};
	struct packimg_raster raster = {
		.data = (const uint8_t *)elements,
		.step_x = 2,
		.step_y = (ptrdiff_t)width * 2,
		.width = width,
		.height = height,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U16,
	};
	struct packimg_item item = {
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_RASTER,
		.channels = 1,
		.orientation = 1,
	};

	if (packimg_encode_raster(encoder, &raster, &coding, &item.data, &item.data_size, &error))
		fail_msg("%s", error.text);
	return item;
}

static const uint16_t depths[15] = {300, 301, 302, 303, 304, 305};
static const uint8_t side_data[16] = {1, 0, 0, 0x80, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};

/* Sample i is (4 + i) x 2 with another image of 5 x 3; even samples also have depth. */
static void write_images(const char *path, uint64_t shard_size)
{
	struct packimg_writer *writer = begin(path, shard_size, images_text);
	struct packimg_encoder *encoder;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct packimg_item item = make_item(0);

		item.width = 4 + i;
		item.height = 2;
		item.data_size = (size_t)item.width * 2 * 3;
		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		item = make_mask(4 + i, 2);
		item.side = side_data;
		item.side_size = i == 1 ? sizeof(side_data) : 0;
		assert_int_equal(packimg_writer_image(writer, MASK, &item, &error), 0);
		item = make_item(0);
		item.width = 5;
		item.height = 3;
		item.data_size = 45;
		assert_int_equal(packimg_writer_image(writer, RIGHT, &item, &error), 0);
		if (i % 2)
			continue;
		item = make_depth(encoder, 5, 3, depths);
		assert_int_equal(packimg_writer_image(writer, DEPTH, &item, &error), 0);
	}
	finish(writer);
	packimg_encoder_free(encoder);
}

static void check_depth(struct packimg_decoder *raster_decoder, const struct packimg_sample *image)
{
	struct packimg_region region = {0, 0, 5, 3};
	struct packimg_raster raster;

	assert_int_equal(image->codec, PACKIMG_CODEC_RASTER);
	if (packimg_decode_raster(raster_decoder, image, &region, &raster, &error) < 0)
		fail_msg("%s", error.text);
	assert_int_equal(raster.element, PACKIMG_ELEMENT_U16);
	for (uint32_t y = 0; y < 3; y++)
		assert_memory_equal(raster.data + y * raster.step_y, depths + (size_t)y * 5, 10);
}

static void check_images(const struct packimg *dataset)
{
	struct packimg_decoder *raster_decoder;
	struct packimg_sample image;

	assert_int_equal(packimg_decoder_new(&raster_decoder), 0);
	assert_int_equal(packimg_image_count(dataset), IMAGES);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(packimg_image(dataset, i, MASK, &image), 0);
		assert_int_equal(image.index, i);
		assert_int_equal(image.label, PACKIMG_LABEL_NONE);
		assert_true(image.width == 4 + i && image.height == 2 && image.channels == 1);
		assert_memory_equal(image.data, bytes_of, image.data_size);
		assert_int_equal(packimg_sample_check(&image), 0);
		assert_int_equal(image.side_size, i == 1 ? sizeof(side_data) : 0);
		assert_int_equal(packimg_image(dataset, i, RIGHT, &image), 0);
		assert_true(image.width == 5 && image.height == 3 && image.channels == 3);
		assert_int_equal(packimg_image(dataset, i, DEPTH, &image), i % 2 ? -ENODATA : 0);
		if (i % 2 == 0)
			check_depth(raster_decoder, &image);
		assert_int_equal(packimg_image(dataset, i, IMAGES, &image), -ERANGE);
	}
	assert_int_equal(packimg_image(dataset, SAMPLES, MASK, &image), -ERANGE);
	packimg_decoder_free(raster_decoder);
}

static void rewrite_images(const struct packimg *dataset)
{
	struct packimg_rewriter *rewriter;

	assert_int_equal(packimg_rewriter_new(dataset, &rewriter, &error), 0);
	for (uint64_t i = 0; i < packimg_count(dataset); i++)
		assert_int_equal(packimg_rewriter_put(rewriter, NULL, 0, &error), 0);
	if (packimg_rewriter_finish(rewriter, &error) < 0)
		fail_msg("%s", error.text);
	packimg_rewriter_free(rewriter);
}

TEST(images_come_back)
{
	static const uint64_t shard_sizes[] = {0, 1400};

	for (size_t i = 0; i < 2; i++) {
		const char *name = i ? "images-set.pimg" : "images.pimg";

		write_images(path_of(name), shard_sizes[i]);
		struct packimg *dataset = open_checked(path_of(name));
		check_images(dataset);
		assert_int_equal(value_of(dataset, "mask")->width, 4 + SAMPLES - 1);
		assert_int_equal(value_of(dataset, "depth")->height, 3);
		rewrite_images(dataset);
		struct packimg *again = open_checked(path_of(name));
		check_images(again);
		assert_memory_equal(packimg_uuid(dataset), packimg_uuid(again), 16);
		packimg_close(dataset);
		packimg_close(again);
	}
}

/* The data of a sample and its further images are contiguous, so that one read fetches them. */
TEST(parts_are_contiguous)
{
	struct packimg_sample sample, image;

	write_images(path_of("images.pimg"), 0);
	struct packimg *dataset = open_checked(path_of("images.pimg"));
	for (uint32_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		for (uint32_t k = 0; k < DEPTH; k++) {
			assert_int_equal(packimg_image(dataset, i, k, &image), 0);
			assert_true(image.data_offset > sample.data_offset &&
				    image.data_offset - sample.data_offset <= 64 * (k + 2));
		}
	}
	packimg_close(dataset);
}

/* Changes the records of section `images` of a file and updates its checksums. */
static void patch_images(const char *path, void (*change)(struct pimg_record *records))
{
	size_t size;
	uint8_t *file = image_file_read(path, &size);
	struct pimg_header *header = (struct pimg_header *)file;
	for (uint32_t i = 0; i < header->section_count; i++) {
		struct pimg_section *section = &header->sections[i];
		struct pimg_record *records = (struct pimg_record *)(file + section->offset);
		if (section->type != PIMG_SECTION_IMAGES)
			continue;
		change(records);
		section->xxh3 = XXH3_64bits(records, section->size);
	}
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	image_file_write(path, file, size);
	free(file);
}

static void share_data(struct pimg_record *records)
{
	records[4 * IMAGES + RIGHT] = records[2 * IMAGES + RIGHT];
	records[6 * IMAGES + DEPTH] = records[4 * IMAGES + DEPTH];
}

/* Records that share data before a rewrite also share it afterwards. */
TEST(shared_images_stay_shared)
{
	const char *path = path_of("shared.pimg");
	struct packimg_sample first, second;

	write_images(path, 0);
	patch_images(path, share_data);
	for (int rewritten = 0; rewritten < 2; rewritten++) {
		struct packimg *dataset = open_checked(path_of("shared.pimg"));

		check_images(dataset);
		assert_int_equal(packimg_image(dataset, 2, RIGHT, &first), 0);
		assert_int_equal(packimg_image(dataset, 4, RIGHT, &second), 0);
		assert_int_equal(first.data_offset, second.data_offset);
		assert_int_equal(packimg_image(dataset, 4, DEPTH, &first), 0);
		assert_int_equal(packimg_image(dataset, 6, DEPTH, &second), 0);
		assert_int_equal(first.data_offset, second.data_offset);
		rewrite_images(dataset);
		packimg_close(dataset);
	}
}

/*
 * Makes five images share their data; images 0 and 2 share one side data, the other images another.
 */
static void share_side_data(struct pimg_record *records)
{
	records[2] = records[0];
	records[1].data_offset = records[0].data_offset;
	records[3] = records[4] = records[1];
}

TEST(shared_side_data_stays_shared)
{
	struct packimg_writer *writer =
		begin(path_of("sides.pimg"), 0, "image: image\nright: image\n");
	uint8_t side[sizeof(side_data)];
	struct packimg_sample images[5];

	memcpy(side, side_data, sizeof(side));
	for (uint8_t i = 0; i < 5; i++) {
		struct packimg_item item = make_item(0);

		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		side[8] = i;
		item.side = side;
		item.side_size = sizeof(side);
		assert_int_equal(packimg_writer_image(writer, 0, &item, &error), 0);
	}
	finish(writer);
	patch_images(path_of("sides.pimg"), share_side_data);
	for (int rewritten = 0; rewritten < 2; rewritten++) {
		struct packimg *dataset = open_checked(path_of("sides.pimg"));

		for (uint32_t i = 0; i < 5; i++) {
			assert_int_equal(packimg_image(dataset, i, 0, &images[i]), 0);
			assert_ptr_equal(images[i].data, images[0].data);
			assert_ptr_equal(images[i].side, images[i < 2 ? i : i == 2 ? 0 : 1].side);
			assert_int_equal(images[i].side[8], i % 2 || i == 4);
		}
		rewrite_images(dataset);
		packimg_close(dataset);
	}
}

enum { SIDE = 64 };

/* Adds a sample whose further image is a JPEG. */
static void add_jpeg_pair(struct packimg_writer *writer, struct packimg_encoder *encoder,
			  uint8_t seed)
{
	static uint8_t rgb[SIDE * SIDE * 3];
	struct packimg_item item = make_item(0);

	for (size_t i = 0; i < sizeof(rgb); i++)
		rgb[i] = (uint8_t)(i * seed >> 4);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	item.width = item.height = SIDE;
	item.codec = PACKIMG_CODEC_JPEG;
	assert_int_equal(packimg_encode_jpeg(encoder, rgb, (size_t)SIDE * 3, SIDE, SIDE, 3, 90,
					     true, &item.data, &item.data_size),
			 0);
	assert_int_equal(packimg_writer_image(writer, 0, &item, &error), 0);
}

/* Adds indexes to the further images of a dataset, or removes them if not `make`. */
static void index_images(const char *path, struct packimg_decoder *own, bool make)
{
	struct packimg *dataset = open_checked(path);
	struct packimg_rewriter *rewriter;
	struct packimg_jpeg_info info;
	struct packimg_sample image;
	const uint8_t *bytes = (const uint8_t *)"";
	size_t size = 0;

	assert_int_equal(packimg_rewriter_new(dataset, &rewriter, &error), 0);
	assert_int_equal(packimg_rewriter_image(rewriter, 1, NULL, 0, &error), -EINVAL);
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		assert_int_equal(
			packimg_image(dataset, packimg_rewriter_order(rewriter)[i], 0, &image), 0);
		assert_int_equal(packimg_jpeg_probe(image.data, image.data_size, &info, &error), 0);
		if (make)
			assert_int_equal(packimg_index_jpeg(own, image.data, image.data_size, &info,
							    &bytes, &size),
					 0);
		assert_int_equal(packimg_rewriter_image(rewriter, 0, bytes, size, &error), 0);
		assert_int_equal(packimg_rewriter_put(rewriter, NULL, 0, &error), 0);
	}
	assert_int_equal(packimg_rewriter_finish(rewriter, &error), 0);
	packimg_rewriter_free(rewriter);
	packimg_close(dataset);
}

TEST(further_images_get_indexes)
{
	const char *schema = "image: image\nright: image u8[h,w,3]\n";
	struct packimg_writer *writer = begin(path_of("pairs.pimg"), 0, schema);
	struct packimg_encoder *encoder;
	struct packimg_decoder *own;
	struct packimg_sample image;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_decoder_new(&own), 0);
	for (uint8_t i = 0; i < 3; i++)
		add_jpeg_pair(writer, encoder, (uint8_t)(i + 3));
	finish(writer);
	for (int made = 1; made >= 0; made--) {
		index_images(path_of("pairs.pimg"), own, made);
		struct packimg *dataset = open_checked(path_of("pairs.pimg"));
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(packimg_image(dataset, i, 0, &image), 0);
			assert_int_equal(packimg_sample_check(&image), 0);
			assert_int_equal(packimg_sample_indexed(&image), made);
			if (made)
				assert_int_equal(packimg_index_check(own, &image, &error), 0);
		}
		packimg_close(dataset);
	}
	packimg_decoder_free(own);
	packimg_encoder_free(encoder);
}

TEST(writer_refuses_images_that_break_the_schema)
{
	struct packimg_writer *writer = begin(path_of("bad.pimg"), 0, images_text);
	struct packimg_item item = make_item(0), mask = make_mask(4, 8);
	struct packimg_encoder *encoder;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_writer_image(writer, MASK, &mask, &error), -EINVAL);
	assert_non_null(strstr(error.text, "there is no such sample"));
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	assert_int_equal(packimg_writer_image(writer, IMAGES, &mask, &error), -EINVAL);
	assert_int_equal(packimg_writer_image(writer, MASK, &item, &error), -EINVAL);
	assert_non_null(strstr(error.text, "value 'mask': channels is not the last dimension"));
	assert_int_equal(packimg_writer_image(writer, DEPTH, &mask, &error), -EINVAL);
	assert_non_null(strstr(error.text, "only elements u8 can be raw"));
	struct packimg_item depth = make_depth(encoder, 4, 3, depths);
	assert_int_equal(packimg_writer_image(writer, RIGHT, &depth, &error), -EINVAL);
	assert_int_equal(packimg_writer_image(writer, MASK, &depth, &error), -EINVAL);
	assert_non_null(strstr(error.text, "the element of the raster is not that of the schema"));
	assert_int_equal(packimg_writer_image(writer, DEPTH, &depth, &error), 0);
	assert_int_equal(packimg_writer_image(writer, DEPTH, &depth, &error), -EEXIST);
	assert_int_equal(packimg_writer_image(writer, RIGHT, &item, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EINVAL);
	assert_non_null(strstr(error.text, "sample 0: value 'mask' is missing; add it"));
	mask = make_mask(8, 4);
	assert_int_equal(packimg_writer_image(writer, MASK, &mask, &error), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), -EINVAL);
	assert_non_null(strstr(error.text, "value 'mask' is 8 x 4, and 'image', to which it "
					   "belongs, is 4 x 8, both upright"));
	packimg_writer_free(writer);
	assert_int_equal(packimg_writer_new(path_of("bad.pimg"), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &depth, &error), -EINVAL);
	assert_non_null(strstr(error.text, "codec raster needs a schema"));
	packimg_writer_free(writer);
	packimg_encoder_free(encoder);
}

/* A refused item does not end the previous sample, which can still get its images. */
TEST(refused_item_changes_nothing)
{
	struct packimg_writer *writer =
		begin(path_of("open.pimg"), 0, "image: image\ndepth: raster u16[h,w] sparse\n");
	struct packimg_item item = make_item(0), refused = item;
	struct packimg_encoder *encoder;
	struct packimg_sample image;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	refused.orientation = 9;
	assert_int_equal(packimg_writer_add(writer, &refused, &error), -EINVAL);
	struct packimg_item depth = make_depth(encoder, 5, 3, depths);
	assert_int_equal(packimg_writer_image(writer, 0, &depth, &error), 0);
	finish(writer);
	struct packimg *dataset = open_checked(path_of("open.pimg"));
	assert_int_equal(packimg_image(dataset, 0, 0, &image), 0);
	packimg_close(dataset);
	packimg_encoder_free(encoder);
}

/* The writer refuses a raster whose head does not describe the item. */
TEST(writer_refuses_rasters_with_another_head)
{
	struct packimg_writer *writer = begin(path_of("heads.pimg"), 0, "image: image u16[h,w]\n");
	static const struct {
		size_t offset;
		uint8_t byte;
		const char *fault;
	} cases[] = {
		{0, 2, "version 2 of a raster"},
		{1, 2, "element 2 is not one of a raster"},
		{2, 3, "3 channels in the raster, 1 in the record"},
		{3, 9, "bands of 2^9 rows"},
		{4, 9, "9 bands, expected"},
	};
	struct packimg_encoder *encoder;
	uint8_t data[64];

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	struct packimg_item item = make_depth(encoder, 5, 3, depths), changed = item;
	assert_in_range(item.data_size, 1, sizeof(data));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(data, item.data, item.data_size);
		data[cases[i].offset] = cases[i].byte;
		changed.data = data;
		assert_int_equal(packimg_writer_add(writer, &changed, &error), -EINVAL);
		assert_non_null(strstr(error.text, cases[i].fault));
	}
	/* bands have rows as stored, before the orientation is applied */
	changed = item;
	changed.width = 3;
	changed.height = 5;
	assert_int_equal(packimg_writer_add(writer, &changed, &error), -EINVAL);
	changed.orientation = 6;
	assert_int_equal(packimg_writer_add(writer, &changed, &error), 0);
	changed = item;
	changed.data_size = 7;
	assert_int_equal(packimg_writer_add(writer, &changed, &error), -EINVAL);
	packimg_writer_free(writer);
	packimg_encoder_free(encoder);
}

/* The elements of the main image need not be u8. */
TEST(main_image_of_16_bits)
{
	struct packimg_writer *writer =
		begin(path_of("deep.pimg"), 0, "image: image u16[h,w]\nlabel: class i32\n");
	struct packimg_decoder *raster_decoder;
	struct packimg_encoder *encoder;
	struct packimg_sample sample;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_decoder_new(&raster_decoder), 0);
	struct packimg_item item = make_depth(encoder, 5, 3, depths);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	finish(writer);
	struct packimg *dataset = open_checked(path_of("deep.pimg"));
	assert_int_equal(packimg_sample(dataset, 0, &sample), 0);
	check_depth(raster_decoder, &sample);
	packimg_close(dataset);
	packimg_decoder_free(raster_decoder);
	packimg_encoder_free(encoder);
}

TEST_MAIN(directory_setup, directory_teardown)
