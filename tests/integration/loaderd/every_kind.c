#include "tests/integration/loaderd/every_kind.h"

#include "format/base/schema.h"
#include "tests/dataset.h"
#include "tests/test.h"

enum {
	WIDTH_MAX = 64,
	HEIGHT_MAX = 48,
	CHANNELS_MAX = 3,
	SIZE_MAX_BYTES = 512, /* bound of a value stored in a column */
};

/* The schema. every_kind_names[] lists its names, in another order. */
static const char schema_text[] = "image: image u8[h,w,3]\n"
				  "right: image u8[h,w,3]\n"
				  "twin: image(image) u8[h,w,3] sparse\n"
				  "mask_u8: mask(image) u8[h,w]\n"
				  "mask_u16: mask(image) u16[h,w]\n"
				  "mask_i16: mask(image) i16[h,w] sparse\n"
				  "mask_i32: mask(image) i32[h,w,2]\n"
				  "raster_u8: raster(image) u8[h,w,3]\n"
				  "raster_u16: raster(image) u16[h,w]\n"
				  "raster_i16: raster(image) i16[h,w]\n"
				  "raster_i32: raster(image) i32[h,w]\n"
				  "raster_f32: raster(image) f32[h,w,2] sparse\n"
				  "alone: raster f32[h,w]\n"
				  "xyxy: boxes(image) f32[*,4] xyxy\n"
				  "xywh: boxes(image) f32[*,4] xywh normalized\n"
				  "cxcywh: boxes(alone) f32[2,4] cxcywh\n"
				  "class: class(xyxy) i64[*]\n"
				  "ids: value(xyxy) i32[*,2]\n"
				  "joints: keypoints(xyxy) f32[*,3,3] xyv\n"
				  "points: keypoints(image) f32[5,2] xy\n"
				  "outline: polygons(image) f32[*,2] xy sparse\n"
				  "tags: class i32[*] sparse\n"
				  "list_u8: value u8[*,5]\n"
				  "list_f16: value f16[*]\n"
				  "list_f64: value f64[*,2,2] sparse\n"
				  "vector_f32: value f32[7]\n"
				  "vector_bf16: value bf16[2,3]\n"
				  "vector_u64: value u64[3] sparse\n"
				  "number_u8: value u8\n"
				  "number_u16: value u16\n"
				  "number_i16: value i16\n"
				  "number_i32: value i32\n"
				  "number_i64: value i64 sparse\n"
				  "number_u64: value u64\n"
				  "number_f16: value f16\n"
				  "number_bf16: value bf16\n"
				  "number_f32: value f32\n"
				  "number_f64: value f64 sparse\n"
				  "text: text\n"
				  "bytes: bytes sparse\n"
				  "json: json\n"
				  "turned: boxes(image) f32[*,5] cxcywhr\n";

const char *const every_kind_names[] = {
	"right",      "twin",        "mask_u8",    "mask_u16",   "mask_i16",    "mask_i32",
	"raster_u8",  "raster_u16",  "raster_i16", "raster_i32", "raster_f32",  "alone",
	"xyxy",       "xywh",        "cxcywh",     "class",      "ids",         "joints",
	"points",     "outline",     "tags",       "list_u8",    "list_f16",    "list_f64",
	"vector_f32", "vector_bf16", "vector_u64", "number_u8",  "number_u16",  "number_i16",
	"number_i32", "number_i64",  "number_u64", "number_f16", "number_bf16", "number_f32",
	"number_f64", "text",        "bytes",      "json",       "turned",      "key",
};

uint32_t every_kind_count(void)
{
	return sizeof(every_kind_names) / sizeof(*every_kind_names);
}

/* Returns a random number that depends only on its arguments. */
static uint32_t hash(uint64_t a, uint64_t b)
{
	uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b + 1;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(x >> 32);
}

static bool missing(const struct schema_value *value, unsigned number, uint64_t i)
{
	return (value->flags & SCHEMA_SPARSE) && hash(i, 1000 + number) % 3 == 0;
}

static uint32_t width_of(uint64_t i)
{
	return 40 + hash(i, 1) % (WIDTH_MAX - 40);
}

static uint32_t height_of(uint64_t i)
{
	return 30 + hash(i, 2) % (HEIGHT_MAX - 30);
}

/* Fills `count` elements of a picture: a gradient with noise, in a range that suits the type. */
static void fill_elements(void *to, enum schema_element element, uint32_t count, uint64_t seed)
{
	const size_t size = schema_element_size(element);
	for (uint32_t k = 0; k < count; k++) {
		int32_t number = (int32_t)(hash(seed, k) % 200 + k % 50);
		float real = (float)number / 8 - 10;
		if (element == SCHEMA_I16 || element == SCHEMA_I32)
			number = number * 97 - 5000;
		if (element == SCHEMA_F32)
			memcpy((uint8_t *)to + k * size, &real, size);
		else /* the low bytes of a little-endian number */
			memcpy((uint8_t *)to + k * size, &number, size);
	}
}

/* Adds a further image, mask or raster to sample i. `number` is its index in the schema. */
static void add_picture(struct test_dataset *data, const struct schema *schema, unsigned number,
			uint64_t i)
{
	static int32_t pixels[WIDTH_MAX * HEIGHT_MAX * CHANNELS_MAX];
	const struct schema_value *value = &schema->values[number];
	const uint32_t channels = value->dims == 3 ? value->shape[2] : 1;
	const bool framed = value->of != SCHEMA_OF_NONE;
	const uint32_t width = width_of(framed ? i : i + 7), height = height_of(framed ? i : i + 7);
	const size_t pixel = channels * schema_element_size(value->element);
	struct packimg_error error;
	struct packimg_item item = test_item(pixels, width, height);
	fill_elements(pixels, value->element, width * height * channels, i * 64 + number);
	const struct packimg_raster raster = {
		.data = (const uint8_t *)pixels,
		.step_x = (ptrdiff_t)pixel,
		.step_y = (ptrdiff_t)(width * pixel),
		.width = width,
		.height = height,
		.channels = channels,
		.element = (enum packimg_element)value->element,
	};
	const struct packimg_raster_coding coding = {
		.method = PACKIMG_RASTER_BEST, .level = 1, .rows_log2 = number % 5};
	if (schema_is_rgb(value) && number % 2 == 0) {
		test_item_to_jpeg(data, &item, 80);
	} else if (!schema_is_rgb(value)) {
		item.codec = PACKIMG_CODEC_RASTER;
		item.channels = (uint8_t)channels;
		assert_int_equal(packimg_encode_raster(data->encoder, &raster, &coding, &item.data,
						       &item.data_size, &error),
				 0);
	}
	if (packimg_writer_image(data->writer, value->number, &item, &error) < 0)
		fail_msg("%s: %s", value->name, error.text);
}

/*
 * Fills coordinates of rows. Boxes have ordered edges and sides below 20 pixels; some lie partly
 * outside the image.
 */
static void fill_coordinates(const struct schema_value *value, float *to, size_t count,
			     uint64_t seed)
{
	const float scale = value->flags & SCHEMA_NORMALIZED ? 1.0F / 64 : 1;
	for (size_t k = 0; k < count; k++)
		to[k] = (float)(hash(seed, k) % 320) / 8 * scale;
	if (value->role == SCHEMA_BOXES && value->format == SCHEMA_XYXY)
		for (size_t k = 0; k + 3 < count; k += 4) {
			to[k + 2] = to[k] + (float)(hash(seed, k + 2) % 20);
			to[k + 3] = to[k + 1] + (float)(hash(seed, k + 3) % 20);
		}
}

/* Makes the bytes of a value that is stored in a column. Returns their number. */
static size_t fill_bytes(const struct schema *schema, unsigned number, uint64_t i, uint8_t *to)
{
	const struct schema_value *value = &schema->values[number];
	/* values that belong to the same rows have equal numbers of rows */
	const int owner = schema_rows(schema, number);
	const uint64_t seed = i * 64 + number;
	size_t rows = owner < 0 ? 1 : hash(i, 2000 + (unsigned)owner) % 5;
	switch (value->role) {
	case SCHEMA_TEXT:
		rows = hash(i, 3) % 40;
		for (size_t k = 0; k < rows; k++)
			memcpy(to + 2 * k, "\xc3\xa9", 2);
		return 2 * rows;
	case SCHEMA_JSON:
		return (size_t)sprintf((char *)to, "{\"n\": [%u]}", hash(i, 4) >> (i % 32));
	case SCHEMA_BYTES:
		rows = hash(i, 5) % 300;
		break;
	default:
		rows *= schema_row_size(value);
	}
	if (value->role == SCHEMA_BOXES || value->role == SCHEMA_KEYPOINTS ||
	    value->role == SCHEMA_POLYGONS) {
		fill_coordinates(value, (float *)to, rows / sizeof(float), seed);
		return rows;
	}
	assert_true(rows <= SIZE_MAX_BYTES);
	/* Class numbers are below 256, so only the lowest byte is set. */
	const size_t element =
		value->role == SCHEMA_CLASS ? schema_element_size(value->element) : 1;
	for (size_t k = 0; k < rows; k++)
		to[k] = k % element == 0 ? (uint8_t)hash(seed, k) : 0;
	return rows;
}

static void add_column(struct packimg_writer *writer, const struct schema *schema, unsigned number,
		       uint64_t i)
{
	static union {
		uint8_t bytes[SIZE_MAX_BYTES];
		float numbers[SIZE_MAX_BYTES / 4];
	} buffer;
	const struct schema_value *from = &schema->values[number];
	struct packimg_value value = {.present = true, .bytes = buffer.bytes};
	enum packimg_field_type type = from->role == SCHEMA_TEXT   ? PACKIMG_FIELD_TEXT
				       : from->role == SCHEMA_JSON ? PACKIMG_FIELD_JSON
								   : PACKIMG_FIELD_BYTES;
	struct packimg_error error;
	uint32_t field;
	if (from->dims == 0 && from->element != SCHEMA_NO_ELEMENT) {
		bool real = from->element == SCHEMA_F16 || from->element == SCHEMA_BF16 ||
			    from->element == SCHEMA_F32 || from->element == SCHEMA_F64;
		type = real ? PACKIMG_FIELD_FLOAT64 : PACKIMG_FIELD_INT64;
		value.int64 = hash(i, number) % 256;
		value.float64 = (double)(int32_t)hash(i, number) / 65536;
	} else {
		value.size = fill_bytes(schema, number, i, buffer.bytes);
	}
	assert_int_equal(packimg_writer_field(writer, from->name, type, &field, &error), 0);
	if (packimg_writer_value(writer, field, &value, &error) < 0)
		fail_msg("%s: %s", from->name, error.text);
}

void every_kind_write(const char *path)
{
	static uint8_t pixels[WIDTH_MAX * HEIGHT_MAX * 3];
	struct packimg_error error;
	struct test_dataset data;
	struct schema schema;
	char source[32];
	assert_int_equal(schema_parse(schema_text, strlen(schema_text), &schema, NULL), 0);
	test_dataset_begin(&data, path, 0);
	if (packimg_writer_schema(data.writer, schema_text, &error) < 0)
		fail_msg("%s", error.text);
	for (uint64_t i = 0; i < EVERY_KIND_SAMPLES; i++) {
		fill_elements(pixels, SCHEMA_U8, width_of(i) * height_of(i) * 3, i);
		struct packimg_item item = test_item(pixels, width_of(i), height_of(i));
		if (i % 3 != 0)
			test_item_to_jpeg(&data, &item, 90);
		item.label = (int32_t)(i % 7) - 1;
		item.source = source;
		item.source_size =
			(size_t)sprintf(source, "folder/%llu.png", (unsigned long long)i);
		test_dataset_add(&data, &item);
		for (unsigned v = 0; v < schema.count; v++) {
			if (missing(&schema.values[v], v, i))
				continue;
			if (schema.values[v].store == SCHEMA_IN_IMAGES)
				add_picture(&data, &schema, v, i);
			else if (schema.values[v].store == SCHEMA_IN_COLUMN)
				add_column(data.writer, &schema, v, i);
		}
	}
	test_dataset_finish(&data);
}
