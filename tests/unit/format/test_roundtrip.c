/*
 * A reader returns what a writer was given: samples, side data, names, fields and metadata, for
 * single files and sets.
 */
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <sys/stat.h>

#define assert_ok(expression)                                                                      \
	do {                                                                                       \
		int r_ = (expression);                                                             \
		if (r_ != 0)                                                                       \
			fail_msg("%s: %d: %s", #expression, r_, error.text);                       \
	} while (0)

/* Makes raw sample i; every property varies from sample to sample. */
static struct packimg_item item_of(uint64_t i, uint8_t **ret_pixels, char source[32],
				   uint8_t side[300])
{
	uint32_t width = 1 + (uint32_t)(i * 7 % 50), height = 1 + (uint32_t)(i * 11 % 40);
	uint8_t channels = i % 3 ? 3 : 1;

	*ret_pixels = image_pixels(width, height, channels, i);
	/* one item of side data of a private kind */
	uint32_t head[2] = {0x80000001, (uint32_t)(i % 280)};
	memset(side, 0, 300);
	memcpy(side, head, sizeof(head));
	memset(side + 8, (int)i, i % 280);
	/* the longest name is neither the first nor the last */
	snprintf(source, 32, i == 7 ? "folder/%llu.png" : "dir/%llu.png", (unsigned long long)i);
	return (struct packimg_item){
		.data = *ret_pixels,
		.data_size = (size_t)width * height * channels,
		.side = side,
		.side_size = i % 4 ? 8 + (i % 280 + 7) / 8 * 8 : 0,
		.width = width,
		.height = height,
		.label = i % 5 ? (int32_t)(i % 7) : PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_RAW,
		.channels = channels,
		.orientation = 1,
		.source = source,
		.source_size = i % 6 ? strlen(source) : 0,
	};
}

static const char *const class_names[] = {"zero", "one", "Zwölf", "", "four", "five", "six"};

enum { FIELDS = 5 };
static const char *const field_names[FIELDS] = {"int", "float", "bytes", "json", "text"};
static const enum packimg_field_type field_types[FIELDS] = {
	PACKIMG_FIELD_INT64, PACKIMG_FIELD_FLOAT64, PACKIMG_FIELD_BYTES, PACKIMG_FIELD_JSON,
	PACKIMG_FIELD_TEXT};

static void put_values(struct packimg_writer *writer, uint64_t i)
{
	char text[64];

	for (uint32_t t = 0; t < FIELDS; t++) {
		uint32_t field;
		/* fields start at different samples and have gaps */
		if (i < t * 30 || i % (t + 2) == 0)
			continue;
		assert_ok(packimg_writer_field(writer, field_names[t], field_types[t], &field,
					       &error));
		snprintf(text, sizeof(text), "[%llu, \"%*s\"]", (unsigned long long)i,
			 (int)(i % 17), "x");
		struct packimg_value value = {.present = true};
		value.int64 = -(int64_t)i * 1000000007;
		value.float64 = (double)i / 3;
		value.bytes = text;
		value.size = i % 7 ? strlen(text) : 0;
		assert_ok(packimg_writer_value(writer, field, &value, &error));
		assert_int_equal(packimg_writer_value(writer, field, &value, &error), -EEXIST);
	}
}

static void write_dataset(const char *path, uint64_t count, uint64_t shard_size)
{
	struct packimg_writer_options options = {.shard_size = shard_size};
	static const double mean[3] = {120.5, 110.25, 99}, std[3] = {60, 61, 62};
	struct packimg_writer *writer;
	char source[32];
	uint8_t side[300];

	assert_ok(packimg_writer_new(path, &options, &writer, &error));
	for (uint64_t i = 0; i < count; i++) {
		uint8_t *pixels;
		struct packimg_item item = item_of(i, &pixels, source, side);
		assert_ok(packimg_writer_add(writer, &item, &error));
		put_values(writer, i);
		free(pixels);
	}
	assert_ok(packimg_writer_classes(writer, class_names, 7, &error));
	assert_ok(packimg_writer_metadata(writer, "tool", "test", &error));
	assert_ok(packimg_writer_metadata(writer, "command", "a\nb\\c", &error));
	assert_ok(packimg_writer_metadata(writer, "tool", "second", &error));
	assert_ok(packimg_writer_statistics(writer, mean, std));
	assert_ok(packimg_writer_finish(writer, &error));
	assert_int_equal(packimg_writer_finish(writer, &error), -EINVAL);
	packimg_writer_free(writer);
}

static void check_values(const struct packimg *dataset, uint64_t i)
{
	char text[64];

	for (uint32_t t = 0; t < packimg_field_count(dataset); t++) {
		struct packimg_value value;
		assert_ok(packimg_value(dataset, i, t, &value));
		assert_int_equal(value.present, !(i < t * 30 || i % (t + 2) == 0));
		if (!value.present) {
			assert_null(value.bytes);
			assert_true(value.int64 == 0 && value.float64 == 0 && value.size == 0);
			continue;
		}
		snprintf(text, sizeof(text), "[%llu, \"%*s\"]", (unsigned long long)i,
			 (int)(i % 17), "x");
		if (t == 0)
			assert_true(value.int64 == -(int64_t)i * 1000000007);
		else if (t == 1)
			assert_true(value.float64 == (double)i / 3);
		else
			assert_int_equal(value.size, i % 7 ? strlen(text) : 0);
		if (t >= 2)
			assert_memory_equal(value.bytes, text, value.size);
	}
}

static void check_sample(const struct packimg *dataset, uint64_t i)
{
	struct packimg_sample sample;
	const char *name;
	size_t name_size;
	char source[32];
	uint8_t side[300], *pixels;
	struct packimg_item item = item_of(i, &pixels, source, side);

	assert_ok(packimg_sample(dataset, i, &sample));
	assert_int_equal(sample.index, i);
	assert_int_equal(sample.data_size, item.data_size);
	assert_memory_equal(sample.data, item.data, item.data_size);
	assert_int_equal((uintptr_t)sample.data % 64, 0);
	assert_int_equal(sample.side_size, item.side_size);
	if (item.side_size > 0)
		assert_memory_equal(sample.side, item.side, item.side_size);
	else
		assert_null(sample.side);
	assert_int_equal(sample.width, item.width);
	assert_int_equal(sample.height, item.height);
	assert_int_equal(sample.label, item.label);
	assert_int_equal(sample.codec, item.codec);
	assert_int_equal(sample.channels, item.channels);
	assert_int_equal(sample.orientation, 1);
	assert_ok(packimg_sample_check(&sample));
	assert_ok(packimg_source(dataset, i, &name, &name_size));
	assert_int_equal(name_size, item.source_size);
	assert_memory_equal(name, source, name_size);
	free(pixels);

	struct packimg_shard shard;
	assert_ok(packimg_shard(dataset, sample.shard, &shard));
	assert_true(i >= shard.sample_first && i - shard.sample_first < shard.sample_count);
	assert_ptr_equal(shard.map + sample.data_offset, sample.data);
}

/* Types are preserved. Maximum lengths cover all shards. */
static void check_fields(const struct packimg *dataset)
{
	uint64_t longest = 0;

	for (uint32_t f = 0; f < packimg_field_count(dataset); f++) {
		struct packimg_field field;
		assert_ok(packimg_field(dataset, f, &field));
		assert_string_equal(field.name, field_names[f]);
		assert_int_equal(field.type, field_types[f]);
		longest = 0;
		for (uint64_t i = 0; i < packimg_count(dataset); i++) {
			struct packimg_value value;
			assert_ok(packimg_value(dataset, i, f, &value));
			longest = value.size > longest ? value.size : longest;
		}
		if (field.type >= PACKIMG_FIELD_BYTES)
			assert_int_equal(field.longest, longest);
	}
	longest = 0;
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		const char *name;
		size_t size;
		assert_ok(packimg_source(dataset, i, &name, &size));
		longest = size > longest ? size : longest;
	}
	if (longest > 0)
		assert_int_equal(packimg_source_longest(dataset), longest);
}

static void check_dataset(const char *path, uint64_t count)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	double mean[3], std[3];

	assert_ok(packimg_open(path, &dataset, &error));
	assert_int_equal(packimg_count(dataset), count);
	assert_ok(packimg_check(dataset, &error));
	for (uint64_t i = 0; i < count; i++) {
		check_sample(dataset, i);
		check_values(dataset, i);
	}
	check_fields(dataset);
	assert_int_equal(packimg_sample(dataset, count, &sample), -ERANGE);
	assert_int_equal(packimg_class_count(dataset), 7);
	for (uint32_t i = 0; i < 7; i++)
		assert_string_equal(packimg_class_name(dataset, i), class_names[i]);
	assert_null(packimg_class_name(dataset, 7));
	assert_string_equal(packimg_metadata(dataset), "command=a\\nb\\\\c\ntool=second\n");
	assert_ok(packimg_statistics(dataset, mean, std));
	assert_true(mean[0] == 120.5 && mean[1] == 110.25 && mean[2] == 99);
	assert_true(std[0] == 60 && std[1] == 61 && std[2] == 62);
	packimg_close(dataset);
}

TEST(single)
{
	static const uint64_t counts[] = {1, 7, 8, 63, 64, 65, 500};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		write_dataset(path_of("single.pimg"), counts[i], 0);
		check_dataset(path_of("single.pimg"), counts[i]);
	}
	assert_int_equal(remove(path_of("single.pimg")), 0);
}

TEST(set)
{
	char first[64], path[4200];
	struct packimg *dataset;

	write_dataset(path_of("many.pimg"), 500, 100000);
	check_dataset(path_of("many.pimg"), 500);
	check_dataset(directory, 500);
	assert_ok(packimg_open(directory, &dataset, &error));
	uint32_t shards = packimg_shard_count(dataset);
	packimg_close(dataset);
	assert_true(shards > 5);
	snprintf(first, sizeof(first), "many-%05u-of-%05u.pimg", shards - 1, shards);
	check_dataset(path_of(first), 500);

	/* one shard is missing */
	snprintf(first, sizeof(first), "many-%05u-of-%05u.pimg", 2, shards);
	snprintf(path, sizeof(path), "%s.away", path_of(first));
	assert_int_equal(rename(path_of(first), path), 0);
	assert_int_equal(packimg_open(directory, &dataset, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "missing"));
	assert_int_equal(rename(path, path_of(first)), 0);
	check_dataset(directory, 500);
	for (uint32_t i = 0; i < shards; i++) {
		snprintf(first, sizeof(first), "many-%05u-of-%05u.pimg", i, shards);
		assert_int_equal(remove(path_of(first)), 0);
	}
}

TEST(empty)
{
	struct packimg_writer *writer;
	struct packimg *dataset;
	struct packimg_sample sample;
	double mean[3], std[3];

	assert_ok(packimg_writer_new(path_of("empty.pimg"), NULL, &writer, &error));
	assert_ok(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
	assert_ok(packimg_open(path_of("empty.pimg"), &dataset, &error));
	assert_ok(packimg_check(dataset, &error));
	assert_int_equal(packimg_count(dataset), 0);
	assert_int_equal(packimg_sample(dataset, 0, &sample), -ERANGE);
	assert_string_equal(packimg_metadata(dataset), "");
	assert_int_equal(packimg_statistics(dataset, mean, std), -ENODATA);
	packimg_close(dataset);
	remove(path_of("empty.pimg"));
}

TEST_MAIN(directory_setup, directory_teardown)
