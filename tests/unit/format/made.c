#include "tests/unit/format/made.h"

#include "format/base/schema.h"
#include "tests/unit/format/fixture.h"

#include <xxhash.h>

static void fill(uint8_t *bytes, size_t size, const char *name, uint32_t i)
{
	for (size_t k = 0; k < size; k++)
		bytes[k] = (uint8_t)(XXH3_64bits_withSeed(name, strlen(name), i) >> k % 7 * 8);
}

static struct packimg_item make_item(const struct made *made, uint32_t i, uint8_t channels,
				     char source[64])
{
	static uint8_t pixels[16 * 8 * 3];
	struct packimg_item item = {
		.data = pixels,
		.width = 4 + i % 5 + (uint32_t)strlen(made->name) % 3,
		.height = 8,
		.label = made->labels ? (int32_t)i % made->labels : PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_RAW,
		.channels = channels,
		.orientation = 1,
		.source = source,
	};

	item.data_size = item.width * item.height * channels;
	fill(pixels, item.data_size, made->name, i);
	item.source_size = (size_t)snprintf(source, 64, "%s/%u", made->name, i * i);
	return item;
}

static void put_value(struct packimg_writer *writer, const struct made *made,
		      const struct schema_value *value, uint32_t i)
{
	uint8_t bytes[1024];
	struct packimg_value stored = {.present = true, .bytes = bytes};
	uint32_t field;

	fill(bytes, sizeof(bytes), made->name, i);
	if (value->role == SCHEMA_CLASS)
		memset(bytes, 0, sizeof(bytes));
	stored.int64 = value->role == SCHEMA_CLASS ? 0 : bytes[0] % 128;
	stored.float64 = bytes[0] / 4.0;
	if (value->element == SCHEMA_NO_ELEMENT)
		stored.size = (size_t)sprintf((char *)bytes, "\"%s %u\"", made->name, i);
	else
		stored.size = schema_row_size(value) * (schema_has_rows(value) ? i % 3 : 1);
	enum packimg_field_type type =
		value->role == SCHEMA_TEXT                       ? PACKIMG_FIELD_TEXT
		: value->role == SCHEMA_JSON                     ? PACKIMG_FIELD_JSON
		: value->dims > 0 || value->role == SCHEMA_BYTES ? PACKIMG_FIELD_BYTES
		: value->element >= SCHEMA_F64 || value->element == SCHEMA_F32
			? PACKIMG_FIELD_FLOAT64
			: PACKIMG_FIELD_INT64;
	assert_int_equal(packimg_writer_field(writer, value->name, type, &field, &error), 0);
	if (packimg_writer_value(writer, field, &stored, &error) < 0)
		fail_msg("%s", error.text);
}

static void put_sample(struct packimg_writer *writer, const struct made *made,
		       const struct schema *schema, uint32_t i)
{
	char source[64];
	struct packimg_item item = make_item(made, i, 3, source);

	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	for (unsigned v = 0; v < schema->count; v++) {
		const struct schema_value *value = &schema->values[v];

		if ((value->flags & SCHEMA_SPARSE) && i % 2)
			continue;
		if (value->store == SCHEMA_IN_COLUMN)
			put_value(writer, made, value, i);
		if (value->store != SCHEMA_IN_IMAGES)
			continue;
		item = make_item(made, i, 1, source);
		if (packimg_writer_image(writer, value->number, &item, &error) < 0)
			fail_msg("%s", error.text);
	}
}

static void put_classes(struct packimg_writer *writer, const char *list)
{
	char copy[256], *rest = copy;
	const char *names[16];
	uint32_t count = 0;

	snprintf(copy, sizeof(copy), "%s", list);
	while (rest)
		names[count++] = strsep(&rest, ",");
	assert_int_equal(packimg_writer_classes(writer, names, count, &error), 0);
}

struct packimg *make(struct made made)
{
	struct packimg_writer_options options = {.shard_size = made.shard_size};
	double mean[3] = {made.mean, made.mean + 1, made.mean + 2}, std[3] = {made.std, 60, 70};
	struct schema schema = {0};
	struct packimg_writer *writer;
	struct packimg *dataset;
	char name[32];

	snprintf(name, sizeof(name), "%s.pimg", made.name);
	assert_int_equal(packimg_writer_new(path_of(name), &options, &writer, &error), 0);
	if (made.classes)
		put_classes(writer, made.classes);
	if (made.schema) {
		assert_int_equal(schema_parse(made.schema, strlen(made.schema), &schema, NULL), 0);
		assert_int_equal(packimg_writer_schema(writer, made.schema, &error), 0);
	}
	for (uint32_t i = 0; i < made.count; i++)
		put_sample(writer, &made, &schema, i);
	if (made.metadata)
		assert_int_equal(packimg_writer_metadata(writer, "origin", made.metadata, &error),
				 0);
	if (made.mean > 0)
		assert_int_equal(packimg_writer_statistics(writer, mean, std), 0);
	if (packimg_writer_finish(writer, &error) < 0)
		fail_msg("%s", error.text);
	packimg_writer_free(writer);
	if (packimg_open(path_of(name), &dataset, &error) < 0)
		fail_msg("%s", error.text);
	return dataset;
}

struct packimg *reopen(const struct packimg *dataset, bool unmapped)
{
	int fds[64];
	struct packimg *again;
	uint32_t count = packimg_shard_count(dataset);

	for (uint32_t i = 0; i < count; i++) {
		struct packimg_shard shard;
		assert_int_equal(packimg_shard(dataset, i, &shard), 0);
		fds[i] = dup(shard.fd);
	}
	assert_int_equal((unmapped ? packimg_open_unmapped
				   : packimg_open_fds)("again.pimg", fds, count, &again, &error),
			 0);
	return again;
}

struct packimg *make_implied(const char *name, const char *const *fields, uint32_t count)
{
	struct made made = {name, .count = 1};
	struct packimg_writer *writer;
	struct packimg *dataset;
	char file[32], source[64];
	struct packimg_item item = make_item(&made, 0, 3, source);

	snprintf(file, sizeof(file), "%s.pimg", name);
	assert_int_equal(packimg_writer_new(path_of(file), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	for (uint32_t i = 0; i < count; i++) {
		struct packimg_value value = {true, i, i, name, strlen(name)};
		enum packimg_field_type type = (enum packimg_field_type)(fields[i][0] - '0');
		uint32_t field;
		assert_int_equal(packimg_writer_field(writer, fields[i] + 1, type, &field, &error),
				 0);
		assert_int_equal(packimg_writer_value(writer, field, &value, &error), 0);
	}
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of(file), &dataset, &error), 0);
	return dataset;
}
