/*
 * A worker that was taken over has a feed's page, and the map of turns, and can write anything to
 * them at any time. What it gets from the fetcher: samples of the dataset, each at most once until
 * it is taken away again.
 */
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/fetch/store_double.h"
#include "tools/fetch/schedule.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { ROUNDS = 4000, SAMPLES = 40, DRAIN = 7 };

static char folder[64];
static uint64_t drawn = 1;

/* xorshift64 (Marsaglia 2003) */
static uint64_t draw(void)
{
	drawn ^= drawn << 13;
	drawn ^= drawn >> 7;
	drawn ^= drawn << 17;
	return drawn;
}

/* A word that is likely to be wrong. */
static uint64_t word(void)
{
	const uint64_t words[] = {0,
				  1,
				  SAMPLES,
				  SAMPLES + 1,
				  FILLING_AHEAD - 1,
				  FILLING_AHEAD,
				  (uint64_t)SAMPLES << FILLING_WISH_TURN | 1,
				  UINT32_MAX,
				  (uint64_t)1 << 63,
				  UINT64_MAX - FILLING_AHEAD,
				  UINT64_MAX};
	uint64_t choice = draw() % 16;

	return choice < sizeof(words) / sizeof(*words) ? words[choice] : draw() >> draw() % 64;
}

static void scribble(const struct fetch_feed *feed)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)feed->page;

	for (unsigned i = 0; i < 8; i++) {
		atomic_store(&words[draw() % (FILLING_PAGE_SIZE / 8)], word());
		atomic_store(&words[draw() % 16], word()); /* positions, and what is waited for */
		atomic_store(&feed->page->wishes[draw() % FILLING_WISHES], word());
		atomic_store(&feed->page->ahead[draw() % 64], word());
	}
	atomic_store(&feed->map->turns[draw() % SAMPLES], (uint8_t)draw());
}

/* Makes the dataset that the store has. */
static void make_dataset(void)
{
	enum { WIDTH = 50, HEIGHT = 20 };
	uint8_t pixels[WIDTH * HEIGHT * 3];
	struct test_dataset data;
	struct stat status;
	char path[128];

	snprintf(path, sizeof(path), "%s/data.pimg", folder);
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct packimg_item item = test_item(pixels, WIDTH, HEIGHT);

		for (size_t j = 0; j < sizeof(pixels); j++)
			pixels[j] = (uint8_t)draw();
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &status), 0);
	store_double->sizes[0] = (size_t)status.st_size;
	store_double->bytes[0] = malloc(store_double->sizes[0]);
	assert_int_equal(read(fd, store_double->bytes[0], store_double->sizes[0]), status.st_size);
	close(fd);
}

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	(void)context, (void)done, (void)total;
	return true;
}

/* Opens the dataset with a cache of `limit` bytes, and a feed of it. */
static void open_feed(struct fetcher *fetcher, const char *limit)
{
	const struct dataset_progress progress = {go_on, NULL};
	const struct feed_memory memory = {-1, -1, false, 0, 1};
	struct packimg_error error;

	setenv("LOADERD_CACHE", folder, 1);
	setenv("LOADERD_CACHE_SIZE", limit, 1);
	*fetcher = (struct fetcher){.store = store_double, .memory = FETCHER_MEMORY_MIN};
	if (cache_init(&fetcher->cache, &error))
		fail_msg("%s", error.text);
	schedule_init(fetcher);
	if (dataset_open(store_double, &fetcher->cache, "s3://bucket/a.pimg", &progress,
			 &fetcher->datasets, &error))
		fail_msg("%s", error.text);
	struct remote_dataset *dataset = fetcher->datasets;
	assert_int_equal(dataset->samples, SAMPLES);
	fetcher->datasets = NULL;
	schedule_share_room(fetcher, dataset);
	fetcher->datasets = dataset;
	dataset->users++;
	assert_int_equal(feed_new(dataset, &memory, &fetcher->feeds), 0);
	if (dataset->room < dataset->bytes)
		assert_int_equal(dataset_count_pages(dataset), 0);
}

static void drain(const struct fetcher *fetcher)
{
	while (store_run(store_double, 0))
		;
	assert_int_equal(fetcher->under_way, 0);
	assert_int_equal(fetcher->datasets->under_way, 0);
	for (uint64_t i = 0; i < SAMPLES; i++)
		assert_int_not_equal(fetcher->datasets->states[i], SAMPLE_UNDER_WAY);
}

static void resist(const char *limit, bool passes)
{
	struct fetcher fetcher;
	uint64_t most = 0;

	open_feed(&fetcher, limit);
	struct remote_dataset *dataset = fetcher.datasets;
	assert_int_equal(dataset->pages != NULL, passes);
	for (unsigned i = 0; i < ROUNDS; i++) {
		scribble(fetcher.feeds);
		atomic_store(&fetcher.feeds->changed, true);
		schedule_run(&fetcher);
		most = store_double->queued > most ? store_double->queued : most;
		if (i % DRAIN == 0)
			drain(&fetcher);
	}
	drain(&fetcher);
	assert_int_equal(dataset->failed, 0);
	assert_true(most > 0);
	assert_true(most <= (uint64_t)SAMPLES * SAMPLE_PARTS_MAX);
	feed_free(fetcher.feeds);
	schedule_close(&fetcher);
	dataset_close(dataset);
}

TEST(pages_that_lie)
{
	resist("1G", false);
}

TEST(pages_that_lie_about_a_full_cache)
{
	uint64_t bytes;
	uint32_t removed, busy;
	struct cache cache;
	struct packimg_error error;

	assert_int_equal(cache_init(&cache, &error), 0);
	cache_clear(&cache, NULL, &bytes, &removed, &busy);
	resist("64K", true);
}

/* Announces a unit of each sample, and opens the page. */
static void announce(struct fetch_feed *feed, const uint64_t *samples, unsigned count,
		     uint64_t batch_units)
{
	for (unsigned i = 0; i < count; i++)
		atomic_store(&feed->page->ahead[i], samples[i] + 1);
	atomic_store(&feed->page->batch_units, batch_units);
	atomic_store(&feed->page->planned, count);
	atomic_store(&feed->page->opened, 1);
	atomic_store(&feed->changed, true);
}

static void wish(struct fetch_feed *feed, unsigned place, uint64_t sample)
{
	atomic_store(&feed->page->wishes[place], (sample + 1) << FILLING_WISH_TURN);
	atomic_store(&feed->changed, true);
}

static bool is_requested(const struct fetcher *fetcher, uint64_t sample)
{
	return fetcher->datasets->states[sample] == SAMPLE_UNDER_WAY;
}

/* Opens a feed of a dataset of which nothing is there. */
static struct fetch_feed *open_empty(struct fetcher *fetcher)
{
	open_feed(fetcher, "1G");
	for (unsigned i = 0; i < SAMPLES; i++)
		if (fetcher->datasets->states[i] == SAMPLE_PRESENT) /* by another test */
			dataset_evict(fetcher->datasets, i);
	return fetcher->feeds;
}

static void close_feed(struct fetcher *fetcher)
{
	drain(fetcher);
	feed_free(fetcher->feeds);
	schedule_close(fetcher);
	dataset_close(fetcher->datasets);
}

TEST(requests_follow_what_is_announced)
{
	static const uint64_t announced[] = {36, 3, 12, 27, 0, 18};
	enum { COUNT = sizeof(announced) / sizeof(*announced) };
	struct fetcher fetcher;
	struct fetch_feed *feed = open_empty(&fetcher);

	announce(feed, announced, COUNT, 1);
	/* the first batches at once, others when the worker has announced what it can */
	int look_ms = schedule_run(&fetcher);
	assert_true(store_double->queued >= FEED_BATCHES);
	while (store_double->queued == FEED_BATCHES) {
		assert_true(look_ms < 10);
		look_ms = schedule_run(&fetcher);
	}
	assert_int_equal(store_double->queued, COUNT);
	assert_true(look_ms >= 10);
	for (unsigned i = 0; i < COUNT; i++) {
		const struct store_request *request = &store_double->queue[i];
		struct sample_part parts[SAMPLE_PARTS_MAX];

		assert_int_equal(dataset_parts(fetcher.datasets, announced[i], 0, parts), 1);
		assert_int_equal(request->urgent, i < FEED_BATCHES);
		assert_int_equal(request->size, parts[0].range.size);
		if (i <= FEED_BATCHES) /* then its neighbours, by offset */
			assert_int_equal(request->offset, parts[0].range.offset);
	}
	close_feed(&fetcher);
}

TEST(urgent_samples_bring_no_neighbours_over_a_slow_link)
{
	static const uint64_t announced[] = {36, 3, 12, 27, 0, 18};
	enum { COUNT = sizeof(announced) / sizeof(*announced), BYTES_PER_S = 100 };
	struct fetcher fetcher;
	struct fetch_feed *feed = open_empty(&fetcher);
	unsigned urgent = 0;

	fetcher.rate.peak = BYTES_PER_S;
	fetcher.rate.measured_bytes = store_counters(store_double).bytes; /* since then, none */
	announce(feed, announced, COUNT, 1);
	schedule_run(&fetcher);
	atomic_store(&feed->page->done, 1);
	atomic_store(&feed->changed, true);
	schedule_run(&fetcher);
	for (unsigned i = 0; i < store_double->queued; i++)
		urgent += store_double->queue[i].urgent;
	assert_int_equal(urgent, 1 + FEED_BATCHES);
	close_feed(&fetcher);
}

TEST(wishes_for_begun_units_wait_for_their_turn)
{
	static const uint64_t announced[] = {36, 3, 12, 27, 0, 18};
	enum { COUNT = sizeof(announced) / sizeof(*announced), BEGUN = 4 };
	struct fetcher fetcher;
	struct fetch_feed *feed = open_empty(&fetcher);

	announce(feed, announced, COUNT, 1);
	atomic_store(&feed->page->begun, BEGUN);
	wish(feed, 0, announced[BEGUN - 1]);
	wish(feed, 1, announced[COUNT - 1]); /* for a unit before */
	wish(feed, 2, 30);                   /* not announced */
	schedule_run(&fetcher);
	assert_true(is_requested(&fetcher, announced[0]));
	assert_true(is_requested(&fetcher, announced[1]));
	assert_false(is_requested(&fetcher, announced[BEGUN - 1]));
	assert_true(is_requested(&fetcher, announced[COUNT - 1]));
	assert_true(is_requested(&fetcher, 30));
	assert_int_equal(store_double->queued, FEED_BATCHES + 2);
	close_feed(&fetcher);
}

TEST(wishes_whose_turn_does_not_come_are_granted)
{
	enum { NEAR = 1, FAR = 2 };
	uint64_t *announced = malloc(FILLING_AHEAD * sizeof(*announced));
	struct fetcher fetcher;
	struct fetch_feed *feed = open_empty(&fetcher);

	/* those that the dataset lacks are units of others */
	for (unsigned i = 0; i < FILLING_AHEAD; i++)
		announced[i] = i == 0 ? NEAR : i + 1 == FILLING_AHEAD ? FAR : SAMPLES;
	announce(feed, announced, FILLING_AHEAD, 1);
	atomic_store(&feed->page->begun, FILLING_AHEAD);
	while (feed->cursor < FILLING_AHEAD / 2)
		schedule_run(&fetcher);
	drain(&fetcher);
	wish(feed, 0, FAR);
	for (unsigned i = 0; i < 4; i++)
		schedule_run(&fetcher);
	assert_true(is_requested(&fetcher, FAR));
	free(announced);
	close_feed(&fetcher);
}

static int setup(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/fetch-page-XXXXXX");
	assert_non_null(mkdtemp(folder));
	make_dataset();
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	free(store_double->bytes[0]);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

TEST_MAIN(setup, teardown)
