/*
 * Extra fields from file to client: the daemon delivers whole values, or the feed ends with an
 * error that states all sizes. The daemon does not trust recorded lengths unless the values match
 * them.
 */
#include "format/augment/deferred.h"
#include "format/layout.h"
#include "format/packimg.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>

enum {
	SAMPLES = 96,
	SIDE = 8,
	CAPTION_LONGEST = 2 * 39,
	LONG = 37,         /* index of the sample that has a long caption in some datasets */
	LONG_SIZE = 70000, /* bytes; more than the daemon delivers */
	VALUE_MAX = LONG_SIZE,
};

enum { CAPTION, BLOB, NOTE, RARE, FIELDS };
static const char *const names[FIELDS + 1] = {"caption", "blob", "note", "rare", FEED_KEY};

static const char *rare_name = "rare"; /* the name of field RARE in the file */
static char folder[FIXTURE_FOLDER_MAX];

/*
 * Writes the value of sample i in a field to text; returns its size in bytes, or -1 if it is
 * missing. FIELDS stands for the source name.
 */
static int value_of(uint32_t field, uint64_t i, bool with_long, char *text)
{
	switch (field) {
	case CAPTION:
		if (with_long && i == LONG) {
			memset(text, 'x', LONG_SIZE);
			return LONG_SIZE;
		}
		for (uint64_t k = 0; k < i % 40; k++)
			memcpy(text + 2 * k, "é", 2);
		return (int)(i % 40) * 2;
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

static const char *dataset(const char *name, bool with_long)
{
	static const enum packimg_field_type types[FIELDS] = {
		PACKIMG_FIELD_TEXT, PACKIMG_FIELD_BYTES, PACKIMG_FIELD_JSON, PACKIMG_FIELD_TEXT};
	static char path[PATH_MAX], text[VALUE_MAX + 1], source[64];
	struct packimg_error error;
	struct test_dataset data;
	uint8_t pixels[SIDE * SIDE * 3] = {0};
	uint32_t fields[FIELDS];
	snprintf(path, sizeof(path), "%s/%s.pimg", folder, name);
	test_dataset_begin(&data, path, 0);
	for (uint32_t f = 0; f < FIELDS; f++)
		assert_int_equal(packimg_writer_field(data.writer, f == RARE ? rare_name : names[f],
						      types[f], &fields[f], &error),
				 0);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		struct packimg_item item = test_item(pixels, SIDE, SIDE);
		item.source = source;
		item.source_size = (size_t)value_of(FIELDS, i, with_long, source);
		test_dataset_add(&data, &item);
		for (uint32_t f = 0; f < FIELDS; f++) {
			int size = value_of(f, i, with_long, text);
			struct packimg_value value = {.present = size >= 0,
						      .bytes = text,
						      .size = size < 0 ? 0 : (size_t)size};
			assert_int_equal(
				packimg_writer_value(data.writer, fields[f], &value, &error), 0);
		}
	}
	test_dataset_finish(&data);
	return path;
}

static void too_short(struct pimg_section *section, struct pimg_field_stats *stats)
{
	stats[CAPTION].longest = 60;
}

static void too_long(struct pimg_section *section, struct pimg_field_stats *stats)
{
	stats[CAPTION].longest = 4000;
}

static void set_huge_length(struct pimg_section *section, struct pimg_field_stats *stats)
{
	stats[CAPTION].longest = UINT64_MAX - 1;
}

static void short_sources(struct pimg_section *section, struct pimg_field_stats *stats)
{
	stats[FIELDS].longest = 3;
}

static struct feed_options options_of(const struct fixture *fixture, const char *path)
{
	struct feed_options options = fixture_options(fixture, path, "");
	options.fields = names;
	options.field_count = FIELDS + 1;
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

/*
 * Checks every value of a batch: it is whole, or flagged and truncated to `room` bytes, at a
 * character boundary if it is text.
 */
static void check_batch(struct feed *feed, const struct feed_batch *batch, uint32_t count,
			uint32_t room, bool with_long)
{
	static char text[VALUE_MAX + 1];
	for (uint32_t i = 0; i < batch->count; i++) {
		unsigned flags = 0;
		for (uint32_t f = 0; f < count; f++) {
			struct feed_field field;
			assert_int_equal(feed_field(feed, batch, f, &field), 0);
			assert_string_equal(field.name, names[f]);
			const char *cell = (const char *)field.values + i * field.stride;
			int size = value_of(f, batch->samples[i], with_long, text);
			uint32_t found;
			memcpy(&found, cell, sizeof(found));
			flags |= size < 0 ? FEED_SAMPLE_FIELD_MISSING : 0;
			size = size < 0 ? 0 : size;
			if ((uint32_t)size > room) {
				flags |= FEED_SAMPLE_FIELD_CUT;
				size = (int)room;
				while (field.type == FEED_TEXT && (text[size] & 0xc0) == 0x80)
					size--;
			}
			assert_int_equal(found, size);
			assert_memory_equal(cell + sizeof(found), text, found);
		}
		assert_int_equal(batch->flags[i], flags);
	}
}

/* Checks all batches of a feed that requests the first `count` fields. */
static void check_feed(struct feed_options options, uint32_t count, uint32_t room, bool with_long)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned samples = 0;
	int r;
	options.field_count = count;
	struct feed *feed = fixture_open(&options);
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		samples += batch.count;
		check_batch(feed, &batch, count, room, with_long);
		feed_release(feed, &batch);
	}
	assert_int_equal(r, FEED_END);
	assert_int_equal(samples, SAMPLES);
	feed_close(feed);
}

/* Asserts that the feed ends with an error that contains `part`. */
static void ends(const struct feed_options *options, const char *part)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(options);
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0)
		feed_release(feed, &batch);
	if (r != -EBADMSG || !strstr(feed_error(feed), part))
		fail_msg("expected \"%s\", got %d and \"%s\"", part, r, feed_error(feed));
	feed_close(feed);
}

TEST(values_are_whole_by_default)
{
	static const uint32_t types[] = {FEED_TEXT, FEED_BYTES, FEED_JSON, FEED_TEXT, FEED_TEXT};
	static const size_t strides[] = {
		4 + 80, 4 + 296, 4 + 4, 4 + 4,
		4 + 20}; /* stride of each field: length prefix plus value, rounded up to words */
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("plain", false));
	struct feed_batch batch = {.size = sizeof(batch)};
	fixture_start(fixture, NULL, NULL);
	check_feed(options, FIELDS + 1, UINT32_MAX, false);
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	for (uint32_t f = 0; f <= FIELDS; f++) {
		struct feed_field field;
		assert_int_equal(feed_field(feed, &batch, f, &field), 0);
		assert_int_equal(field.type, types[f]);
		assert_int_equal(field.stride, strides[f]);
	}
	feed_close(feed);
	/* A larger field_bytes than needed changes nothing. */
	options.field_bytes = 5000;
	check_feed(options, FIELDS + 1, UINT32_MAX, false);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(too_little_room)
{
	struct fixture *fixture = *state;
	const struct feed_options good = options_of(fixture, dataset("room", false));
	struct feed_options options = good;
	fixture_start(fixture, NULL, "--limit", "field_bytes=250", NULL);
	options.field_bytes = CAPTION_LONGEST - 1;
	refused(&options, -EINVAL,
		"field \"caption\": the longest value has 78 bytes, but field_bytes is 77; ask "
		"for");
	options.field_bytes = CAPTION_LONGEST;
	refused(&options, -EINVAL,
		"field \"blob\": the longest value has 294 bytes, but field_bytes is 78");
	check_feed(options, 1, UINT32_MAX, false);
	/* The daemon's limit is enforced too. */
	refused(&good, -EDQUOT,
		"field \"blob\": the longest value has 294 bytes, but the daemon's limit is 250 "
		"([limits] field_bytes");
	/* With cut_values, values are truncated and flagged. */
	options.cut_values = 1;
	for (options.field_bytes = 1; options.field_bytes < 80; options.field_bytes += 13)
		check_feed(options, FIELDS + 1, options.field_bytes, false);
	options.cut_values = 2;
	refused(&options, -EINVAL, "cut_values: 2");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(longer_than_the_daemon_delivers)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("long", true));
	fixture_start(fixture, NULL, NULL);
	refused(&options, -EDQUOT,
		"the longest value has 70000 bytes, but the daemon's limit is 65536");
	options.cut_values = 1;
	check_feed(options, FIELDS + 1, 256, true);
	options.field_bytes = 65536;
	check_feed(options, FIELDS + 1, 65536, true);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * Files of earlier versions: field_bytes defaults to 256, and the first value that does not fit
 * ends the feed, whatever the policy for bad samples.
 */
TEST(unknown_lengths)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(
		fixture, fixture_patch_fields(dataset("untold", true), fixture_hide_fields));
	fixture_start(fixture, NULL, NULL);
	for (uint32_t bad = FEED_BAD_SUBSTITUTE; bad <= FEED_BAD_FAIL; bad++) {
		options.bad = bad;
		options.field_count = 1;
		ends(&options, "sample 37 of ");
		ends(&options,
		     "field \"caption\" has 70000 bytes, and field_bytes is 256; ask for more");
	}
	options.field_bytes = 10;
	/* Several values are too long, and threads may find any of them first. */
	ends(&options, "bytes, and field_bytes is 10; ask for more");
	options.cut_values = 1;
	options.field_count = FIELDS + 1;
	/* These files store text as bytes, so values are truncated at any byte. */
	options.field_bytes = 300;
	check_feed(options, FIELDS + 1, 300, true);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Damages a sample's bytes, so that its checksum does not match. */
static void damage(const char *path, uint64_t index)
{
	struct packimg_error error;
	struct packimg_sample sample;
	struct packimg *image;
	assert_int_equal(packimg_open(path, &image, &error), 0);
	assert_int_equal(packimg_sample(image, index, &sample), 0);
	off_t offset = (off_t)sample.data_offset;
	packimg_close(image);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "?", 1, offset), 1);
	close(fd);
}

/* Samples that replace bad ones also have values. */
TEST(replacements)
{
	struct fixture *fixture = *state;
	const char *path = fixture_patch_fields(dataset("replaced", false), fixture_hide_fields);
	struct feed_options options = options_of(fixture, path);
	damage(path, 0);
	fixture_start(fixture, NULL, NULL);
	options.fields = &names[FIELDS];
	options.field_count = 1;
	options.batch_size = 1;
	options.shuffle = 0;
	options.field_bytes = 5;
	ends(&options, "field \"" FEED_KEY "\" has 1");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* A dataset may have a field whose name is FEED_KEY, which otherwise means the source names. */
TEST(own_key)
{
	struct fixture *fixture = *state;
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed_field field;
	rare_name = FEED_KEY;
	struct feed_options options = options_of(fixture, dataset("own", false));
	rare_name = "rare";
	fixture_start(fixture, NULL, NULL);
	options.fields = &names[FIELDS];
	options.field_count = 1;
	options.shuffle = 0;
	struct feed *feed = fixture_open(&options);
	for (unsigned i = 0; i < 2; i++) /* the second batch contains sample 50 */
		assert_int_equal(feed_next(feed, 60000, &batch), 0);
	assert_int_equal(feed_field(feed, &batch, 0, &field), 0);
	assert_int_equal(field.stride, 8);
	assert_memory_equal((const char *)field.values + 8 * (50 - 32), "\3\0\0\0abc", 8);
	assert_int_equal(batch.flags[0], FEED_SAMPLE_FIELD_MISSING);
	assert_int_equal(batch.flags[50 - 32], 0);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * With deferred transforms, the client's result equals the images of a daemon that applies all
 * transforms: also with a second field, and for samples that replace bad ones. A field_bytes below
 * the record's size is refused.
 */
TEST(deferred)
{
	static const char *const wanted[] = {"note", FEED_DEFERRED};
	struct fixture *fixture = *state;
	struct feed_batch whole = {.size = sizeof(whole)}, batch = {.size = sizeof(batch)};
	struct feed_options options = options_of(fixture, dataset("deferred", false));
	struct feed_field field;
	fixture_start(fixture, NULL, NULL);
	options.fields = NULL;
	options.field_count = 0;
	options.pipeline = "resize(20x20) random_crop(16, padding=2) hflip color_jitter(0.4, 0.4) "
			   "random_erasing(0.5, value=random)";
	struct feed *feed = fixture_open(&options);
	options.fields = wanted;
	options.field_count = 2;
	options.cut_values = 1;
	struct feed *deferring = fixture_open(&options);
	for (unsigned n = 0; n < 2; n++) {
		assert_int_equal(feed_next(feed, 60000, &whole), 0);
		assert_int_equal(feed_next(deferring, 60000, &batch), 0);
		assert_int_equal(whole.width, 16);
		assert_int_equal(batch.width, 20);
		assert_int_equal(feed_field(deferring, &batch, 1, &field), 0);
		assert_int_equal(field.type, FEED_BYTES);
		assert_int_equal(field.stride, sizeof(uint32_t) + deferred_size(3));
		for (uint32_t i = 0; i < batch.count; i++) {
			const char *record = (const char *)field.values + i * field.stride;
			uint8_t finished[16 * 16 * 3];
			struct deferred deferred;
			uint32_t size;
			memcpy(&size, record, sizeof(size));
			assert_null(deferred_read(record + sizeof(size), size, batch.width,
						  batch.height, &deferred));
			deferred_apply(&deferred,
				       (const uint8_t *)batch.images + (size_t)i * 20 * 20 * 3,
				       batch.width, batch.height, 3, finished);
			assert_memory_equal(finished,
					    (const uint8_t *)whole.images + i * sizeof(finished),
					    sizeof(finished));
		}
		feed_release(feed, &whole);
		feed_release(deferring, &batch);
	}
	feed_close(feed);
	feed_close(deferring);
	options.field_bytes = 100;
	refused(&options, -EINVAL,
		"field \"" FEED_DEFERRED
		"\": the longest value has 128 bytes, but field_bytes is 100; "
		"ask for that many (or for 0: as many as it takes)");
	options.field_bytes = 0;
	options.pipeline = "resize(20x20) normalize(imagenet) to(f16)";
	refused(&options, -EINVAL, "transforms can be deferred only where bytes are delivered");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* A file with wrong recorded lengths. */
TEST(lies)
{
	struct fixture *fixture = *state;
	struct feed_options options =
		options_of(fixture, fixture_patch_fields(dataset("short", false), too_short));
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned substituted = 0, longer = 0;
	fixture_start(fixture, NULL, NULL);
	/* A value longer than recorded makes its sample bad, even if it fits the room. */
	options.field_bytes = 1000;
	struct feed *feed = fixture_open(&options);
	while (feed_next(feed, 60000, &batch) == 0) {
		for (uint32_t i = 0; i < batch.count; i++) {
			substituted += batch.flags[i] & FEED_SAMPLE_SUBSTITUTED;
			assert_in_range(batch.samples[i] % 40, 0, 30);
		}
		feed_release(feed, &batch);
	}
	feed_close(feed);
	for (uint64_t i = 0; i < SAMPLES; i++)
		longer += i % 40 > 30;
	assert_int_equal(substituted, longer);
	options.bad = FEED_BAD_FAIL;
	ends(&options,
	     "its value of field \"caption\" is damaged, or longer than the file records");

	options = options_of(fixture, fixture_patch_fields(dataset("large", false), too_long));
	check_feed(options, FIELDS + 1, UINT32_MAX, false);
	options = options_of(fixture,
			     fixture_patch_fields(dataset("absurd", false), set_huge_length));
	refused(&options, -EDQUOT,
		"field \"caption\": the longest value has 18446744073709551614 bytes");
	options =
		options_of(fixture, fixture_patch_fields(dataset("sources", false), short_sources));
	options.bad = FEED_BAD_FAIL;
	ends(&options, "field \"" FEED_KEY "\" is damaged");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Simulates a program built before FEED_TEXT and cut_values existed. */
TEST(earlier_programs)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset("earlier", false));
	struct feed_batch batch = {.size = sizeof(batch)};
	fixture_start(fixture, NULL, NULL);
	options.size = offsetof(struct feed_options, cut_values);
	options.cut_values = 77;
	options.field_bytes = 31;
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	struct feed_field field;
	assert_int_equal(feed_field(feed, &batch, CAPTION, &field), 0);
	assert_int_equal(field.type, FEED_BYTES);
	assert_int_equal(field.stride, 4 + 32);
	check_batch(feed, &batch, FIELDS + 1, 31, false);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

int main(void)
{
	return fixture_main("fields", folder);
}
