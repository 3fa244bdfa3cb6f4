/*
 * Workers that end.
 * - A sample that crashes its decoder becomes bad, but no other sample does, and the feed
 * continues. Its user does not keep other users out.
 * - Workers are killed repeatedly under several clients of two users: every client gets every batch
 * once, in order, bit for bit, and no sample is bad. LOADERD_TEST_KILLS sets the number of kills.
 * - A worker that exits right after its start is not restarted endlessly, nor is one whose clients
 * leave immediately: clients get an error, and the service keeps running.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"

#include "format/packimg.h"
#include "tests/test.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
	SAMPLES = 300,
	POISON = 123,
	CLIENTS = 4,
	BATCHES_MAX = 1 << 20,
	BETWEEN_KILLS_US = 60000,
	OTHER_USER = 64301,
};

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";

static uint64_t checksum_of(const char *path, uint64_t index)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	assert_int_equal(packimg_open(path, &dataset, NULL), 0);
	assert_int_equal(packimg_sample(dataset, index, &sample), 0);
	uint64_t checksum = sample.data_xxh3;
	packimg_close(dataset);
	return checksum;
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * Requests the status and disconnects. Returns the worker's pid; 0 if the daemon hung up or refused
 * the client because of a limit whose text contains `limit`.
 */
static pid_t come_and_go(const struct fixture *fixture, const char *limit)
{
	pid_t pid = 0;
	int fd = fixture_connect(fixture);
	(void)send(fd, "\2\0\0\0\x12\0", 6, MSG_NOSIGNAL); /* GetStatus */
	Loaderd__Reply *reply = fixture_receive(fd, NULL);
	if (reply && reply->kind_case == LOADERD__REPLY__KIND_STATUS)
		pid = (pid_t)reply->status->pid;
	if (reply && reply->kind_case == LOADERD__REPLY__KIND_ERROR &&
	    (reply->error->code != EDQUOT || !strstr(reply->error->text, limit)))
		fail_msg("code %d: %s", (int)reply->error->code, reply->error->text);
	if (reply)
		loaderd__reply__free_unpacked(reply, NULL);
	close(fd);
	return pid;
}

/*
 * Waits until another user is served. The limit on users excludes this user until the worker of the
 * test's user has ended.
 */
static void another_user_is_served(const struct fixture *fixture)
{
	enum { WITHIN_MS = 60000 };
	int status;
	uint64_t begin_ms = now_ms();
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(OTHER_USER);
		while (come_and_go(fixture, "[limits] users") == 0) {
			if (now_ms() > begin_ms + WITHIN_MS)
				_exit(1);
			usleep(10000);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST(sample_that_crashes_worker_becomes_bad)
{
	struct fixture fixture;
	const char *preload = getenv("POISON");
	char environment[PATH_MAX + 64], poison[64];
	if (!preload)
		skip(); /* no POISON in builds with a sanitizer, which must be preloaded first */
	fixture_init(&fixture);
	const char *path = fixture_dataset(&fixture, "poisoned", SAMPLES, FIXTURE_JPEG, 0);
	snprintf(environment, sizeof(environment), "LD_PRELOAD=%s", preload);
	snprintf(poison, sizeof(poison), "%016llx", (unsigned long long)checksum_of(path, POISON));
	setenv("POISON_XXH3", poison, 1);
	chmod(fixture.folder, 0755);
	fixture_start(&fixture, environment, "--threads", "2", "--log-level", "error", "--limit",
		      "users=1", "--set", "daemon.idle_ms=100", NULL);
	unsetenv("POISON_XXH3");
	struct feed_options options = fixture_options(&fixture, path, pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed_info info = {.size = sizeof(info)};
	options.epoch_end = 3;
	struct feed *feed = fixture_open(&options);
	unsigned substituted = 0, met = 0, bad = 0;
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		bad += batch.bad;
		for (uint32_t i = 0; i < batch.count; i++) {
			substituted += batch.flags[i] & FEED_SAMPLE_SUBSTITUTED;
			met += batch.samples[i] == POISON;
		}
		feed_release(feed, &batch);
	}
	if (r != FEED_END)
		fail_msg("%s", feed_error(feed));
	/* 9 batches of 32 per epoch leave out 12 samples, so an epoch may lack the poisoned one. */
	assert_in_range(substituted, 1, 3);
	assert_int_equal(bad, substituted);
	assert_int_equal(met, 0);
	feed_info(feed, &info);
	assert_int_equal(info.reconnects, 2);
	Loaderd__Reply *reply = fixture_status(&fixture);
	assert_int_equal(reply->status->n_bad, 1);
	assert_int_equal(reply->status->bad[0]->index, POISON);
	loaderd__reply__free_unpacked(reply, NULL);
	feed_close(feed);
	/* The record of the bad sample does not count as a user. */
	if (geteuid() == 0)
		another_user_is_served(&fixture);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}

static void take_until_it_fails(struct feed *feed, char text[FEED_ERROR_MAX])
{
	struct feed_batch batch = {.size = sizeof(batch)};
	while (feed_next(feed, 60000, &batch) == 0)
		feed_release(feed, &batch);
	snprintf(text, FEED_ERROR_MAX, "%s", feed_error(feed));
	feed_close(feed);
}

/*
 * After a few crashes at different samples of a dataset, the daemon refuses the dataset with an
 * error text, and serves the user's other datasets.
 */
TEST(dataset_that_crashes_workers_is_refused)
{
	enum { POISONED = 40, FEEDS = 4 };
	struct fixture fixture;
	const char *preload = getenv("POISON");
	char environment[PATH_MAX + 64], poison[POISONED * 17 + 1], bad[PATH_MAX];
	if (!preload)
		skip(); /* no POISON in builds with a sanitizer, which must be preloaded first */
	fixture_init(&fixture);
	strcpy(bad, fixture_dataset(&fixture, "hostile", SAMPLES, FIXTURE_JPEG, 0));
	const char *good = fixture_dataset(&fixture, "good", SAMPLES, FIXTURE_RAW, 48);
	snprintf(environment, sizeof(environment), "LD_PRELOAD=%s", preload);
	for (unsigned i = 0; i < POISONED; i++)
		snprintf(poison + i * 17, 18, "%016llx ",
			 (unsigned long long)checksum_of(bad, i * (SAMPLES / POISONED)));
	setenv("POISON_XXH3", poison, 1);
	fixture_start(&fixture, environment, "--threads", "2", "--log-level", "error", NULL);
	unsetenv("POISON_XXH3");
	struct feed_options options = fixture_options(&fixture, bad, pipeline);
	char text[FEED_ERROR_MAX] = "";
	struct feed *feed;
	unsigned feeds = 0;
	/*
	 * libfeed gives up on a batch after some crashes, and the test opens a new feed, like a
	 * restarted training.
	 */
	while (!strstr(text, "packimg verify") && feeds++ < FEEDS)
		if (feed_open(&options, &feed, text) == 0)
			take_until_it_fails(feed, text);
	print_message("after %u feeds: %s\n", feeds, text);
	assert_non_null(strstr(text, "hostile.pimg: decoding its samples has crashed 8 workers"));
	options = fixture_options(&fixture, good, pipeline);
	feed = fixture_open(&options);
	assert_int_not_equal(fixture_hash(feed, 4), 0);
	feed_close(feed);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}

/* Shared between parent and clients. */
struct shared {
	_Atomic bool over; /* set once the kills have ended: clients then stop after their current
			      epoch */
	_Atomic uint64_t batches[CLIENTS];
	_Atomic uint64_t longest_ms[CLIENTS];
	_Atomic uint64_t reconnects[CLIENTS];
};

/* Takes batches and compares them with an undisturbed private daemon. */
static void consume(const struct feed_options *options, struct shared *shared, unsigned number)
{
	struct feed_daemon *daemon;
	struct feed_options undisturbed_options = *options;
	struct feed_info info = {.size = sizeof(info)};
	assert_int_equal(feed_daemon_start(getenv("LOADERD"), 1, &daemon, NULL), 0);
	undisturbed_options.socket = feed_daemon_socket(daemon);
	struct feed *feed = fixture_open(options),
		    *undisturbed = fixture_open(&undisturbed_options);
	for (uint64_t n = 0; n < BATCHES_MAX && !shared->over; n++) {
		uint64_t before_ms = now_ms();
		uint64_t hash = fixture_hash_next(feed);
		uint64_t waited_ms = now_ms() - before_ms;
		if (hash != fixture_hash_next(undisturbed))
			fail_msg("client %u: batch %llu is another one", number,
				 (unsigned long long)n);
		if (waited_ms > shared->longest_ms[number])
			shared->longest_ms[number] = waited_ms;
		shared->batches[number]++;
	}
	feed_info(feed, &info);
	shared->reconnects[number] = info.reconnects;
	feed_close(feed);
	feed_close(undisturbed);
	feed_daemon_stop(daemon);
}

static pid_t start_client(const struct feed_options *options, struct shared *shared,
			  unsigned number)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (geteuid() == 0 && number % 2 == 1 && (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0))
		_exit(2);
	consume(options, shared, number);
	_exit(0);
}

static unsigned kill_workers(pid_t supervisor)
{
	char path[64];
	unsigned killed = 0;
	int pid;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)supervisor, (int)supervisor);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fscanf(file, "%d", &pid) == 1)
		killed += kill(pid, SIGKILL) == 0;
	fclose(file);
	return killed;
}

/*
 * Connects and kills the worker started for the connection. Returns true if the daemon starts none
 * and refuses the client.
 */
static bool is_turned_away(const struct fixture *fixture)
{
	struct pollfd p = {.fd = fixture_connect(fixture), .events = POLLIN};
	unsigned tries = 0;
	do {
		kill_workers(fixture->daemon);
		assert_true(tries++ < 60000);
	} while (poll(&p, 1, 1) == 0);
	Loaderd__Reply *reply = fixture_receive(p.fd, NULL);
	bool refused = reply && reply->kind_case == LOADERD__REPLY__KIND_ERROR;
	if (refused && !strstr(reply->error->text, "cannot start a worker"))
		fail_msg("%s", reply->error->text);
	if (reply)
		loaderd__reply__free_unpacked(reply, NULL);
	close(p.fd);
	return refused;
}

TEST(worker_that_exits_at_start_is_not_restarted_endlessly)
{
	struct fixture fixture;
	unsigned starts = 0;
	fixture_init(&fixture);
	fixture_start(&fixture, NULL, "--threads", "1", "--log-level", "error", NULL);
	while (!is_turned_away(&fixture))
		assert_true(starts++ < 1000);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}

/* After a worker has ended, the only trace of its user is the cost of starting it. */
TEST(workers_of_leaving_clients_are_not_started_endlessly)
{
	enum { STARTS = 30, AT_ONCE = 20, PER_SECOND = 2, WITHIN_MS = 120000 };
	struct fixture fixture;
	fixture_init(&fixture);
	uint64_t begin_ms = now_ms();
	fixture_start(&fixture, NULL, "--threads", "1", "--log-level", "error", "--set",
		      "daemon.idle_ms=0", NULL);
	for (unsigned starts = 0; starts < STARTS;) {
		pid_t pid = come_and_go(&fixture, "20 starts at once");
		uint64_t passed_ms = now_ms() - begin_ms;
		starts += pid != 0;
		if (starts > AT_ONCE + PER_SECOND * passed_ms / 1000)
			fail_msg("%u workers were started within %llu ms", starts,
				 (unsigned long long)passed_ms);
		assert_true(passed_ms < WITHIN_MS);
		while (pid != 0 && kill(pid, 0) == 0)
			usleep(1000);
		usleep(1000);
	}
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}

static unsigned kill_count(void)
{
	const char *value = getenv("LOADERD_TEST_KILLS");
	return !value ? 40 : (unsigned)strtoul(value, NULL, 10);
}

static void wait_for_all_clients(const struct shared *shared, const uint64_t before[CLIENTS])
{
	uint64_t deadline_ms = now_ms() + 60000;
	for (unsigned i = 0; i < CLIENTS; i++)
		while (shared->batches[i] < before[i] + 2) {
			assert_true(now_ms() < deadline_ms);
			usleep(1000);
		}
}

TEST(workers_are_killed)
{
	struct fixture fixture;
	uint64_t before[CLIENTS];
	pid_t clients[CLIENTS];
	unsigned killed = 0;
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	fixture_init(&fixture);
	chmod(fixture.folder, 0755);
	const char *path = fixture_dataset(&fixture, "images", SAMPLES, FIXTURE_JPEG, 0);
	fixture_start(&fixture, NULL, "--threads", "1", "--log-level", "error", NULL);
	struct feed_options options = fixture_options(&fixture, path, pipeline);
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i] = start_client(&options, shared, i);
	while (killed < kill_count()) {
		for (unsigned i = 0; i < CLIENTS; i++)
			before[i] = shared->batches[i];
		wait_for_all_clients(shared, before);
		killed += kill_workers(fixture.daemon);
		usleep(BETWEEN_KILLS_US);
	}
	shared->over = true;
	for (unsigned i = 0; i < CLIENTS; i++) {
		int status;
		assert_int_equal(waitpid(clients[i], &status, 0), clients[i]);
		assert_int_equal(status, 0);
		assert_true(shared->reconnects[i] > 0);
		print_message("client %u: %llu batches, %llu reconnects, longest wait %llu ms\n", i,
			      (unsigned long long)shared->batches[i],
			      (unsigned long long)shared->reconnects[i],
			      (unsigned long long)shared->longest_ms[i]);
	}
	print_message("%u workers killed\n", killed);
	Loaderd__Reply *reply = fixture_status(&fixture);
	assert_int_equal(reply->status->n_bad, 0);
	assert_int_equal(reply->status->shared_bytes, 0);
	loaderd__reply__free_unpacked(reply, NULL);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
	munmap(shared, sizeof(*shared));
}
