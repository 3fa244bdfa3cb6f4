/*
 * The batches are the same for all numbers of threads, slots and ranks, with all instruction sets,
 * and after resuming at any batch or restarting the daemon. Each sample occurs once per epoch.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static const char pipeline[] = "random_resized_crop(48) hflip(0.5)";
enum { SAMPLES = 500, BATCHES = 60 }; /* 15 batches per epoch */

static char dataset[PATH_MAX];

static int set_up(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	strcpy(dataset, fixture_dataset(&fixture, "images", SAMPLES, FIXTURE_JPEG, 0));
	*state = &fixture;
	return 0;
}

static uint64_t hash_of(struct fixture *fixture, const char *steps, const char *environment,
			const char *threads)
{
	struct feed_options options = fixture_options(fixture, dataset, steps);
	fixture_start(fixture, environment, "--threads", threads, NULL);
	struct feed *feed = fixture_open(&options);
	uint64_t hash = fixture_hash(feed, BATCHES);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	return hash;
}

static uint64_t hash_with(struct fixture *fixture, const char *environment, const char *threads)
{
	return hash_of(fixture, pipeline, environment, threads);
}

TEST(threads_and_instruction_sets)
{
	uint64_t hash = hash_with(*state, NULL, "1");
	assert_int_equal(hash_with(*state, NULL, "2"), hash);
	assert_int_equal(hash_with(*state, NULL, "8"), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=c", "2"), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=avx2", "2"), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=avx512bw", "2"), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=avx512", "2"), hash);
}

/* Uses every kernel that changes pixels. */
TEST(augmented)
{
	static const char steps[] = "random_resized_crop(48) hflip color_jitter(0.4, 0.4, 0.4, "
				    "0.1) rand_augment(2, 15, interpolation=bilinear) "
				    "aug_mix gaussian_blur(9, p=0.3) to(f16) normalize(imagenet) "
				    "random_erasing(0.25, value=random)";
	uint64_t hash = hash_of(*state, steps, NULL, "1");

	assert_int_equal(hash_of(*state, steps, NULL, "5"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=c", "2"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=avx2", "2"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=avx512bw", "2"), hash);
}

/* Batches of several shapes. */
TEST(buckets)
{
	static const struct feed_bucket sizes[] = {{32, 32, 0}, {48, 24, 16}, {20, 40, 0}};
	static const struct {
		const char *environment, *threads;
	} runs[] = {
		{NULL, "1"},
		{NULL, "2"},
		{NULL, "8"},
		{"LOADERD_ISA=c", "2"},
		{"LOADERD_ISA=avx2", "2"},
		{"LOADERD_ISA=avx512bw", "2"},
	};
	const struct feed_part part = {.size = sizeof(part), .dataset = dataset};
	const struct feed_part *parts[] = {&part};
	const struct feed_order order = {
		.size = sizeof(order),
		.parts = parts,
		.part_count = 1,
		.buckets = sizes,
		.bucket_count = sizeof(sizes) / sizeof(*sizes),
	};
	uint64_t first = 0;
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
		struct feed_options options =
			fixture_options(*state, NULL, "bucket_resize(crop=random) hflip");
		options.order = &order;
		fixture_start(*state, runs[i].environment, "--threads", runs[i].threads, NULL);
		struct feed *feed = fixture_open(&options);
		uint64_t hash = fixture_hash(feed, BATCHES);
		feed_close(feed);
		assert_int_equal(fixture_stop(*state, SIGTERM), 0);
		first = i == 0 ? hash : first;
		assert_int_equal(hash, first);
	}
}

/* JPEGs of which parts are decoded, for any sample by any thread. */
TEST(mosaics)
{
	static const char steps[] = "mosaic(72x48, p=0.9, scale=0.2:1.5) hflip color_jitter(0.3)";
	uint64_t hash = hash_of(*state, steps, NULL, "1");

	assert_int_equal(hash_of(*state, steps, NULL, "5"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=c", "2"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=avx2", "2"), hash);
	assert_int_equal(hash_of(*state, steps, "LOADERD_ISA=avx512bw", "2"), hash);
}

/* Reads from disk instead of the page cache, so that read-ahead takes place. */
TEST(cold)
{
	uint64_t hash = hash_with(*state, NULL, "2");
	int fd = open(dataset, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fsync(fd), 0); /* the kernel cannot drop dirty pages */
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
	assert_int_equal(hash_with(*state, NULL, "2"), hash);
}

/* Copies a file to a memfd. */
static int copy_to_memory(const char *path)
{
	struct stat status;
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("copy", MFD_CLOEXEC);
	assert_true(from >= 0 && to >= 0);
	assert_int_equal(fstat(from, &status), 0);
	assert_int_equal(sendfile(to, from, NULL, (size_t)status.st_size), status.st_size);
	close(from);
	return to;
}

static uint64_t hash_in_memory(struct fixture *fixture, const char *path, const char *steps,
			       const char *flag)
{
	struct feed_options options = fixture_options(fixture, path, steps);
	fixture_start(fixture, NULL, "--threads", "3", flag, NULL);
	struct feed *feed = fixture_open(&options);
	uint64_t hash = fixture_hash(feed, BATCHES);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	return hash;
}

/* A private daemon maps a memfd; a daemon that may serve other users copies from it. */
TEST(copied_or_mapped)
{
	struct fixture *fixture = *state;
	const char *const steps[] = {pipeline, "resize(40x40) color_jitter(0.4, 0.4, 0.4, 0.1)",
				     "mosaic(40x32) hflip"};
	char jpeg[64], raw[64];
	snprintf(jpeg, sizeof(jpeg), "/proc/self/fd/%d", copy_to_memory(dataset));
	snprintf(raw, sizeof(raw), "/proc/self/fd/%d",
		 copy_to_memory(fixture_dataset(fixture, "raw", SAMPLES / 5, FIXTURE_RAW, 50)));
	for (unsigned i = 0; i < 6; i++) {
		const char *path = i % 2 ? raw : jpeg, *with = steps[i / 2];
		uint64_t hash = hash_in_memory(fixture, path, with, "--private");
		assert_int_equal(hash_in_memory(fixture, path, with, NULL), hash);
	}
}

TEST(resume_anywhere)
{
	struct fixture *fixture = *state;
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	uint64_t hashes[40];
	options.last = FEED_LAST_SHORT; /* 16 batches per epoch; the last has 20 samples */
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	struct feed *feed = fixture_open(&options);
	for (unsigned i = 0; i < 40; i++)
		hashes[i] = fixture_hash_next(feed);
	feed_close(feed);
	for (unsigned i = 0; i < 38; i++) {
		/* The daemon is killed and restarted in the middle. */
		if (i == 20) {
			fixture_stop(fixture, SIGKILL);
			fixture_start(fixture, NULL, "--threads", "3", NULL);
		}
		options.epoch = i / 16;
		options.batch = i % 16;
		options.slots = 2 + i % 5;
		feed = fixture_open(&options);
		assert_int_equal(fixture_hash_next(feed), hashes[i]);
		assert_int_equal(fixture_hash_next(feed), hashes[i + 1]);
		uint64_t epoch, batch;
		assert_int_equal(feed_position(feed, &epoch, &batch), 0);
		feed_close(feed);
		if (i + 2 < 40) {
			options.epoch = epoch;
			options.batch = batch;
			feed = fixture_open(&options);
			assert_int_equal(fixture_hash_next(feed), hashes[i + 2]);
			feed_close(feed);
		}
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Marks the samples that one rank gets in one epoch; returns their number. */
static unsigned see(struct fixture *fixture, uint32_t rank, uint32_t world, unsigned seen[SAMPLES])
{
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	unsigned total = 0;
	options.rank = rank;
	options.world = world;
	options.batch_size = 32 / world;
	options.last = FEED_LAST_SHORT;
	options.epoch = 3;
	options.epoch_end = 4;
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		for (uint32_t i = 0; i < batch.count; i++) {
			assert_true(batch.samples[i] < SAMPLES);
			assert_int_equal(batch.labels[i], batch.samples[i] % 10);
			assert_int_equal(batch.flags[i], 0);
			seen[batch.samples[i]]++;
		}
		total += batch.count;
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	assert_int_equal(r, FEED_END);
	feed_close(feed);
	return total;
}

TEST(ranks_see_each_sample_once)
{
	struct fixture *fixture = *state;
	fixture_start(fixture, NULL, NULL);
	for (uint32_t world = 1; world <= 4; world *= 2) {
		unsigned seen[SAMPLES] = {0}, total = 0;
		for (uint32_t rank = 0; rank < world; rank++)
			total += see(fixture, rank, world, seen);
		assert_int_equal(total, SAMPLES);
		for (unsigned i = 0; i < SAMPLES; i++)
			assert_int_equal(seen[i], 1);
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

static void check_fields(struct feed *feed, const struct feed_batch *batch)
{
	struct feed_field number, half, word;
	assert_int_equal(feed_field(feed, batch, 0, &number), 0);
	assert_int_equal(feed_field(feed, batch, 1, &half), 0);
	assert_int_equal(feed_field(feed, batch, 2, &word), 0);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t index = batch->samples[i];
		char expected[64];
		uint32_t size;
		const char *cell = (const char *)word.values + i * word.stride;
		snprintf(expected, sizeof(expected), "sample %llu", (unsigned long long)index);
		unsigned flags = (index % 3 == 0 ? FEED_SAMPLE_FIELD_MISSING : 0) |
				 (strlen(expected) > 9 ? FEED_SAMPLE_FIELD_CUT : 0);
		assert_int_equal(((const int64_t *)number.values)[i], index);
		assert_true(((const double *)half.values)[i] ==
			    (index % 3 == 0 ? 0 : (double)index / 2));
		memcpy(&size, cell, sizeof(size));
		assert_int_equal(size, strlen(expected) > 9 ? 9 : strlen(expected));
		assert_memory_equal(cell + sizeof(size), expected, size);
		assert_int_equal(batch->flags[i], flags);
	}
}

TEST(fields)
{
	static const char *const names[] = {"number", "half", "word"};
	struct fixture *fixture = *state;
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	options.fields = names;
	options.field_count = 3;
	options.field_bytes = 9;
	options.cut_values = 1;
	options.epoch_end = 1;
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned batches = 0;
	while (feed_next(feed, 60000, &batch) == 0) {
		check_fields(feed, &batch);
		feed_release(feed, &batch);
		batches++;
	}
	assert_int_equal(batches, SAMPLES / 32);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * The client holds several batches and releases them out of order; image sizes follow a schedule.
 */
TEST(held_and_progressive)
{
	struct fixture *fixture = *state;
	struct feed_options options =
		fixture_options(fixture, dataset, "random_resized_crop(24@0;32@1;40@2)");
	options.slots = 5;
	options.epoch_end = 3;
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	struct feed_batch held[4];
	for (unsigned i = 0; i < 44; i += 4) {
		for (unsigned j = 0; j < 4; j++) {
			held[j].size = sizeof(held[j]);
			assert_int_equal(feed_next(feed, 60000, &held[j]), 0);
			assert_int_equal(held[j].epoch, (i + j) / 15);
			assert_int_equal(held[j].batch, (i + j) % 15);
			assert_int_equal(held[j].width, 24 + 8 * held[j].epoch);
		}
		static const unsigned order[4] = {2, 0, 3, 1};
		for (unsigned j = 0; j < 4; j++)
			assert_int_equal(feed_release(feed, &held[order[j]]), 0);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST_MAIN(set_up, fixture_teardown)
