/*
 * Feeds of files that are being filled while they are read. Whatever happens to the process that
 * fills them, every batch equals that of a feed of the complete file, or a sample that did not come
 * is bad, with its cause.
 */
#include "format/layout.h"
#include "tests/integration/loaderd/fetcher.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>

enum { SAMPLES = 320, BATCHES = SAMPLES / 32 };

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";

struct scene {
	struct fixture *fixture;
	char path[PATH_MAX];
	struct fetcher fetcher;
	struct feed_options local, filling;
};

static void scene_init(struct scene *scene, struct fixture *fixture, const char *transforms)
{
	scene->fixture = fixture;
	snprintf(scene->path, sizeof(scene->path), "%s",
		 fixture_dataset(fixture, "filling", SAMPLES, FIXTURE_JPEG, 0));
	fetcher_init(&scene->fetcher, scene->path);
	scene->local = fixture_options(fixture, scene->path, transforms);
	scene->filling = scene->local;
	fetcher_use(&scene->fetcher, &scene->filling);
}

static void scene_deinit(struct scene *scene)
{
	fetcher_deinit(&scene->fetcher);
	unlink(scene->path);
}

/* Compares the next batches of both feeds. */
static void expect_equal(struct feed *local, struct feed *filling, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(fixture_hash_next(filling), fixture_hash_next(local));
}

TEST(a_slow_fetcher)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.pace_us = 500;
	fetcher_start(&scene.fetcher, &plan);
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	expect_equal(local, filling, 2 * BATCHES);
	assert_int_equal(atomic_load(&scene.fetcher.counts->copied), SAMPLES);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

/*
 * Samples are taken away at random, while they are read among other times, until thousands have
 * been: each is in the file for a short while only.
 */
static void evict(struct fixture *fixture, const char *transforms, uint64_t evictions)
{
	struct scene scene;
	scene_init(&scene, fixture, transforms);
	struct fetcher_plan plan = fetcher_plan();
	plan.evictions = 3;
	fetcher_start(&scene.fetcher, &plan);
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	while (atomic_load(&scene.fetcher.counts->evicted) < evictions)
		expect_equal(local, filling, BATCHES);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

TEST(samples_are_taken_away)
{
	evict(*state, pipeline, 3000);
}

TEST(partners_are_taken_away)
{
	evict(*state, "random_resized_crop(32) mixup(0.2)", 1000);
}

TEST(samples_of_mosaics_are_taken_away)
{
	evict(*state, "mosaic(64)", 1000);
}

TEST(the_fetcher_is_killed)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.evictions = 1;
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	for (unsigned life = 0; life < 100; life++) {
		fetcher_start(&scene.fetcher, &plan);
		usleep(life % 10 * 1000);
		if (life % 4 == 0)
			expect_equal(local, filling, 1);
		fetcher_kill(&scene.fetcher);
	}
	plan.evictions = 0;
	fetcher_start(&scene.fetcher, &plan);
	expect_equal(local, filling, BATCHES);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

TEST(the_service_is_killed)
{
	struct scene scene;
	struct fixture *fixture = *state;
	struct feed_daemon *daemon;
	char error[FEED_ERROR_MAX];
	scene_init(&scene, fixture, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.evictions = 1;
	fetcher_start(&scene.fetcher, &plan);
	assert_int_equal(feed_daemon_start(NULL, 1, &daemon, error), 0);
	scene.local.socket = feed_daemon_socket(daemon);
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	for (unsigned life = 0; life < 6; life++) {
		expect_equal(local, filling, 7);
		if (life % 2 == 0) {
			kill(fixture_worker(fixture), SIGKILL);
		} else {
			fixture_stop(fixture, SIGKILL);
			fixture_start(fixture, NULL, "--threads", "2", NULL);
		}
	}
	expect_equal(local, filling, BATCHES);
	feed_close(local);
	feed_close(filling);
	feed_daemon_stop(daemon);
	scene_deinit(&scene);
}

TEST(wrong_bytes_are_fetched_again)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.wrong = 17;
	plan.wrong_times = 1;
	fetcher_start(&scene.fetcher, &plan);
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	expect_equal(local, filling, BATCHES);
	assert_int_equal(atomic_load(&scene.fetcher.counts->wrong), 1);
	assert_int_equal(atomic_load(&scene.fetcher.counts->suspects), 1);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

/* A sample that was right before it was taken away is verified again. */
TEST(wrong_bytes_of_a_later_turn_are_fetched_again)
{
	const uint64_t sample = 17;
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	scene.local.wanted = scene.filling.wanted = 1;
	scene.local.shuffle = scene.filling.shuffle = 0;
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	struct fetcher_plan plan = fetcher_plan();
	for (unsigned i = 0; i < 2; i++) {
		fetcher_start(&scene.fetcher, &plan);
		assert_int_equal(feed_want(local, i, &sample, 1), 0);
		assert_int_equal(feed_want(filling, i, &sample, 1), 0);
		expect_equal(local, filling, 1);
		fetcher_kill(&scene.fetcher);
		atomic_fetch_add(&scene.fetcher.turns[sample], 1);
		plan.wrong = sample;
		plan.wrong_times = 1;
	}
	assert_int_equal(atomic_load(&scene.fetcher.counts->wrong), 1);
	assert_int_equal(atomic_load(&scene.fetcher.counts->suspects), 1);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

/* Expects that one sample of an epoch is bad, and its cause in the status. */
static void expect_bad(struct scene *scene, uint64_t index, const char *cause)
{
	struct feed *feed = fixture_open(&scene->filling);
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned bad = 0;
	for (unsigned i = 0; i < BATCHES; i++) {
		int r = feed_next(feed, 60000, &batch);
		if (r != 0)
			fail_msg("feed_next: %d, %s", r, feed_error(feed));
		bad += batch.bad;
		for (uint32_t k = 0; k < batch.count; k++)
			assert_true(batch.samples[k] != index);
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	assert_int_equal(bad, 1);
	feed_close(feed);
	Loaderd__Reply *reply = fixture_status(scene->fixture);
	const Loaderd__BadSampleRecord *record = reply->status->bad[0];
	assert_true(reply->status->n_bad > 0);
	assert_int_equal(record->index, index);
	assert_non_null(strstr(record->text, cause));
	loaderd__reply__free_unpacked(reply, NULL);
}

static void expect_failure(struct scene *scene, const char *cause)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	scene->filling.bad = FEED_BAD_FAIL;
	struct feed *feed = fixture_open(&scene->filling);
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0)
		assert_int_equal(feed_release(feed, &batch), 0);
	assert_true(r < 0);
	assert_non_null(strstr(feed_error(feed), cause));
	feed_close(feed);
}

TEST(bytes_that_stay_wrong_are_a_bad_sample)
{
	static const char cause[] = "sample 17: stored bytes do not match their checksum";
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.wrong = 17;
	plan.wrong_times = UINT_MAX;
	fetcher_start(&scene.fetcher, &plan);
	expect_bad(&scene, 17, cause);
	scene.filling.bad = FEED_BAD_SKIP;
	expect_bad(&scene, 17, cause);
	expect_failure(&scene, cause);
	scene_deinit(&scene);
}

TEST(a_sample_that_does_not_come_is_bad)
{
	static const char cause[] = "sample 23: was not fetched within 300 ms";
	struct scene scene;
	struct fixture *fixture = *state;
	fixture_stop(fixture, SIGTERM);
	fixture_start(fixture, NULL, "--threads", "2", "--set", "io.remote_timeout_ms=300", NULL);
	scene_init(&scene, fixture, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.never = 23;
	fetcher_start(&scene.fetcher, &plan);
	expect_bad(&scene, 23, cause);
	scene.filling.bad = FEED_BAD_SKIP;
	expect_bad(&scene, 23, cause);
	expect_failure(&scene, cause);
	/* Without a fetcher the feed ends, after the time for a sample and for its replacement. */
	fetcher_kill(&scene.fetcher);
	scene_deinit(&scene);
	scene_init(&scene, fixture, pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&scene.filling);
	assert_true(feed_next(feed, 60000, &batch) < 0);
	assert_non_null(strstr(feed_error(feed), "replacements could not be decoded"));
	feed_close(feed);
	scene_deinit(&scene);
	fixture_stop(fixture, SIGTERM);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
}

/* With the only thread of the pool. A sample that is waited for keeps nothing else. */
TEST(a_feed_that_waits_holds_up_nothing)
{
	struct scene scene;
	struct fixture *fixture = *state;
	fixture_stop(fixture, SIGTERM);
	fixture_start(fixture, NULL, "--threads", "1", NULL);
	scene_init(&scene, fixture, pipeline);
	struct feed *waits = fixture_open(&scene.filling);
	fetcher_wait_for_wish(&scene.fetcher);
	struct feed *local = fixture_open(&scene.local);
	uint64_t hash = fixture_hash(local, BATCHES);
	struct feed_batch batch = {.size = sizeof(batch)};
	assert_int_equal(feed_next(waits, 0, &batch), -ETIMEDOUT);
	/* The wait's end would come after two minutes. */
	feed_close(waits);
	while (fixture_mappings(fixture_worker(fixture), "memfd:page") > 0)
		usleep(1000);
	feed_close(local);
	struct fetcher_plan plan = fetcher_plan();
	fetcher_start(&scene.fetcher, &plan);
	waits = fixture_open(&scene.filling);
	assert_int_equal(fixture_hash(waits, BATCHES), hash);
	feed_close(waits);
	scene_deinit(&scene);
	fixture_stop(fixture, SIGTERM);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
}

TEST(a_wanted_feed)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	struct fetcher_plan plan = fetcher_plan();
	plan.wished_only = true;
	plan.evictions = 1;
	fetcher_start(&scene.fetcher, &plan);
	scene.local.wanted = scene.filling.wanted = 1;
	scene.local.shuffle = scene.filling.shuffle = 0;
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	for (uint64_t i = 0; i < 40; i++) {
		const uint64_t samples[] = {i * 7 % SAMPLES, i * 31 % SAMPLES, i * 7 % SAMPLES};
		assert_int_equal(feed_want(local, i, samples, 3), 0);
		assert_int_equal(feed_want(filling, i, samples, 3), 0);
		expect_equal(local, filling, 1);
	}
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

static void expect_refusal(const struct feed_options *options, const char *text)
{
	struct feed *feed;
	char error[FEED_ERROR_MAX] = "";
	assert_true(feed_open(options, &feed, error) < 0);
	if (!strstr(error, text))
		fail_msg("\"%s\" is not in: %s", text, error);
}

/* Turns a section of the mirror into a hole. */
static void make_hole(const struct scene *scene, uint32_t type)
{
	struct pimg_header header;
	int fd = open(scene->fetcher.mirror, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	const struct pimg_section *section = header.sections;
	while (section->type != type)
		section++;
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)section->offset, (off_t)section->size),
			 0);
	close(fd);
}

TEST(an_incomplete_index_is_refused)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	make_hole(&scene, PIMG_SECTION_INDEX);
	expect_refusal(&scene.filling, "its index is incomplete or damaged; all but the samples");
	make_hole(&scene, PIMG_SECTION_CLASSES);
	expect_refusal(&scene.filling, "is not terminated UTF-8");
	expect_refusal(&scene.filling, "all but the samples must be there before a feed opens");
	scene_deinit(&scene);
}

TEST(several_parts_are_refused)
{
	struct scene scene;
	scene_init(&scene, *state, pipeline);
	const struct feed_part part = {.size = sizeof(part), .dataset = scene.fetcher.mirror};
	const struct feed_part *const parts[] = {&part, &part};
	const uint32_t shares[] = {1, 1};
	const struct feed_stage stage = {.shares = shares};
	struct feed_order order = {.size = sizeof(order),
				   .parts = parts,
				   .part_count = 2,
				   .stages = &stage,
				   .stage_count = 1};
	scene.filling.dataset = NULL;
	scene.filling.order = &order;
	expect_refusal(&scene.filling,
		       "filling: a feed of several parts cannot tell whose files are being filled");
	/* One part is as good as a dataset. */
	order.part_count = 1;
	order.stage_count = 0;
	struct fetcher_plan plan = fetcher_plan();
	fetcher_start(&scene.fetcher, &plan);
	struct feed *local = fixture_open(&scene.local), *filling = fixture_open(&scene.filling);
	expect_equal(local, filling, BATCHES);
	feed_close(local);
	feed_close(filling);
	scene_deinit(&scene);
}

static int setup(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	fixture_start(&fixture, NULL, "--threads", "2", NULL);
	*state = &fixture;
	return 0;
}

TEST_MAIN(setup, fixture_teardown_running)
