/*
 * Values of the schema from file to client, in rings of version 2: each sample gets its own values,
 * whole, for any number of threads and after resuming at any batch. In a dataset without a schema,
 * the fields are the values.
 */
#include "format/layout.h"
#include "format/packimg.h"
#include "proto/framing.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	SAMPLES = 96,
	SIDE = 8,
	LONG = 37, /* the sample with the longest caption */
	LONG_SIZE = 500,
	VALUE_MAX = LONG_SIZE,
	NUMBERS = 50, /* number of further fields, of numbers */
};

enum { CAPTION, BLOB, NOTE, RARE, COUNT, HALF, FIELDS };
static const char *const names[FIELDS + 2] = {"caption", "blob", "note", "rare",
					      "count",   "half", "key",  NULL};
static const enum packimg_field_type types[FIELDS] = {PACKIMG_FIELD_TEXT,  PACKIMG_FIELD_BYTES,
						      PACKIMG_FIELD_JSON,  PACKIMG_FIELD_TEXT,
						      PACKIMG_FIELD_INT64, PACKIMG_FIELD_FLOAT64};

static char folder[FIXTURE_FOLDER_MAX];

/*
 * Writes the bytes of sample i in a field to text. Returns their number; -1 if the value is
 * missing. FIELDS stands for the source name.
 */
static int value_of(uint32_t field, uint64_t i, char *text)
{
	switch (field) {
	case CAPTION:
		memset(text, 'a' + (int)(i % 26), LONG_SIZE);
		return i == LONG ? LONG_SIZE : (int)(i % 40);
	case BLOB:
		for (uint64_t k = 0; k < i * 7 % 301; k++)
			text[k] = (char)(i + k);
		return (int)(i * 7 % 301);
	case NOTE:
		return sprintf(text, "[%llu]", (unsigned long long)i);
	case RARE:
		return i == 50 ? sprintf(text, "abc") : -1;
	default:
		return sprintf(text, "folder/image-%llu.png", (unsigned long long)i);
	}
}

static struct packimg_value stored_value(uint32_t field, uint64_t i, char *text)
{
	struct packimg_value value = {.present = true, .bytes = text};
	if (field >= COUNT && field != FIELDS) {
		value.int64 = -(int64_t)i * 3;
		value.float64 = (double)i / 2;
		value.present = field != HALF || i % 3 != 0;
		return value;
	}
	int size = value_of(field, i, text);
	value.present = size >= 0;
	value.size = size < 0 ? 0 : (size_t)size;
	return value;
}

/* Writes a dataset of raw images; every byte of an image is the sample's number. */
static const char *dataset(const char *name, uint32_t numbers)
{
	static char path[PATH_MAX], text[VALUE_MAX + 1], source[64];
	struct packimg_error error;
	struct test_dataset data;
	uint32_t fields[FIELDS + NUMBERS];
	snprintf(path, sizeof(path), "%s/%s.pimg", folder, name);
	test_dataset_begin(&data, path, 0);
	for (uint32_t f = 0; f < FIELDS + numbers; f++) {
		char number[24];
		snprintf(number, sizeof(number), "number%u", f);
		assert_int_equal(packimg_writer_field(data.writer, f < FIELDS ? names[f] : number,
						      f < FIELDS ? types[f] : PACKIMG_FIELD_INT64,
						      &fields[f], &error),
				 0);
	}
	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint8_t pixels[SIDE * SIDE * 3];
		memset(pixels, (int)i, sizeof(pixels));
		struct packimg_item item = test_item(pixels, SIDE, SIDE);
		item.label = (int32_t)i % 5;
		item.source = source;
		item.source_size = (size_t)value_of(FIELDS, i, source);
		test_dataset_add(&data, &item);
		for (uint32_t f = 0; f < FIELDS + numbers; f++) {
			struct packimg_value value = stored_value(f < FIELDS ? f : COUNT, i, text);
			assert_int_equal(
				packimg_writer_value(data.writer, fields[f], &value, &error), 0);
		}
	}
	test_dataset_finish(&data);
	return path;
}

/* Writes a dataset of one sample with one field. The file has the field's name. */
static const char *dataset_of_one(const char *name, enum packimg_field_type type,
				  const struct packimg_value *value)
{
	static char path[PATH_MAX];
	const uint8_t pixels[SIDE * SIDE * 3] = {0};
	const struct packimg_item item = test_item(pixels, SIDE, SIDE);
	struct packimg_error error;
	struct test_dataset data;
	uint32_t field;
	snprintf(path, sizeof(path), "%s/%s.pimg", folder, name);
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_field(data.writer, name, type, &field, &error), 0);
	test_dataset_add(&data, &item);
	assert_int_equal(packimg_writer_value(data.writer, field, value, &error), 0);
	test_dataset_finish(&data);
	return path;
}

static void too_short(struct pimg_section *section, struct pimg_field_stats *stats)
{
	stats[CAPTION].longest = 30;
}

static struct feed_options options_of(const struct fixture *fixture, const char *path)
{
	struct feed_options options = fixture_options(fixture, path, "");
	options.values = names;
	options.value_count = FIELDS + 1;
	options.epoch_end = 1;
	return options;
}

static void refused(const struct feed_options *options, int expected, const char *part)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed *feed;
	int r = feed_open(options, &feed, error);
	if (r != expected || !strstr(error, part))
		fail_msg("expected %d and \"%s\", got %d and \"%s\"", expected, part, r, error);
}

/* Checks the value of sample i of a batch, and returns its expected flags. */
static unsigned check_value(struct feed *feed, const struct feed_batch *batch, uint32_t field,
			    uint32_t i)
{
	char text[VALUE_MAX + 1];
	struct feed_section section = fixture_section(feed, batch, names[field]);
	struct packimg_value expected = stored_value(field, batch->samples[i], text);
	if (field == COUNT)
		assert_int_equal(((const int64_t *)section.data)[i], expected.int64);
	if (field == HALF)
		assert_true(((const double *)section.data)[i] ==
			    (expected.present ? expected.float64 : 0));
	if (section.kind == FEED_RAGGED) {
		const void *bytes;
		assert_int_equal(feed_rows(&section, i, &bytes), expected.size);
		assert_memory_equal(bytes, text, expected.size);
	}
	return expected.present ? 0 : FEED_SAMPLE_FIELD_MISSING;
}

static void check_batch(struct feed *feed, const struct feed_batch *batch, uint32_t count)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		unsigned flags = 0;
		for (uint32_t f = 0; f < count; f++)
			flags |= check_value(feed, batch, f, i);
		assert_int_equal(batch->flags[i] & ~FEED_SAMPLE_SUBSTITUTED, flags);
		assert_int_equal(batch->labels[i], batch->samples[i] % 5);
		assert_int_equal(
			((const uint8_t *)batch->images)[i * batch->image_bytes / batch->count],
			batch->samples[i]);
	}
}

/* Checks all batches of one epoch. Returns the number of samples. */
static unsigned check_feed(const struct feed_options *options)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned samples = 0;
	int r;
	struct feed *feed = fixture_open(options);
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		samples += batch.count;
		check_batch(feed, &batch, options->value_count);
		feed_release(feed, &batch);
	}
	assert_int_equal(r, FEED_END);
	feed_close(feed);
	return samples;
}

/* Adds all sections of a batch to the hash, sample by sample. */
static void hash_samples(XXH3_state_t *state, struct feed *feed, const struct feed_batch *batch)
{
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	for (uint32_t i = 0; i < batch->count; i++)
		for (uint32_t s = 0; s < info.section_count; s++) {
			struct feed_section section = {.size = sizeof(section)};
			assert_int_equal(feed_section(feed, batch, s, &section), 0);
			size_t size = section.bytes / batch->count;
			const void *value = (const char *)section.data + i * size;
			if (section.kind == FEED_RAGGED) {
				int64_t rows = feed_rows(&section, i, &value);
				assert_true(rows >= 0);
				size = (size_t)rows * section.row;
			}
			XXH3_64bits_update(state, &size, sizeof(size));
			XXH3_64bits_update(state, value, size);
		}
}

/* Returns a hash of the samples of the next `batches` batches. */
static uint64_t hash_feed(struct feed *feed, unsigned batches)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	XXH3_state_t *state = XXH3_createState();
	XXH3_64bits_reset(state);
	for (unsigned b = 0; b < batches; b++) {
		int r = feed_next(feed, 60000, &batch);
		if (r != 0)
			fail_msg("feed_next: %d (%s)", r, feed_error(feed));
		hash_samples(state, feed, &batch);
		feed_release(feed, &batch);
	}
	uint64_t hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return hash;
}

static uint64_t hash_of(const struct feed_options *options, unsigned batches)
{
	struct feed *feed = fixture_open(options);
	uint64_t hash = hash_feed(feed, batches);
	feed_close(feed);
	return hash;
}

TEST(values_arrive_whole)
{
	static const struct {
		const char *name, *line;
		uint32_t role, element, kind;
	} expected[] = {
		{"image", "image: image u8[h,w,3]", FEED_ROLE_IMAGE, FEED_U8, FEED_DENSE},
		{"label", "label: class i32", FEED_ROLE_CLASS, FEED_I32, FEED_DENSE},
		{"sample", "sample: number u64", FEED_ROLE_NUMBER, FEED_U64, FEED_DENSE},
		{"flags", "", FEED_ROLE_NONE, FEED_U8, FEED_DENSE},
		{"caption", "caption: text sparse", FEED_ROLE_TEXT, 0, FEED_RAGGED},
		{"blob", "blob: bytes sparse", FEED_ROLE_BYTES, 0, FEED_RAGGED},
		{"note", "note: json sparse", FEED_ROLE_JSON, 0, FEED_RAGGED},
		{"rare", "rare: text sparse", FEED_ROLE_TEXT, 0, FEED_RAGGED},
		{"count", "count: value i64 sparse", FEED_ROLE_VALUE, FEED_I64, FEED_DENSE},
		{"half", "half: value f64 sparse", FEED_ROLE_VALUE, FEED_F64, FEED_DENSE},
		{"key", "key: key", FEED_ROLE_KEY, 0, FEED_RAGGED},
	};
	struct fixture *fixture = *state;
	struct feed_info info = {.size = sizeof(info)};
	struct feed_options options = options_of(fixture, dataset("plain", 0));
	fixture_start(fixture, NULL, NULL);
	assert_int_equal(check_feed(&options), SAMPLES);
	struct feed *feed = fixture_open(&options);
	feed_info(feed, &info);
	assert_int_equal(info.section_count, sizeof(expected) / sizeof(*expected));
	for (uint32_t s = 0; s < info.section_count; s++) {
		struct feed_section section = {.size = sizeof(section)};
		assert_int_equal(feed_section(feed, NULL, s, &section), 0);
		assert_string_equal(section.name, expected[s].name);
		assert_string_equal(section.schema, expected[s].line);
		assert_int_equal(section.role, expected[s].role);
		assert_int_equal(section.element, expected[s].element);
		assert_int_equal(section.kind, expected[s].kind);
		assert_null(section.data);
	}
	struct feed_section section = {.size = sizeof(section)};
	assert_int_equal(feed_section(feed, NULL, info.section_count, &section), -EINVAL);
	assert_int_equal(feed_section_find(feed, "blub"), -ENOENT);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(more_values_than_sixteen)
{
	static char text[FIELDS + NUMBERS][24];
	const char *many[FIELDS + NUMBERS];
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("many", NUMBERS));
	struct feed_batch batch = {.size = sizeof(batch)};
	for (uint32_t f = 0; f < FIELDS + NUMBERS; f++) {
		snprintf(text[f], sizeof(text[f]), "number%u", f);
		many[f] = f < FIELDS ? names[f] : text[f];
	}
	options.values = many;
	options.value_count = FIELDS + NUMBERS;
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	for (uint32_t f = FIELDS; f < FIELDS + NUMBERS; f++) {
		struct feed_section section = fixture_section(feed, &batch, many[f]);
		for (uint32_t i = 0; i < batch.count; i++)
			assert_int_equal(((const int64_t *)section.data)[i],
					 -(int64_t)batch.samples[i] * 3);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	fixture_start(fixture, NULL, "--limit", "fields=20", NULL);
	refused(&options, -EDQUOT, "asked for 56 values, but the daemon's limit is 20");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* A sample has the same values in a batch of one as in a larger batch. */
TEST(batches_of_one_have_the_same_values)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("one", 0));
	fixture_start(fixture, NULL, NULL);
	uint64_t hash = hash_of(&options, SAMPLES / options.batch_size);
	options.batch_size = 1;
	assert_int_equal(hash_of(&options, SAMPLES), hash);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Clients of the previous protocol version get the same images in the same order. */
TEST(version_three_has_the_same_images)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("versions", 0));
	fixture_start(fixture, NULL, NULL);
	struct feed *values = fixture_open(&options);
	options.value_count = 0;
	options.fields = names;
	options.field_count = 4;
	struct feed *fields = fixture_open(&options);
	options.field_count = 0;
	struct feed *plain = fixture_open(&options);
	for (unsigned b = 0; b < SAMPLES / options.batch_size; b++) {
		struct feed_batch a = {.size = sizeof(a)}, c = {.size = sizeof(c)};
		struct feed_batch d = {.size = sizeof(d)};
		assert_int_equal(feed_next(values, 60000, &a), 0);
		if (feed_next(fields, 60000, &c) != 0)
			fail_msg("%s", feed_error(fields));
		assert_int_equal(feed_next(plain, 60000, &d), 0);
		assert_int_equal(a.image_bytes, c.image_bytes);
		assert_int_equal(a.image_bytes, d.image_bytes);
		assert_memory_equal(a.images, c.images, a.image_bytes);
		assert_memory_equal(a.images, d.images, a.image_bytes);
		assert_memory_equal(a.samples, c.samples, a.count * sizeof(*a.samples));
		assert_memory_equal(a.samples, d.samples, a.count * sizeof(*a.samples));
		assert_memory_equal(a.labels, c.labels, a.count * sizeof(*a.labels));
		assert_memory_equal(a.labels, d.labels, a.count * sizeof(*a.labels));
		feed_release(values, &a);
		feed_release(fields, &c);
		feed_release(plain, &d);
	}
	feed_close(values);
	feed_close(fields);
	feed_close(plain);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(threads_resuming_and_restarts_change_nothing)
{
	enum { BATCHES = 9, FIRST = 4 };
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("resume", 0));
	options.epoch_end = 0;
	fixture_start(fixture, NULL, "--threads", "1", NULL);
	uint64_t first = hash_of(&options, FIRST), all = hash_of(&options, BATCHES);
	struct feed *feed = fixture_open(&options);
	assert_int_equal(hash_feed(feed, FIRST), first);
	uint64_t epoch, batch;
	feed_position(feed, &epoch, &batch);
	options.epoch = epoch, options.batch = batch;
	uint64_t rest = hash_of(&options, BATCHES - FIRST);
	assert_int_equal(fixture_stop(fixture, SIGKILL), SIGKILL);
	fixture_start(fixture, NULL, "--threads", "3", NULL);
	/* The open feed continues with the next daemon. */
	assert_int_equal(hash_feed(feed, BATCHES - FIRST), rest);
	feed_close(feed);
	assert_int_equal(hash_of(&options, BATCHES - FIRST), rest);
	options.epoch = options.batch = 0;
	assert_int_equal(hash_of(&options, BATCHES), all);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * A sample with a value longer than recorded in the file is bad; the others keep their own values.
 */
TEST(wrong_maximum_length_makes_samples_bad)
{
	struct fixture *fixture = *state;
	struct feed_options options =
		options_of(fixture, fixture_patch_fields(dataset("lie", 0), too_short));
	unsigned good = 0;
	for (uint64_t i = 0; i < SAMPLES; i++)
		good += i != LONG && i % 40 <= 30;
	fixture_start(fixture, NULL, NULL);
	options.bad = FEED_BAD_SKIP;
	assert_int_equal(check_feed(&options), good);
	options.bad = FEED_BAD_SUBSTITUTE;
	assert_int_equal(check_feed(&options), SAMPLES);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(refusals)
{
	static const char *const misspelt[] = {"caption", "cuont"}, *const twice[] = {"note",
										      "note"};
	static const char *const first[] = {"image", "label", "sample"};
	struct fixture *fixture = *state;
	const struct feed_options good = options_of(fixture, dataset("refused", 0));
	struct feed_options options = good;
	fixture_start(fixture, NULL, "--limit", "field_bytes=400", NULL);
	refused(&good, -EDQUOT,
		"value \"caption\": the longest value has 500 bytes, but the daemon's limit is "
		"400");
	options.values = misspelt;
	options.value_count = 2;
	refused(&options, -EDQUOT, "value \"caption\"");
	options.values = misspelt + 1;
	options.value_count = 1;
	refused(&options, -EINVAL,
		"the dataset has no value \"cuont\"; did you mean \"count\": it has image, "
		"caption");
	options.values = twice;
	options.value_count = 2;
	refused(&options, -EINVAL, "value \"note\" twice");
	options.values = first;
	options.value_count = 3;
	options.fields = names;
	options.field_count = 1;
	refused(&options, -EINVAL, "values: not together with fields");
	options.field_count = 0;
	/* Every feed delivers these three values anyway. */
	struct feed_info info = {.size = sizeof(info)};
	struct feed *feed = fixture_open(&options);
	feed_info(feed, &info);
	assert_int_equal(info.section_count, 4);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* The limit on values can be raised above the maximum of a field in a ring of version 1. */
TEST(values_of_more_than_64_kib)
{
	static char text[70000];
	static const char *const name[] = {"essay"};
	struct fixture *fixture = *state;
	const struct packimg_value value = {.present = true, .bytes = text, .size = sizeof(text)};
	memset(text, 'e', sizeof(text));
	struct feed_options options =
		fixture_options(fixture, dataset_of_one(name[0], PACKIMG_FIELD_TEXT, &value), "");
	options.values = name;
	options.value_count = options.batch_size = 1;
	fixture_start(fixture, NULL, NULL);
	refused(&options, -EDQUOT,
		"the longest value has 70000 bytes, but the daemon's limit is 65536");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	fixture_start(fixture, NULL, "--limit", "field_bytes=1M", NULL);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	struct feed_section section = fixture_section(feed, &batch, name[0]);
	const void *bytes;
	assert_int_equal(feed_rows(&section, 0, &bytes), sizeof(text));
	assert_memory_equal(bytes, text, sizeof(text));
	feed_close(feed);
	options.value_count = 0;
	options.fields = name;
	options.field_count = 1;
	refused(&options, -EDQUOT,
		"the daemon's limit is 65536 ([limits] field_bytes, at most 65536)");
	options.field_bytes = 70000;
	refused(&options, -EDQUOT, "field_bytes 70000 exceeds the daemon's limit of 65536");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Fields have numbers of 8 bytes; sections have the schema's element type. */
TEST(numbers_have_the_elements_of_the_schema)
{
	static const char *const numbers[] = {"half", "brain", "big"};
	static const struct {
		double number;
		uint16_t half, brain;
		uint64_t big;
	} expected[] = {
		{1, 0x3c00, 0x3f80, 1},
		{1.0 / 3, 0x3555, 0x3eab, UINT64_MAX},
		{-2.5, 0xc100, 0xc020, UINT64_C(1) << 63},
		{65504, 0x7bff, 0x4780, 0},
		{1.0 + 0x1p-11, 0x3c00, 0x3f80, 5},
		{1.0 + 3 * 0x1p-11, 0x3c02, 0x3f80, 6},
		{0x1p-24, 0x0001, 0x3380, 7},
		{0x1.8p-25, 0x0001, 0x3340, 8},
		{-0x1.ffcp-15, 0x8400, 0xb880, 9},
		{-0.0, 0x8000, 0x8000, 10},
		{(double)INFINITY, 0x7c00, 0x7f80, 11},
		{(double)NAN, 0x7e00, 0x7fc0, 12},
	};
	enum { COUNTED = sizeof(expected) / sizeof(*expected) };
	struct fixture *fixture = *state;
	struct packimg_error error;
	struct test_dataset data;
	char path[PATH_MAX];
	uint8_t pixels[SIDE * SIDE * 3] = {0};
	const struct packimg_item item = test_item(pixels, SIDE, SIDE);
	snprintf(path, sizeof(path), "%s/numbers.pimg", folder);
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_schema(data.writer,
					       "image: image u8[h,w,3]\nhalf: value f16\n"
					       "brain: value bf16\nbig: value u64\n",
					       &error),
			 0);
	for (uint32_t i = 0; i < COUNTED; i++) {
		test_dataset_add(&data, &item);
		for (uint32_t f = 0; f < 3; f++) {
			struct packimg_value value = {.present = true};
			uint32_t field;
			value.float64 = expected[i].number;
			value.int64 = (int64_t)expected[i].big;
			assert_int_equal(packimg_writer_field(data.writer, numbers[f],
							      f < 2 ? PACKIMG_FIELD_FLOAT64
								    : PACKIMG_FIELD_INT64,
							      &field, &error),
					 0);
			assert_int_equal(packimg_writer_value(data.writer, field, &value, &error),
					 0);
		}
	}
	test_dataset_finish(&data);
	struct feed_options options = fixture_options(fixture, path, "");
	options.values = numbers;
	options.value_count = 3;
	options.batch_size = COUNTED;
	fixture_start(fixture, NULL, NULL);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	if (feed_next(feed, 60000, &batch) != 0)
		fail_msg("%s", feed_error(feed));
	const uint16_t *half = fixture_section(feed, &batch, "half").data;
	const uint16_t *brain = fixture_section(feed, &batch, "brain").data;
	const uint64_t *big = fixture_section(feed, &batch, "big").data;
	for (uint32_t i = 0; i < COUNTED; i++) {
		assert_int_equal(half[i], expected[batch.samples[i]].half);
		assert_int_equal(brain[i], expected[batch.samples[i]].brain);
		assert_int_equal(big[i], expected[batch.samples[i]].big);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(a_value_may_have_the_name_of_the_flags)
{
	static const char *const name[] = {"flags"};
	struct fixture *fixture = *state;
	const struct packimg_value value = {.present = true, .int64 = 1234};
	struct feed_options options =
		fixture_options(fixture, dataset_of_one(name[0], PACKIMG_FIELD_INT64, &value), "");
	options.values = name;
	options.value_count = options.batch_size = 1;
	fixture_start(fixture, NULL, NULL);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	assert_int_equal(*(const int64_t *)fixture_section(feed, &batch, name[0]).data, 1234);
	assert_int_equal(fixture_section(feed, &batch, "__flags__").element, FEED_U8);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Values may have the names of the sections that every feed has, and of their replacements. */
TEST(values_may_have_any_names)
{
	static const char *const taken[] = {"image",      "label", "__label__", "sample",
					    "__sample__", "flags", "__flags__", "__flags2__"};
	static const char *const firsts[] = {"pic", "__label2__", "__sample2__", "__flags3__"};
	enum { TAKEN = sizeof(taken) / sizeof(*taken) };
	struct fixture *fixture = *state;
	const uint8_t pixels[SIDE * SIDE * 3] = {0};
	const struct packimg_item item = test_item(pixels, SIDE, SIDE);
	char path[PATH_MAX], text[512] = "pic: image u8[h,w,3]\n";
	struct packimg_error error;
	struct test_dataset data;
	uint32_t field;
	for (uint32_t i = 0; i < TAKEN; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s: value i64\n",
			 taken[i]);
	snprintf(path, sizeof(path), "%s/names.pimg", folder);
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_schema(data.writer, text, &error), 0);
	test_dataset_add(&data, &item);
	for (uint32_t i = 0; i < TAKEN; i++) {
		const struct packimg_value value = {.present = true, .int64 = 100 + i};
		packimg_writer_field(data.writer, taken[i], PACKIMG_FIELD_INT64, &field, &error);
		assert_int_equal(packimg_writer_value(data.writer, field, &value, &error), 0);
	}
	test_dataset_finish(&data);
	struct feed_options options = fixture_options(fixture, path, "");
	options.values = taken;
	options.value_count = TAKEN;
	options.batch_size = 1;
	fixture_start(fixture, NULL, NULL);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(feed_section_find(feed, firsts[i]), i);
	for (uint32_t i = 0; i < TAKEN; i++)
		assert_int_equal(*(const int64_t *)fixture_section(feed, &batch, taken[i]).data,
				 100 + i);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(the_largest_sections_are_named)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("budget", 0));
	options.batch_size = 4096;
	options.slots = 2;
	options.last = FEED_LAST_SHORT;
	fixture_start(fixture, NULL, "--limit", "shared_memory_per_user=4M", NULL);
	char error[FEED_ERROR_MAX];
	struct feed *feed;
	unsigned fits = 0;
	assert_int_equal(feed_open(&options, &feed, error), -EDQUOT);
	assert_non_null(strstr(error, "\"caption\" takes 2080768 bytes a batch, \"blob\" takes "));
	const char *size = strstr(error, "batch_size ");
	while (size && sscanf(size, "batch_size %u would fit", &fits) != 1)
		size = strstr(size + 1, "batch_size ");
	assert_in_range(fits, 100, 4095);
	options.batch_size = fits + 1;
	refused(&options, -EDQUOT, "would fit");
	options.batch_size = fits;
	feed_close(fixture_open(&options));
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(unknown_lengths)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(
		fixture, fixture_patch_fields(dataset("untold", 0), fixture_hide_fields));
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	options.value_count = 1;
	fixture_start(fixture, NULL, NULL);
	refused(&options, -EINVAL, "value \"caption\": the file does not record its longest value");
	options.field_bytes = LONG_SIZE;
	assert_int_equal(check_feed(&options), SAMPLES);
	options.field_bytes = LONG_SIZE - 1;
	struct feed *feed = fixture_open(&options);
	while ((r = feed_next(feed, 60000, &batch)) == 0)
		feed_release(feed, &batch);
	assert_int_equal(r, -EBADMSG);
	assert_non_null(strstr(feed_error(feed), "value \"caption\" has 500 bytes, and field_bytes "
						 "is 499"));
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Versions other than the supported ones are refused. */
TEST(other_versions_are_refused)
{
	struct fixture *fixture = *state;
	fixture_start(fixture, NULL, NULL);
	for (uint32_t version = 0; version <= PROTO_VERSION + 1; version++) {
		Loaderd__OpenFeed open_feed = LOADERD__OPEN_FEED__INIT;
		Loaderd__Request request = LOADERD__REQUEST__INIT;
		open_feed.version = version;
		open_feed.batch_size = 1;
		request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
		request.open_feed = &open_feed;
		int socket = fixture_connect(fixture);
		fixture_send(socket, &request);
		Loaderd__Reply *reply = fixture_receive(socket, NULL);
		assert_non_null(reply);
		if (version >= PROTO_VERSION_OLDEST && version <= PROTO_VERSION) {
			assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_NEED_FILES);
		} else {
			assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
			assert_int_equal(reply->error->code, EPROTO);
			assert_string_equal(reply->error->field, "version");
			assert_non_null(strstr(reply->error->text, "versions 3 to 4"));
		}
		loaderd__reply__free_unpacked(reply, NULL);
		close(socket);
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

int main(void)
{
	return fixture_main("values", folder);
}
