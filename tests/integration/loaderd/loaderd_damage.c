/*
 * Datasets damaged before or while they are read: flagged samples and policies; the daemon keeps
 * running.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"

#include "format/packimg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";
enum { SAMPLES = 320 };

static int set_up(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	fixture_start(&fixture, NULL, "--threads", "3", NULL);
	*state = &fixture;
	return 0;
}

static uint64_t sample_offset(const char *path, uint64_t index)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	assert_int_equal(packimg_open(path, &dataset, NULL), 0);
	assert_int_equal(packimg_sample(dataset, index, &sample), 0);
	uint64_t offset = sample.data_offset + sample.data_size / 2;
	packimg_close(dataset);
	return offset;
}

/* Changes a byte in the middle of every seventh sample. */
static bool is_damaged(uint64_t index)
{
	return index % 7 == 3;
}

static const char *damaged_dataset(struct fixture *fixture, const char *name)
{
	const char *path = fixture_dataset(fixture, name, SAMPLES, FIXTURE_JPEG, 0);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		if (!is_damaged(i))
			continue;
		uint8_t byte;
		off_t offset = (off_t)sample_offset(path, i);
		assert_int_equal(pread(fd, &byte, 1, offset), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	}
	close(fd);
	return path;
}

TEST(substitutes)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, damaged_dataset(fixture, "substitute"));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	options.epoch_end = 2;
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned substituted = 0;
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		unsigned here = 0;
		assert_int_equal(batch.count, 32);
		for (uint32_t i = 0; i < batch.count; i++) {
			assert_false(is_damaged(batch.samples[i]));
			assert_int_equal(batch.labels[i], batch.samples[i] % 10);
			here += batch.flags[i] == FEED_SAMPLE_SUBSTITUTED;
		}
		assert_int_equal(batch.bad, here);
		substituted += here;
		feed_release(feed, &batch);
	}
	assert_int_equal(r, FEED_END);
	feed_close(feed);
	unsigned damaged = 0;
	for (uint64_t i = 0; i < SAMPLES; i++)
		damaged += is_damaged(i);
	assert_int_equal(substituted, 2 * damaged);

	/* A resumed feed gets the same substitutes. */
	options.epoch = 1;
	options.batch = 3;
	feed = fixture_open(&options);
	uint64_t again = fixture_hash(feed, 5);
	feed_close(feed);
	options.batch = 0;
	feed = fixture_open(&options);
	fixture_hash(feed, 3);
	assert_int_equal(fixture_hash(feed, 5), again);
	feed_close(feed);

	Loaderd__Reply *reply = fixture_status(fixture);
	for (size_t i = 0; i < reply->status->n_bad; i++) {
		const Loaderd__BadSampleRecord *bad = reply->status->bad[i];
		char source[64];
		snprintf(source, sizeof(source), "image-%llu", (unsigned long long)bad->index);
		if (!is_damaged(bad->index))
			fail_msg("sample %llu is not damaged, but: %s",
				 (unsigned long long)bad->index, bad->text);
		assert_string_equal(bad->dataset, path);
		assert_string_equal(bad->source, source);
		assert_true(bad->count >= 2);
	}
	assert_int_equal(reply->status->n_bad, damaged);
	loaderd__reply__free_unpacked(reply, NULL);
}

TEST(skips)
{
	struct fixture *fixture = *state;
	struct feed_options options =
		fixture_options(fixture, damaged_dataset(fixture, "skip"), pipeline);
	static const char *const names[] = {"number"};
	options.epoch_end = 1;
	options.bad = FEED_BAD_SKIP;
	options.fields = names;
	options.field_count = 1;
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned seen[SAMPLES] = {0};
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		struct feed_field number;
		assert_int_equal(batch.count + batch.bad, 32);
		assert_int_equal(feed_field(feed, &batch, 0, &number), 0);
		for (uint32_t i = 0; i < batch.count; i++) {
			assert_int_equal(batch.flags[i], 0);
			assert_int_equal(batch.labels[i], batch.samples[i] % 10);
			assert_int_equal(((const int64_t *)number.values)[i], batch.samples[i]);
			seen[batch.samples[i]]++;
		}
		feed_release(feed, &batch);
	}
	assert_int_equal(r, FEED_END);
	for (uint64_t i = 0; i < SAMPLES; i++)
		assert_int_equal(seen[i], !is_damaged(i));
	feed_close(feed);
}

TEST(fails)
{
	struct fixture *fixture = *state;
	struct feed_options options =
		fixture_options(fixture, damaged_dataset(fixture, "fail"), pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	options.bad = FEED_BAD_FAIL;
	options.shuffle = 0;
	options.batch_size = 3; /* sample 3 is in the second batch */
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	assert_int_equal(feed_next(feed, 60000, &batch), -EBADMSG);
	assert_non_null(strstr(feed_error(feed), "sample 3"));
	feed_close(feed);
}

/*
 * If no sample is usable, the feed ends with a reason under every policy instead of searching
 * forever.
 */
TEST(all_damaged)
{
	struct fixture *fixture = *state;
	const char *path = fixture_dataset(fixture, "all", 64, FIXTURE_JPEG, 0);
	int fd = open(path, O_RDWR);
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(pwrite(fd, "\xff\xff\xff\xff", 4, (off_t)sample_offset(path, i)),
				 4);
	close(fd);
	for (uint32_t bad = FEED_BAD_SUBSTITUTE; bad <= FEED_BAD_FAIL; bad++) {
		struct feed_options options = fixture_options(fixture, path, pipeline);
		struct feed_batch batch = {.size = sizeof(batch)};
		options.bad = bad;
		struct feed *feed = fixture_open(&options);
		assert_int_equal(feed_next(feed, 60000, &batch), -EBADMSG);
		assert_true(feed_error(feed)[0] != '\0');
		feed_close(feed);
	}
}

/*
 * Truncates the file of a running feed to various lengths: batches continue, unflagged samples are
 * correct, and a concurrent feed of an intact file is not affected.
 */
TEST(truncated_underneath)
{
	struct fixture *fixture = *state;
	char healthy_path[PATH_MAX], path[PATH_MAX];
	strcpy(healthy_path, fixture_dataset(fixture, "healthy", SAMPLES, FIXTURE_RAW, 40));
	struct feed_options options = fixture_options(fixture, healthy_path, pipeline);
	struct feed *healthy = fixture_open(&options);
	uint64_t expected = fixture_hash(healthy, 30);
	feed_close(healthy);
	healthy = fixture_open(&options);

	for (unsigned eighths = 1; eighths < 8; eighths++) {
		struct stat status;
		struct feed_batch batch = {.size = sizeof(batch)};
		char name[32];
		snprintf(name, sizeof(name), "cut-%u", eighths);
		strcpy(path, fixture_dataset(fixture, name, SAMPLES, FIXTURE_RAW, 40));
		struct feed_options cut_options = fixture_options(fixture, path, "");
		cut_options.slots = 3;
		struct feed *feed = fixture_open(&cut_options);
		fixture_hash(feed, 12); /* every sample has been read and verified once */
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(truncate(path, status.st_size * eighths / 8 + 1234), 0);
		unsigned bad = 0;
		int r = 0;
		for (unsigned i = 0; i < 20; i++) {
			r = feed_next(feed, 60000, &batch);
			if (r < 0)
				break;
			bad += batch.bad;
			/* draw() makes red x * 3 + index * 7 */
			for (uint32_t s = 0; s < batch.count; s++) {
				const uint8_t *image =
					(const uint8_t *)batch.images + s * 40 * 40 * 3;
				for (unsigned x = 0; x < 40; x++) {
					uint8_t red = (uint8_t)(x * 3 + batch.samples[s] * 7);
					assert_int_equal(image[(size_t)(39 * 40 + x) * 3], red);
				}
			}
			feed_release(feed, &batch);
		}
		/*
		 * If too few samples remain, no substitute is found and the feed ends with a
		 * reason.
		 */
		assert_true(r == 0 || (r == -EBADMSG && feed_error(feed)[0] != '\0'));
		assert_true(bad > 0 || r < 0);
		feed_close(feed);
	}
	assert_int_equal(fixture_hash(healthy, 30), expected);
	feed_close(healthy);
}

/*
 * After a new file replaces one of the same name, new feeds read the new file and existing feeds
 * the old one.
 */
TEST(replaced)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "replaced", 64, FIXTURE_RAW, 32));
	struct feed_options options = fixture_options(fixture, path, "");
	struct feed_info info = {.size = sizeof(info)}, other = info;
	struct feed_dataset *facts;
	struct feed *old = fixture_open(&options);
	fixture_dataset(fixture, "replaced", 96, FIXTURE_RAW, 32);
	struct feed *new = fixture_open(&options);
	assert_int_equal(feed_info(old, &info), 0);
	assert_int_equal(info.samples, 64);
	assert_int_equal(feed_info(new, &other), 0);
	assert_int_equal(other.samples, 96);
	assert_memory_not_equal(info.dataset_uuid, other.dataset_uuid, 16);
	assert_int_equal(feed_dataset(fixture->socket, path, &facts, NULL), 0);
	assert_memory_equal(facts->uuid, other.dataset_uuid, 16);
	feed_dataset_free(facts);
	assert_true(fixture_hash(old, 10) != fixture_hash(new, 10));
	feed_close(old);
	feed_close(new);
}

TEST_MAIN(set_up, fixture_teardown_running)
