/* Schemas: text, rules, and the bytes of section 8. */
#include "format/base/schema.h"
#include "format/base/schema_rules.h"
#include "tests/test.h"

static struct schema parsed(const char *text)
{
	struct schema schema;
	struct schema_error error = {.text = ""};

	if (schema_parse(text, strlen(text), &schema, &error) < 0)
		fail_msg("%s", error.text);
	return schema;
}

static const struct schema_value *value_of(const struct schema *schema, const char *name)
{
	int index = schema_find(schema, name);

	assert_true(index >= 0);
	return &schema->values[index];
}

static const char many[] = "image: image u8[h,w,3]\n"
			   "mask: mask(image) u8[h,w]\n"
			   "left: image u16[480,640]\n"
			   "depth: raster(left) f32[h,w] sparse\n"
			   "boxes: boxes(image) f32[*,4] xywh normalized\n"
			   "class: class(boxes) i32[*]\n"
			   "pose: keypoints(boxes) f32[*,17,3] xyv\n"
			   "points: keypoints(image) f32[17,2] xy\n"
			   "outline: polygons(image) f32[*,2] xy\n"
			   "object: value(outline) i32[*]\n"
			   "target: value f32[2]\n"
			   "caption: text sparse\n"
			   "raw: bytes\n"
			   "\"patient \\\"id\\\"\": value i64\n"
			   "extra: json\n"
			   "label: class i32\n"
			   "sample: number u64\n"
			   "key: key\n";

TEST(canonical_text_comes_back)
{
	struct schema schema = parsed(many), again;
	char text[SCHEMA_TEXT_MAX], line[64];

	assert_int_equal(schema.count, 18);
	assert_int_equal(schema_print(&schema, text, sizeof(text)), strlen(many));
	assert_string_equal(text, many);
	again = parsed(text);
	assert_true(schema_equal(&schema, &again));
	schema_print_value(&schema, 1, line, sizeof(line));
	assert_string_equal(line, "mask: mask(image) u8[h,w]");
	assert_int_equal(schema_print(&schema, line, 9), strlen(many));
	assert_string_equal(line, "image: i");
	assert_int_equal(schema_print(&schema, NULL, 0), strlen(many));
}

TEST(defaults_comments_and_implied_values)
{
	struct schema schema = parsed("# a comment\n\n"
				      "  image :image# pixels\r\n"
				      "mask: mask ( image )\n"
				      "boxes: boxes(image)\n"
				      "kind: class\n"
				      "points: keypoints(image) f32[ 3 , 2 ]");
	struct schema full = parsed("image: image u8[h,w,3]\n"
				    "mask: mask(image) u8[h,w]\n"
				    "boxes: boxes(image) f32[*,4] xyxy\n"
				    "kind: class i32\n"
				    "points: keypoints(image) f32[3,2] xy\n"
				    "sample: number u64\n"
				    "key: key\n");
	struct schema taken = parsed("image: image\nlabel: class i32[*]\nkey: text\n");
	struct schema_fault fault;

	assert_true(schema_equal(&schema, &full));
	assert_int_equal(value_of(&schema, "kind")->store, SCHEMA_IN_LABEL);
	assert_int_equal(taken.count, 4);
	assert_int_equal(value_of(&taken, "label")->store, SCHEMA_IN_COLUMN);
	assert_int_equal(schema_add_implied(&taken, true), 0);
	assert_int_equal(taken.count, 6);
	assert_int_equal(value_of(&taken, "_label")->store, SCHEMA_IN_LABEL);
	assert_int_equal(value_of(&taken, "_key")->store, SCHEMA_IN_SOURCE);
	assert_true(schema_is_sound(&taken, &fault));
}

TEST(values_are_placed)
{
	struct schema schema = parsed(many);

	assert_int_equal(value_of(&schema, "image")->store, SCHEMA_IN_INDEX);
	assert_int_equal(value_of(&schema, "depth")->store, SCHEMA_IN_IMAGES);
	assert_int_equal(value_of(&schema, "depth")->number, 2);
	assert_int_equal(value_of(&schema, "class")->store, SCHEMA_IN_COLUMN);
	assert_int_equal(value_of(&schema, "class")->number, 1);
	assert_int_equal(schema_stored(&schema, SCHEMA_IN_COLUMN, 10),
			 schema_find(&schema, "extra"));
	assert_int_equal(schema_stored(&schema, SCHEMA_IN_COLUMN, 11), -1);
	assert_int_equal(schema_image_count(&schema), 3);
}

static int frame_of(const struct schema *schema, const char *name)
{
	return schema_frame(schema, (unsigned)schema_find(schema, name));
}

static int rows_of(const struct schema *schema, const char *name)
{
	return schema_rows(schema, (unsigned)schema_find(schema, name));
}

TEST(frames_rows_and_sizes)
{
	struct schema schema = parsed(many);
	int image = schema_find(&schema, "image"), left = schema_find(&schema, "left");
	int boxes = schema_find(&schema, "boxes"), outline = schema_find(&schema, "outline");

	assert_int_equal(frame_of(&schema, "image"), image);
	assert_int_equal(frame_of(&schema, "depth"), left);
	assert_int_equal(frame_of(&schema, "pose"), image);
	assert_int_equal(frame_of(&schema, "class"), -1);
	assert_int_equal(frame_of(&schema, "caption"), -1);
	assert_int_equal(rows_of(&schema, "class"), boxes);
	assert_int_equal(rows_of(&schema, "pose"), boxes);
	assert_int_equal(rows_of(&schema, "boxes"), boxes);
	assert_int_equal(rows_of(&schema, "object"), outline);
	assert_int_equal(rows_of(&schema, "points"), -1);
	assert_int_equal(schema_row_size(value_of(&schema, "pose")), 17 * 3 * 4);
	assert_int_equal(schema_row_size(value_of(&schema, "target")), 8);
	assert_int_equal(schema_row_size(value_of(&schema, "label")), 4);
	assert_int_equal(schema_row_size(value_of(&schema, "caption")), 1);
	assert_string_equal(schema_nearest(&schema, "captoin"), "caption");
	assert_null(schema_nearest(&schema, "velocity"));
}

TEST(equal_compares_what_the_text_states)
{
	static const char *const others[] = {
		"image: image u8[h,w,3]\nboxes: boxes(image) f32[*,4] xywh\n",
		"image: image u8[h,w,3]\nboxes: boxes(image) f32[*,4] sparse\n",
		"image: image u8[h,w,3]\nboxes: boxes(image) f32[4]\n",
		"image: image u8[h,w,3]\nbox: boxes(image) f32[*,4]\n",
		"image: image u8[h,w,1]\nboxes: boxes(image) f32[*,4]\n",
		"image: image u8[h,w,3]\n",
	};
	struct schema schema = parsed("image: image\nboxes: boxes(image)\n"), same = schema;

	same.values[1].longest = 12;
	same.values[0].width = 640;
	assert_true(schema_equal(&schema, &same));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct schema other = parsed(others[i]);
		assert_false(schema_equal(&schema, &other));
	}
}

TEST(faults_are_named_at_their_place)
{
	static const struct {
		const char *text, *at; /* first occurrence of the faulty word; NULL means the end */
		const char *sentence;
	} cases[] = {
		{"", NULL, "line 1, column 1: no image; add"},
		{"label: class i32\n", NULL, "no image"},
		{"image image", "image", NULL},
		{"image: imge", "imge", "unknown role 'imge'; did you mean 'image'?"},
		{"image: velocity", "velocity", "it is one of image, mask, raster"},
		{"image: image u8[w,h,3]", "w,h", "expected h, w or a number of pixels"},
		{"image: image u8[h,w", NULL, "expected ',' or ']', found the end of the text"},
		{"image: image u8[h,w,0]", "0]", "must be from 1"},
		{"image: image u8[h,w,1999999999]", "1999", "must be from 1"},
		{"image: image u8[h,w,33]", "u8", "must be at most 32"},
		{"image: image u8[h,w,3,4,5]", "5]", "more than 4 dimensions"},
		{"image: image u8[h,w,3,4]", "u8", "has 4 dimensions; image has 2 to 3"},
		{"image: image i64[h,w]", "i64", "'image' has element i64, which image cannot"},
		{"image: image xyxy", "xyxy", "unknown word 'xyxy'"},
		{"image: image sparce", "sparce", "did you mean 'sparse'"},
		{"image: image sparse", "sparse", "'image' cannot be sparse"},
		{"image: image\nimage: image", "image: image", "two values are named 'image'"},
		{"image: image\nm: mask(imag)", "imag)", "did you mean 'image'?"},
		{"image: image\nm: mask", "mask", "'m' must name the image"},
		{"m: mask(image)\nimage: image", "image)", "no value before this line"},
		{"image: image\nm: mask(image) f32[h,w]", "f32", "which mask cannot have"},
		{"image: image\nm: mask(image\n", "\n", NULL},
		{"image: image\nv: value", NULL, "value needs an element and a shape"},
		{"image: image\nv: value f32[2,*]", "*", "expected a number"},
		{"image: image\nv: value f32[65536,65536]", "f32", "more than 1073741824 bytes"},
		{"image: image\nv: value f32[2] sparse sparse", "sparse", NULL},
		{"image: image\nv: value f32[2] normalized", "normalized", "has no coordinates"},
		{"image: image\nb: boxes(image) f32[*,3]", "f32", "no format of boxes has"},
		{"image: image\nb: boxes(image) f32[*,5] xyxy", "f32", "but xyxy has 4"},
		{"image: image\nb: boxes(image)\nc: class(b) i32", "(b)", "'c' cannot belong to"},
		{"image: image\nb: boxes(image)\nm: mask(b)", "(b)", "an image or a raster that"},
		{"image: image\nc: class(image) i32[*]", "(image)", "a value with '*'"},
		{"image: image\nt: text(image)", "(image)", "text belongs to no other value"},
		{"image: image\nt: text u8", "u8", "'t' has an element"},
		{"image: image\ni: image(image)\nm: mask(i)", "(i)", "an image or a raster that"},
		{"image: image\n\"a\tb\": text", "\"a", "the control character 0x09"},
		{"image: image\n\"a: text", "\"a", "the quote of a name is not closed"},
		{"image: image\n\xff: text", "\xff", "found byte 0xff"},
		{"image: image\nk: key\nq: key", "key\nq", NULL},
		{"image: image\n"
		 "a123456789b123456789c123456789d123456789e123456789f123456789g123: text",
		 "a123", "more than 63 bytes"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text = cases[i].text;
		struct schema schema;
		struct schema_error error = {.position = -2};

		print_message("%s\n", text);
		assert_int_equal(schema_parse(text, strlen(text), &schema, &error), -EINVAL);
		print_message("\t%s\n", error.text);
		assert_int_equal(schema_parse(text, strlen(text), &schema, NULL), -EINVAL);
		if (!cases[i].sentence)
			continue;
		assert_non_null(strstr(error.text, cases[i].sentence));
		/* the last occurrence, because brackets repeat earlier names */
		const char *place = cases[i].at ? NULL : text + strlen(text);
		for (const char *p = text; cases[i].at && (p = strstr(p, cases[i].at)); p++)
			place = p;
		if (cases[i].at && cases[i].at[0] == '(')
			place++;
		assert_int_equal(error.position, place - text);
	}
}

TEST(values_are_counted)
{
	char text[4096] = "image: image\n";
	struct schema schema;
	struct schema_error error;

	for (unsigned i = 0; i < 60; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "v%u: value f64\n", i);
	assert_int_equal(schema_parse(text, strlen(text), &schema, &error), 0);
	assert_int_equal(schema.count, SCHEMA_VALUES_MAX);
	strcat(text, "w: value f64\n");
	assert_int_equal(schema_parse(text, strlen(text), &schema, &error), -E2BIG);
	assert_non_null(strstr(error.text, "with label, sample and key"));
	for (unsigned i = 0; i < 3; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "x%u: text\n", i);
	assert_int_equal(schema_parse(text, strlen(text), &schema, &error), -E2BIG);
	assert_int_equal(error.position, strstr(text, "x2") - text);
}

TEST(bytes_come_back)
{
	struct schema schema = parsed(many), again;
	uint8_t bytes[SCHEMA_SIZE_MAX], twice[SCHEMA_SIZE_MAX];
	struct schema_error error;

	schema.values[0].width = 640;
	schema.values[4].longest = 7;
	size_t size = schema_pack(&schema, bytes);
	assert_int_equal(schema_unpack(bytes, size, &again, &error), 0);
	assert_true(schema_equal(&schema, &again));
	assert_int_equal(again.values[0].width, 640);
	assert_int_equal(again.values[4].longest, 7);
	assert_int_equal(schema_pack(&again, twice), size);
	assert_memory_equal(bytes, twice, size);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(schema_unpack(bytes, i, &again, &error), -EBADMSG);
}

/* Offset of a field of a value's record. */
#define RECORD(index, field)                                                                       \
	(sizeof(struct schema_head) + (index) * sizeof(struct schema_record) +                     \
	 offsetof(struct schema_record, field))

TEST(bytes_that_break_a_rule_are_refused)
{
	static const struct {
		size_t at;
		uint8_t byte;
		int r;
	} cases[] = {
		{offsetof(struct schema_head, version), 0, -EBADMSG},
		{offsetof(struct schema_head, version), 2, -ENOTSUP},
		{offsetof(struct schema_head, values), 65, -EBADMSG},
		{offsetof(struct schema_head, values), 17, -EBADMSG},
		{offsetof(struct schema_head, names_size), 1, -EBADMSG},
		{offsetof(struct schema_head, reserved), 1, -EBADMSG},
		{RECORD(4, role), 0, -EBADMSG},
		{RECORD(4, role), SCHEMA_ROLES, -EBADMSG},
		{RECORD(4, element), 0, -EBADMSG},
		{RECORD(4, element), SCHEMA_ELEMENTS, -EBADMSG},
		{RECORD(4, dims), 5, -EBADMSG},
		{RECORD(4, dims), 1, -EBADMSG},
		{RECORD(4, store), 0, -EBADMSG},
		{RECORD(4, store), SCHEMA_STORES, -EBADMSG},
		{RECORD(4, store), SCHEMA_IN_IMAGES, -EBADMSG},
		{RECORD(4, number), 1, -EBADMSG}, /* the number of value 5 */
		{RECORD(4, number) + 1, 1, -EBADMSG},
		{RECORD(3, number), 1, -EBADMSG},
		{RECORD(4, of), 4, -EBADMSG},
		{RECORD(4, of), 5, -EBADMSG},
		{RECORD(4, of) + 1, 0x80, -EBADMSG},
		{RECORD(4, shape) + 4, 0, -EBADMSG},
		{RECORD(4, shape) + 8, 1, -EBADMSG},
		{RECORD(4, format), 0, -EBADMSG},
		{RECORD(4, format), SCHEMA_CXCYWHR, -EBADMSG},
		{RECORD(4, format), 5, -EBADMSG},
		{RECORD(4, flags), 4, -EBADMSG},
		{RECORD(0, flags), 1, -EBADMSG},
		{RECORD(4, name_size), 0, -EBADMSG},
		{RECORD(4, name_size), 64, -EBADMSG},
		{RECORD(4, name_offset), 0, -EBADMSG},
		{RECORD(0, longest), 1, -EBADMSG},
		{RECORD(4, width), 1, -EBADMSG},
		{RECORD(0, height) + 2, 1, -EBADMSG},
		{RECORD(4, reserved), 1, -EBADMSG},
		{RECORD(18, role), 'I', 0}, /* "image", the first name */
		{RECORD(18, role), 0, -EBADMSG},
		{RECORD(18, role), 7, -EBADMSG},
		{RECORD(18, role), 0xff, -EBADMSG},
	};
	struct schema schema = parsed(many), again;
	uint8_t bytes[SCHEMA_SIZE_MAX];
	struct schema_error error;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t size = schema_pack(&schema, bytes);

		assert_int_not_equal(bytes[cases[i].at], cases[i].byte);
		bytes[cases[i].at] = cases[i].byte;
		print_message("byte %zu = %u\n", cases[i].at, cases[i].byte);
		assert_int_equal(schema_unpack(bytes, size, &again, &error), cases[i].r);
	}
}
