/* libfeed with a fake daemon: contents of batches, and start positions. */
#include "tests/unit/proto/client/feed_test.h"

TEST(batches_arrive)
{
	struct feed *feed = open_script("plain");
	struct feed_info info = {.size = sizeof(info)};
	assert_int_equal(feed_info(feed, &info), 0);
	assert_int_equal(info.feed_id, 17);
	assert_int_equal(info.samples, 80);
	assert_int_equal(info.batches_per_epoch, FAKE_BATCHES);
	assert_int_equal(info.classes, FAKE_CLASSES);
	assert_int_equal(info.slots, FAKE_SLOTS);
	assert_int_equal(info.batch_size, 8);
	assert_memory_equal(info.dataset_uuid, "plain\0\0\0\0\0\0\0\0\0\0", 16);
	for (uint64_t n = 0; n < 25; n++) {
		uint64_t epoch, position;
		feed_position(feed, &epoch, &position);
		assert_int_equal(epoch * FAKE_BATCHES + position, n);
		struct feed_batch batch = next(feed);
		assert_int_equal(batch.number, n + 1);
		assert_int_equal(batch.epoch, n / FAKE_BATCHES);
		assert_int_equal(batch.batch, n % FAKE_BATCHES);
		assert_int_equal(batch.last, n % FAKE_BATCHES == FAKE_BATCHES - 1);
		assert_int_equal(batch.count, 8);
		assert_int_equal(batch.bad, n % FAKE_BATCHES == 0);
		assert_int_equal(batch.flags[3],
				 n % FAKE_BATCHES == 0 ? FEED_SAMPLE_SUBSTITUTED : 0);
		assert_true((const char *)batch.images > (const char *)info.memory);
		assert_true((const char *)batch.images + batch.image_bytes <=
			    (const char *)info.memory + info.memory_size);
		check_pixels(&batch);
		assert_int_equal(feed_release(feed, &batch), 0);
		assert_int_equal(feed_release(feed, &batch), -EINVAL);
	}
	feed_close(feed);
}

/* Goes on when the time for opening, from *user on, is over. */
static int wait_beyond(void *user, uint64_t done, uint64_t total)
{
	const int64_t *until_ms = user;
	assert_int_equal(done, 1);
	assert_int_equal(total, 2);
	while (now_ms() <= *until_ms)
		usleep(1000);
	return 0;
}

/* Progress moves the end of the time for opening, also for the ring and what comes after it. */
TEST(progress_takes_longer_than_opening_may)
{
	struct feed_options options = options_for("examines");
	struct feed *feed;
	options.open_timeout_ms = 2000;
	int64_t until_ms = now_ms() + options.open_timeout_ms;
	options.progress = wait_beyond;
	options.progress_user = &until_ms;
	if (feed_open(&options, &feed, error) < 0)
		fail_msg("%s", error);
	assert_true(now_ms() > until_ms);
	feed_close(feed);
}

static const uint8_t no_uuid[16];

/* The client overwrites a writable ring; the daemon must not read its own state from the ring. */
TEST(a_ring_is_mapped_writable)
{
	struct feed_options options = options_for("plain");
	struct feed_info info = {.size = sizeof(info)};
	struct feed *feed;
	options.writable = 1;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	feed_info(feed, &info);
	for (uint64_t n = 0; n < 25; n++) {
		struct feed_batch batch = next(feed);
		assert_int_equal(batch.number, n + 1);
		check_pixels(&batch);
		memset((void *)(uintptr_t)batch.images, 0xee, batch.image_bytes);
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	feed_close(feed);
	options.dataset = "old";
	assert_int_equal(feed_open(&options, &feed, error), -ENOTSUP);
	assert_non_null(strstr(error, "update it"));
	options.writable = 0;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	feed_info(feed, &info);
	assert_memory_equal(info.dataset_uuid, no_uuid, 16);
	feed_close(feed);
}

/*
 * An old daemon ignores the option `repeats` and delivers different batches, which libfeed must
 * detect.
 */
TEST(repeats_are_known)
{
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.repeats = 1;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	feed_close(feed);
	options.repeats = 2;
	assert_int_equal(feed_open(&options, &feed, error), -ENOTSUP);
	assert_non_null(strstr(error, "does not know of repeats: update it"));
}

/* An old daemon would read samples that are not there yet. */
TEST(filling_files_are_known)
{
	struct feed_options options = options_for("plain");
	struct feed_filling filling = {.size = sizeof(filling), .map = -1, .page = -1};
	struct feed *feed;
	options.filling = &filling;
	assert_int_equal(feed_open(&options, &feed, error), -EBADF);
	assert_non_null(strstr(error, "cannot duplicate descriptors -1 and -1"));
	filling.map = filling.page = STDERR_FILENO;
	assert_int_equal(feed_open(&options, &feed, error), -ENOTSUP);
	assert_non_null(strstr(error, "does not know of files that are being filled"));
}

TEST(a_position_is_resumed)
{
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.epoch = 3;
	options.batch = 9;
	options.epoch_end = 5;
	options.last = FEED_LAST_SHORT;
	assert_int_equal(feed_open(&options, &feed, NULL), 0);
	struct feed_batch batch = next(feed);
	assert_int_equal(batch.epoch, 3);
	assert_int_equal(batch.batch, 9);
	assert_int_equal(batch.count, 7);
	check_pixels(&batch);
	uint64_t epoch, position;
	feed_position(feed, &epoch, &position);
	assert_int_equal(epoch, 4);
	assert_int_equal(position, 0);
	feed_release(feed, &batch);
	for (int i = 0; i < FAKE_BATCHES; i++) {
		batch = next(feed);
		feed_release(feed, &batch);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(feed_next(feed, -1, &batch), FEED_END);
	feed_close(feed);
}

TEST(fields_arrive)
{
	static const char *const names[] = {"id", "float", "bytes", "json"};
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.fields = names;
	options.field_count = 4;
	options.field_bytes = 9;
	options.cut_values = 1;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	struct feed_batch first = next(feed), batch = next(feed);
	feed_release(feed, &first);
	struct feed_field field;
	assert_int_equal(feed_field(feed, &batch, 0, &field), 0);
	assert_string_equal(field.name, "id");
	assert_int_equal(field.type, FEED_INT64);
	assert_int_equal(field.stride, 8);
	assert_int_equal(((const int64_t *)field.values)[3], -22);
	assert_int_equal(feed_field(feed, &batch, 1, &field), 0);
	assert_int_equal(field.type, FEED_FLOAT64);
	assert_true(((const double *)field.values)[7] == 15.0 / 4);
	assert_int_equal(feed_field(feed, &batch, 2, &field), 0);
	assert_int_equal(field.type, FEED_BYTES);
	assert_int_equal(field.stride,
			 16); /* length of 4 bytes plus value of 9, rounded up to a multiple of 4 */
	uint32_t size;
	memcpy(&size, (const char *)field.values + field.stride * 2, 4);
	assert_int_equal(size, 9);
	assert_memory_equal((const char *)field.values + field.stride * 2 + 4, "sample 10", 9);
	assert_int_equal(feed_field(feed, &batch, 3, &field), 0);
	assert_int_equal(field.type, FEED_JSON);
	assert_int_equal(feed_field(feed, &batch, 4, &field), -EINVAL);
	feed_close(feed);
}

/* Fills only as much of a struct as the caller was compiled with. */
TEST(structures_may_grow)
{
	struct feed *feed = open_script("plain");
	struct {
		struct feed_batch batch;
		char canary[8];
	} out;
	memset(&out, 0x55, sizeof(out));
	out.batch.size = offsetof(struct feed_batch, images);
	assert_int_equal(feed_next(feed, 5000, &out.batch), 0);
	assert_int_equal(out.batch.count, 8);
	assert_int_equal((uintptr_t)out.batch.images, 0x5555555555555555);
	assert_int_equal(out.batch.size, offsetof(struct feed_batch, images));
	out.batch.size =
		sizeof(out); /* a longer struct of a later version keeps its additional fields */
	assert_int_equal(feed_next(feed, 5000, &out.batch), 0);
	assert_non_null(out.batch.images);
	assert_int_equal(out.canary[0], 0x55);
	feed_close(feed);
}

TEST(datasets_are_described)
{
	struct feed_dataset *dataset = NULL;
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "some.pimg", &dataset, error), 0);
	assert_int_equal(dataset->samples, 320);
	assert_int_equal(dataset->classes, FAKE_CLASSES);
	assert_string_equal(dataset->class_names[4], "class 4");
	assert_int_equal(dataset->has_statistics, 1);
	assert_true(dataset->mean[1] == 116.25 && dataset->std[2] == 57.5);
	assert_string_equal(dataset->metadata, "made=by hand\nnote=a=b\n");
	assert_memory_equal(dataset->uuid, "0123456789abcdef", 16);
	assert_int_equal(dataset->field_count, 2);
	assert_string_equal(dataset->fields[1].name, "text");
	assert_int_equal(dataset->fields[1].type, FEED_TEXT);
	assert_int_equal(dataset->fields[1].longest, 77);
	feed_dataset_free(dataset);
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "old.pimg", &dataset, error), 0);
	assert_string_equal(dataset->fields[0].name, "id");
	assert_int_equal(dataset->fields[0].type, 0);
	assert_true(dataset->fields[0].longest == FEED_LONGEST_UNKNOWN);
	feed_dataset_free(dataset);
	feed_dataset_free(NULL);
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "missing", &dataset, error),
			 -ENOENT);
	assert_string_equal(error, "dataset: there is no file of that name");
	assert_int_equal(feed_dataset("@nobody", "x", &dataset, error), -ECONNREFUSED);
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "", &dataset, error), -EINVAL);
}

/*
 * A daemon that predates cut_values truncates long values. libfeed fails the feed instead of
 * returning them as whole values.
 */
TEST(cut_values_end_a_feed)
{
	static const char *const names[] = {"bytes"};
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.fields = names;
	options.field_count = 1;
	options.field_bytes = 8;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feed, 1000, &batch)) == 0) {
		for (uint32_t i = 0; i < batch.count; i++)
			assert_int_equal(batch.flags[i] & FEED_SAMPLE_FIELD_CUT, 0);
		feed_release(feed, &batch);
	}
	assert_int_equal(r, -EBADMSG);
	assert_non_null(strstr(feed_error(feed),
			       "sample 10 has a value that is longer than field_bytes, 8"));
	assert_int_equal(feed_next(feed, 0, &batch), -EBADMSG);
	feed_close(feed);
}

/*
 * Callers that know FEED_TEXT get text fields. For older callers, libfeed refuses a daemon that
 * sends them.
 */
TEST(text_fields_need_a_client_that_knows_them)
{
	static const char *const names[] = {"text"};
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.fields = names;
	options.field_count = 1;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	struct feed_batch batch = next(feed);
	struct feed_field field;
	assert_int_equal(feed_field(feed, &batch, 0, &field), 0);
	assert_int_equal(field.type, FEED_TEXT);
	feed_close(feed);
	options.size = offsetof(struct feed_options, cut_values);
	assert_int_equal(feed_open(&options, &feed, error), -EPROTO);
	assert_non_null(strstr(error, "delivers text as text"));
}

int main(void)
{
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
