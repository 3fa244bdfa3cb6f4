#include "tests/unit/format/where_dataset.h"

#include "format/packimg.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SIDE_MAX = 512,
	SHARD_SIZE = 1 << 16, /* bytes; makes several shards */
	LONG_TEXT = 10000,    /* bytes */
	ROWS_MAX = 1100,      /* of polygons */
};

static const char schema[] = "image: image\n"
			     "mask: mask(image) u8[h,w] sparse\n"
			     "boxes: boxes(image) f32[*,4] sparse\n"
			     "outlines: polygons(boxes) f32[*,2] sparse\n"
			     "species: class i32 sparse\n"
			     "score: value f64 sparse\n"
			     "id: value i64\n"
			     "hash: value u64\n"
			     "target: value f32[2]\n"
			     "caption: text sparse\n"
			     "info: json sparse\n"
			     "blob: bytes sparse\n"
			     "\"my size\": value i32\n"
			     "zZ9.x: value i32\n"
			     "\"a`b\\\\c\": value i32\n"
			     "half: value f16\n"
			     "brain: value bf16\n"
			     "single: value f32\n";

#define ABSENT    (-9.25) /* of a score */
#define NO_NUMBER INT32_MIN

static const struct {
	uint32_t width, height;
	int32_t label, species;
	const char *key, *caption, *info, *blob;
	double score;
	int64_t id;
	uint64_t hash;
	int boxes;            /* -1: absent */
	const char *outlines; /* v: a vertex, V: 1023 of them, |: a row that ends a polygon */
} rows[WHERE_SAMPLES] = {
	{100, 50, 0, 0, "train/0.jpg", "a cat", "{\"a\":1}", "123", 0.5, (1LL << 53), UINT64_MAX, 2,
	 "vvv|||"},
	{200, 60, 1, 2, "train/1.jpg", NULL, NULL, NULL, ABSENT, (1LL << 53) + 1, 1ULL << 63, 0,
	 ""},
	{300, 70, 2, NO_NUMBER, "val/\xc3\xa9t\xc3\xa9.jpg", "", NULL, NULL, NAN, -1, 5, -1, NULL},
	{200, 80, PACKIMG_LABEL_NONE, 1, "", "it's 100%*", "null", NULL, INFINITY, INT64_MAX, 0, 1,
	 "V||"},
	{50, 90, 1, -1, "val/b", "long", NULL, NULL, -2.5, INT64_MIN, 1, 3, "|||"},
	{201, 10, 0, 2, "train/sub/5.png", "\xc3\x89t\xc3\xa9", NULL, "", 1e300, 7, UINT64_MAX - 1,
	 -1, NULL},
};

static void check(int r, const struct packimg_error *error)
{
	if (r < 0) {
		fprintf(stderr, "%s\n", error->text);
		abort();
	}
}

static void set(struct packimg_writer *writer, const char *name, enum packimg_field_type type,
		struct packimg_value value)
{
	struct packimg_error error;
	uint32_t field;

	check(packimg_writer_field(writer, name, type, &field, &error), &error);
	value.present = true;
	check(packimg_writer_value(writer, field, &value, &error), &error);
}

static void set_integer(struct packimg_writer *writer, const char *name, int64_t number)
{
	set(writer, name, PACKIMG_FIELD_INT64, (struct packimg_value){.int64 = number});
}

static void set_real(struct packimg_writer *writer, const char *name, double number)
{
	set(writer, name, PACKIMG_FIELD_FLOAT64, (struct packimg_value){.float64 = number});
}

static void set_text(struct packimg_writer *writer, const char *name, enum packimg_field_type type,
		     const char *text)
{
	if (text)
		set(writer, name, type,
		    (struct packimg_value){.bytes = text, .size = strlen(text)});
}

static void set_caption(struct packimg_writer *writer, const char *caption)
{
	static char text[LONG_TEXT + 1];

	if (caption && strcmp(caption, "long") == 0) {
		memset(text, 'x', LONG_TEXT - 1);
		text[LONG_TEXT - 1] = 'y';
		caption = text;
	}
	set_text(writer, "caption", PACKIMG_FIELD_TEXT, caption);
}

static void set_objects(struct packimg_writer *writer, int count, const char *outlines)
{
	static const float boxes[4][4];
	static float points[ROWS_MAX][2];
	size_t used = 0;

	if (count < 0)
		return;
	set(writer, "boxes", PACKIMG_FIELD_BYTES,
	    (struct packimg_value){.bytes = boxes, .size = (size_t)count * sizeof(boxes[0])});
	for (; *outlines; outlines++)
		for (int i = 0; i < (*outlines == 'V' ? 1023 : 1); i++)
			points[used++][0] = *outlines == '|' ? NAN : 1;
	set(writer, "outlines", PACKIMG_FIELD_BYTES,
	    (struct packimg_value){.bytes = points, .size = used * sizeof(points[0])});
}

static void set_values(struct packimg_writer *writer, int i)
{
	static const float target[2];

	if (rows[i].species != NO_NUMBER)
		set_integer(writer, "species", rows[i].species);
	if (rows[i].score != ABSENT) /* NOLINT(clang-diagnostic-float-equal) */
		set_real(writer, "score", rows[i].score);
	set_integer(writer, "id", rows[i].id);
	set_integer(writer, "hash", (int64_t)rows[i].hash);
	set_integer(writer, "my size", i * 10);
	set_integer(writer, "zZ9.x", i);
	set_integer(writer, "a`b\\c", i);
	set_real(writer, "half", i * 0.5);
	set_real(writer, "brain", i * 0.5);
	set_real(writer, "single", i * 0.5);
	set(writer, "target", PACKIMG_FIELD_BYTES,
	    (struct packimg_value){.bytes = target, .size = sizeof(target)});
	set_caption(writer, rows[i].caption);
	set_text(writer, "info", PACKIMG_FIELD_JSON, rows[i].info);
	set_text(writer, "blob", PACKIMG_FIELD_BYTES, rows[i].blob);
	set_objects(writer, rows[i].boxes, rows[i].outlines);
}

static struct packimg_item image_item(int i, uint8_t channels)
{
	static const uint8_t pixels[SIDE_MAX * SIDE_MAX];

	return (struct packimg_item){
		.data = pixels,
		.data_size = (size_t)rows[i].width * rows[i].height * channels,
		.width = rows[i].width,
		.height = rows[i].height,
		.label = rows[i].label,
		.codec = PACKIMG_CODEC_RAW,
		.channels = channels,
		.orientation = 1,
		.source = rows[i].key,
		.source_size = strlen(rows[i].key),
	};
}

/* Even samples have a mask. */
void where_dataset_write(const char *path)
{
	const struct packimg_writer_options options = {.shard_size = SHARD_SIZE};
	static const char *const classes[] = {"cat", "dog", "bird's \"x\""};
	struct packimg_writer *writer;
	struct packimg_error error;

	check(packimg_writer_new(path, &options, &writer, &error), &error);
	check(packimg_writer_classes(writer, classes, 3, &error), &error);
	check(packimg_writer_schema(writer, schema, &error), &error);
	for (int i = 0; i < WHERE_SAMPLES; i++) {
		struct packimg_item image = image_item(i, 3), mask = image_item(i, 1);

		check(packimg_writer_add(writer, &image, &error), &error);
		set_values(writer, i);
		if (i % 2 == 0)
			check(packimg_writer_image(writer, 0, &mask, &error), &error);
	}
	check(packimg_writer_finish(writer, &error), &error);
	packimg_writer_free(writer);
}
