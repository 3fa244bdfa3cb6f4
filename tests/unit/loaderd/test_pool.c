/*
 * The pool: feeds get equal CPU time whatever their samples cost, new feeds do not displace others,
 * and a feed can be removed at any time.
 */
#include "loaderd/pool/pool.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_batcher.h"

#include <pthread.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/*
 * Samples that are expensive but deliver few bytes: a feed's slots then hold seconds of CPU time,
 * so that clients need not keep up with the pool on a loaded machine. With a sanitizer, where
 * shares are not measured, small samples cost as much.
 */
enum {
	SAMPLES = 32,
	SIDE = SANITIZED ? 128 : 512,
	BATCH_SIZE = 32,
	SLOTS = 256,
	SLOTS_TO_FILL = 64,
};
/*
 * CPU time over which shares are measured: many samples, so that time accounted late is negligible.
 */
enum { WINDOW_MS = 150, PATIENCE_MS = 600000 };

static char folder[] = "/tmp/loaderd-pool-XXXXXX";
static char path[128];
static struct dataset *dataset;
static struct cpus cpus;

static int set_up(void **state)
{
	static uint8_t pixels[SIDE * SIDE * 3];
	struct test_dataset data;
	uint32_t noise = 1;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pool.pimg", folder);
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		for (size_t j = 0; j < sizeof(pixels); j++) {
			noise = noise * 1664525 + 1013904223;
			pixels[j] = (uint8_t)(noise >> 26);
		}
		struct packimg_item item = test_item(pixels, SIDE, SIDE);
		test_item_to_jpeg(&data, &item, 95);
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	assert_int_equal(sigbus_guard_install(), 0);
	dataset = own_dataset(path);
	assert_int_equal(cpus_init(&cpus, NULL), 0);
	return 0;
}

static int tear_down(void **state)
{
	dataset_free(dataset);
	unlink(path);
	rmdir(folder);
	return 0;
}

static void no_doorbell(void *user)
{
}

static void no_report(void *user, struct dataset *d, uint64_t index, const char *text)
{
	abort();
}

static struct batcher *new_batcher(const char *pipeline, uint32_t slots, unsigned threads)
{
	struct batcher_options options = {
		.dataset = dataset,
		.order = {.samples = SAMPLES,
			  .batch_size = BATCH_SIZE,
			  .world = 1,
			  .shuffle = true,
			  .seed = 1},
		.slots = slots,
		.threads = threads,
		.thread_indices = 2 * threads,
		.doorbell = no_doorbell,
		.report = no_report,
		.io = {.mode = IO_MMAP, .bytes = 1 << 20, .queue_depth = 8},
	};
	struct pipeline_error error;
	assert_int_equal(order_init(&options.order), 0);
	assert_int_equal(pipeline_parse(pipeline, &options.pipeline, &error), 0);
	return fake_batcher(&options);
}

/*
 * A client that takes every batch immediately. One thread serves all clients of a test, so that it
 * delays them equally.
 */
struct client {
	struct batcher *batcher;
	struct ring_consumer ring;
	uint64_t batches;
};

static void open_client(struct client *client, struct batcher *batcher)
{
	client->batcher = batcher;
	client->batches = 0;
	assert_int_equal(ring_consumer_map(&client->ring, batcher->ring.ring_fd,
					   batcher->ring.ack_fd, RING_MAP_READ_ONLY),
			 0);
	assert_int_equal(ring_producer_start(&batcher->ring), 0);
	assert_int_equal(ring_consumer_check(&client->ring), 0);
}

static void serve(struct pool *pool, struct client *client)
{
	const struct ring_slot *slot;
	while ((slot = ring_take(&client->ring))) {
		client->batches++;
		if (ring_ack(&client->ring, slot->number) == 1)
			pool_kick(pool, client->batcher);
	}
}

static uint64_t cpu_ns(const struct batcher *batcher)
{
	struct batcher_status status;
	batcher_status((struct batcher *)batcher, &status);
	return stages_work(status.stage_ns);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

static void reap(struct pool *pool, struct batcher *batcher)
{
	struct batcher *reaped;
	pool_remove(pool, batcher);
	while (!(reaped = pool_reap(pool)))
		usleep(100);
	assert_ptr_equal(reaped, batcher);
}

static void close_client(struct pool *pool, struct client *client)
{
	reap(pool, client->batcher);
	ring_consumer_deinit(&client->ring);
	batcher_free(client->batcher);
}

static uint64_t cpu_ns_of(struct client *clients, unsigned count)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += cpu_ns(clients[i].batcher);
	return sum;
}

/* Waits until the feeds have used this much CPU time in total. */
static void run_for(struct client *clients, unsigned count, uint64_t ns)
{
	uint64_t end = cpu_ns_of(clients, count) + ns, deadline_ms = now_ms() + PATIENCE_MS;
	while (cpu_ns_of(clients, count) < end) {
		assert_true(now_ms() < deadline_ms);
		usleep(200);
	}
}

static void assert_share(uint64_t part, uint64_t whole, double expected)
{
	double share = (double)part / (double)whole;
	if (share < expected * 0.8 || share > expected * 1.2)
		fail_msg("a feed had %.0f %% of the CPU time, expected %.0f %%", share * 100,
			 expected * 100);
}

#define MS UINT64_C(1000000)

/*
 * Skips the test: shares are measured in claims of 100 us, but with a sanitizer a single sample
 * would take longer than a whole test should.
 */
static void skip_when_slow(void)
{
	if (SANITIZED)
		skip();
}

/* Samples of one feed cost several times those of another. */
TEST(equal_shares)
{
	static const char *const pipelines[3] = {"resize(16x16)", "center_crop(200) resize(40x40)",
						 "center_crop(128) resize(32x32)"};
	struct pool *pool;
	struct client clients[3];
	skip_when_slow();
	assert_int_equal(pool_new(2, &cpus, &pool), 0);
	for (unsigned i = 0; i < 3; i++)
		open_client(&clients[i], new_batcher(pipelines[i], SLOTS, 2));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pool_add(pool, clients[i].batcher), 0);
	uint64_t before[3], whole = 0;
	for (unsigned i = 0; i < 3; i++)
		before[i] = cpu_ns(clients[i].batcher);
	run_for(clients, 3, WINDOW_MS * MS);
	for (unsigned i = 0; i < 3; i++) {
		before[i] = cpu_ns(clients[i].batcher) - before[i];
		whole += before[i];
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_share(before[i], whole, 1.0 / 3);
		close_client(pool, &clients[i]);
	}
	pool_free(pool);
}

/* A feed that starts later gets no compensation for the time before its start. */
TEST(newcomers)
{
	struct pool *pool;
	struct client clients[2];
	skip_when_slow();
	assert_int_equal(pool_new(2, &cpus, &pool), 0);
	open_client(&clients[0], new_batcher("resize(16x16)", SLOTS, 2));
	open_client(&clients[1], new_batcher("resize(17x17)", SLOTS, 2));
	assert_int_equal(pool_add(pool, clients[0].batcher), 0);
	run_for(clients, 1, WINDOW_MS * MS);
	assert_int_equal(pool_add(pool, clients[1].batcher), 0);
	uint64_t before = cpu_ns(clients[0].batcher);
	run_for(clients, 2, WINDOW_MS * MS);
	uint64_t first = cpu_ns(clients[0].batcher) - before;
	assert_share(first, first + cpu_ns(clients[1].batcher), 0.5);
	close_client(pool, &clients[0]);
	close_client(pool, &clients[1]);
	pool_free(pool);
}

/* A feed whose client has paused gets no compensation either. */
TEST(pauses)
{
	struct pool *pool;
	struct client clients[2];
	struct batcher_status status;
	skip_when_slow();
	assert_int_equal(pool_new(2, &cpus, &pool), 0);
	open_client(&clients[0], new_batcher("resize(16x16)", SLOTS_TO_FILL, 2));
	open_client(&clients[1], new_batcher("resize(17x17)", SLOTS_TO_FILL, 2));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pool_add(pool, clients[i].batcher), 0);
	uint64_t deadline_ms = now_ms() + PATIENCE_MS;
	do {
		serve(pool, &clients[0]);
		batcher_status(clients[1].batcher, &status);
		assert_true(now_ms() < deadline_ms);
		usleep(200);
	} while (status.slots_ready <
		 SLOTS_TO_FILL); /* the second feed pauses, because its slots are full */
	serve(pool, &clients[0]);
	run_for(clients, 1, WINDOW_MS * MS);
	serve(pool, &clients[0]);
	serve(pool, &clients[1]);
	uint64_t before[2] = {cpu_ns(clients[0].batcher), cpu_ns(clients[1].batcher)};
	run_for(clients, 2, WINDOW_MS * MS);
	uint64_t first = cpu_ns(clients[0].batcher) - before[0];
	uint64_t second = cpu_ns(clients[1].batcher) - before[1];
	assert_share(first, first + second, 0.5);
	close_client(pool, &clients[0]);
	close_client(pool, &clients[1]);
	pool_free(pool);
}

TEST(removal)
{
	struct pool *pool;
	struct client steady;
	assert_int_equal(pool_new(4, &cpus, &pool), 0);
	open_client(&steady, new_batcher("resize(64x64)", 4, 4));
	assert_int_equal(pool_add(pool, steady.batcher), 0);
	for (unsigned i = 0; i < 60; i++) {
		struct client client;
		open_client(&client, new_batcher("resize(128x128)", 4, 4));
		assert_int_equal(pool_add(pool, client.batcher), 0);
		serve(pool, &steady);
		usleep(i % 10 * 50);
		serve(pool, &client);
		close_client(pool, &client);
	}
	assert_true(steady.batches > 0);
	close_client(pool, &steady);
	pool_free(pool);
}

/*
 * Waits until all slots are full and all pool threads sleep, in several consecutive checks: idle
 * time is accounted late, and in the first check a thread that has just gone to sleep may hide one
 * that has not.
 */
static void wait_until_idle(struct pool *pool, struct client *client, uint32_t slots,
			    unsigned threads)
{
	enum { LOOKS = 4 };
	struct batcher_status status;
	uint64_t deadline_ms = now_ms() + PATIENCE_MS, wall_ns, idle_ns;
	for (unsigned looks = 0; looks < LOOKS;) {
		assert_true(now_ms() < deadline_ms);
		wall_ns = now_ns();
		idle_ns = pool_idle_ns(pool);
		usleep(5000);
		idle_ns = pool_idle_ns(pool) - idle_ns;
		wall_ns = now_ns() - wall_ns;
		batcher_status(client->batcher, &status);
		bool asleep =
			status.slots_ready >= slots && idle_ns >= wall_ns * threads / 100 * 99;
		looks = asleep ? looks + 1 : 0;
	}
}

/* Workers sleep if all slots are full. */
TEST(idle)
{
	struct pool *pool;
	struct client client;
	skip_when_slow();
	assert_int_equal(pool_new(8, &cpus, &pool), 0);
	open_client(&client, new_batcher("resize(64x64)", 4, 8));
	assert_int_equal(pool_add(pool, client.batcher), 0);
	wait_until_idle(pool, &client, 4, 8);
	struct timespec before, after;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep(300000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	int64_t used_ns = (int64_t)(after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec -
			  before.tv_nsec;
	assert_true(used_ns < 20 * 1000 * 1000);
	close_client(pool, &client);
	pool_free(pool);
}

static uint64_t process_cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void assert_within(uint64_t value, uint64_t expected, unsigned percent)
{
	if (value * 100 > expected * (100 + percent) || value * 100 < expected * (100 - percent))
		fail_msg("%.1f ms, expected %.1f ms", (double)value / 1e6, (double)expected / 1e6);
}

/*
 * Idle time at one moment, with the clock before and after it, because the thread may lose the CPU
 * in between.
 */
struct idle_sample {
	uint64_t before_ns, idle_ns, after_ns;
};

static struct idle_sample sample_idle_time(const struct pool *pool)
{
	struct idle_sample look = {.before_ns = now_ns()};
	look.idle_ns = pool_idle_ns(pool);
	look.after_ns = now_ns();
	return look;
}

/*
 * Many more threads than CPUs, and pauses without work. The stages must sum to the CPU time used
 * and, together with waiting and idle time, to the total time of the threads. Begins and ends with
 * all threads idle, so that all time is accounted.
 */
TEST(accounts)
{
	enum { THREADS = 12, FEW = 4 };
	struct pool *pool;
	struct client client;
	struct batcher_status status;
	assert_int_equal(pool_new(THREADS, &cpus, &pool), 0);
	open_client(&client, new_batcher("resize(64x64)", FEW, THREADS));
	wait_until_idle(pool, &client, 0, THREADS);
	uint64_t cpu = process_cpu_ns();
	struct idle_sample begin = sample_idle_time(pool);
	assert_int_equal(pool_add(pool, client.batcher), 0);
	for (unsigned i = 0; i < 3; i++) {
		wait_until_idle(pool, &client, FEW, THREADS);
		serve(pool, &client);
	}
	wait_until_idle(pool, &client, FEW, THREADS);
	batcher_status(client.batcher, &status);
	struct idle_sample end = sample_idle_time(pool);
	cpu = process_cpu_ns() - cpu;
	assert_true(end.idle_ns > begin.idle_ns && status.stage_ns[STAGE_QUEUED] > 0);
	assert_within(cpu_ns(client.batcher), cpu, 10);
	uint64_t sum_ns = cpu_ns(client.batcher) + status.stage_ns[STAGE_WAIT] +
			  status.stage_ns[STAGE_QUEUED] + end.idle_ns - begin.idle_ns;
	uint64_t ns_min = (end.before_ns - begin.after_ns) * THREADS;
	uint64_t ns_max = (end.after_ns - begin.before_ns) * THREADS;
	assert_in_range(sum_ns, ns_min / 100 * 98, ns_max / 100 * 102);
	close_client(pool, &client);
	pool_free(pool);
}

static int gate[2];
static _Atomic unsigned blocked_threads;

/* Blocks a pool thread, like storage that does not respond. */
static void hang(void *user)
{
	char byte;
	atomic_fetch_add(&blocked_threads, 1);
	assert_int_equal(read(gate[0], &byte, 1), 0);
}

static void serve_until(struct pool *pool, struct client *client, uint64_t batches)
{
	uint64_t deadline_ms = now_ms() + PATIENCE_MS;
	while (client->batches < batches) {
		assert_true(now_ms() < deadline_ms);
		pool_replace_blocked(pool);
		serve(pool, client);
		usleep(1000);
	}
}

static void open_hanging(struct pool *pool, struct client *client, unsigned threads)
{
	open_client(client, new_batcher("resize(16x16)", SLOTS, threads));
	client->batcher->options.doorbell = hang;
	assert_int_equal(pool_add(pool, client->batcher), 0);
}

/*
 * Waits until this many threads are blocked, the last of them in this feed, before any has been
 * replaced.
 */
static void wait_until_blocked(struct pool *pool, struct client *client, unsigned threads)
{
	uint64_t deadline_ms = now_ms() + PATIENCE_MS;
	while (blocked_threads < threads) {
		assert_true(now_ms() < deadline_ms);
		ring_consumer_arm(&client->ring, 1);
		serve(pool, client);
		usleep(1000);
	}
}

/*
 * All threads block in one feed: another feed makes progress, and so does the first one once it is
 * unblocked.
 */
TEST(hung_feed)
{
	enum { THREADS = 2 };
	struct pool *pool;
	struct client hung, other;
	blocked_threads = 0;
	assert_int_equal(pipe(gate), 0);
	assert_int_equal(pool_new(THREADS, &cpus, &pool), 0);
	open_hanging(pool, &hung, THREADS);
	wait_until_blocked(pool, &hung, THREADS);
	open_client(&other, new_batcher("resize(16x16)", SLOTS, THREADS));
	assert_int_equal(pool_add(pool, other.batcher), 0);
	serve_until(pool, &other, 3);
	assert_int_equal(hung.batcher->stuck_threads, THREADS);
	assert_int_equal(blocked_threads, THREADS);
	close(gate[1]);
	serve_until(pool, &hung, hung.batches + 3);
	serve_until(pool, &other, other.batches + 3);
	assert_int_equal(hung.batcher->stuck_threads, 0);
	close_client(pool, &hung);
	close_client(pool, &other);
	pool_free(pool);
	close(gate[0]);
}

/* Workers and their replacements block for longer than the detection takes. */
TEST(all_hung)
{
	enum { THREADS = 2, SEEN_MS = 3000 };
	struct pool *pool;
	struct client first, second;
	blocked_threads = 0;
	assert_int_equal(pipe(gate), 0);
	assert_int_equal(pool_new(THREADS, &cpus, &pool), 0);
	open_hanging(pool, &first, THREADS);
	wait_until_blocked(pool, &first, THREADS);
	while (first.batcher->stuck_threads < THREADS) {
		pool_replace_blocked(pool);
		usleep(1000);
	}
	open_hanging(pool, &second, THREADS);
	wait_until_blocked(pool, &second, pool_thread_indices(pool));
	for (uint64_t until_ms = now_ms() + SEEN_MS; now_ms() < until_ms; usleep(1000))
		pool_replace_blocked(pool);
	assert_int_equal(first.batcher->stuck_threads + second.batcher->stuck_threads, THREADS);
	close(gate[1]);
	serve_until(pool, &first, first.batches + 3);
	serve_until(pool, &second, second.batches + 3);
	assert_int_equal(first.batcher->stuck_threads + second.batcher->stuck_threads, 0);
	close_client(pool, &first);
	close_client(pool, &second);
	pool_free(pool);
	close(gate[0]);
}

TEST(cpu_lists)
{
	struct cpus some;
	char first[16];
	snprintf(first, sizeof(first), "%d", cpus.number[0]);
	assert_int_equal(cpus_init(&some, first), 0);
	assert_int_equal(some.count, 1);
	assert_int_equal(some.number[0], cpus.number[0]);
	assert_int_equal(cpus_init(&some, "1023"),
			 -19); /* expects ENODEV: no test machine has this node */
	static const char *const wrong[] = {"x", "1-", "-1", "3-1", "1,,2", "1,", "9999", "1 2"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(cpus_init(&some, wrong[i]), -22);
}

TEST_MAIN(set_up, tear_down)
