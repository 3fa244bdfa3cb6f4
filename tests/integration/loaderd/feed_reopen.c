/*
 * A real daemon is killed and restarted repeatedly, while clients hold a batch of each daemon
 * process. Every batch equals that of an undisturbed feed; batches arrive once, in order, without
 * bad samples. A dataset that was replaced meanwhile is refused. A socket does not appear before it
 * is usable.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { LIVES = 20, EACH = 12, TIMEOUT_MS = 60000, OTHER_USER = 64303 };

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static struct feed_info info_of(const struct feed *feed)
{
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	return info;
}

static struct feed_batch next(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = feed_next(feed, TIMEOUT_MS, &batch);
	if (r != 0)
		fail_msg("feed_next: %d, %s", r, feed_error(feed));
	assert_int_equal(batch.bad, 0);
	return batch;
}

static void same(const struct feed_batch *a, const struct feed_batch *b)
{
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->batch, b->batch);
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->image_bytes, b->image_bytes);
	assert_memory_equal(a->images, b->images, a->image_bytes);
	assert_memory_equal(a->labels, b->labels, a->count * sizeof(*a->labels));
	assert_memory_equal(a->samples, b->samples, a->count * sizeof(*a->samples));
}

/* A batch held from a daemon process, and the same batch of an undisturbed feed. */
struct held {
	struct feed_batch disturbed, undisturbed;
};

/* Both feeds are at the same batch: compares the next `count` batches and holds the last pair. */
static struct held advance(struct feed *disturbed, struct feed *undisturbed, unsigned count)
{
	struct held held = {0};
	for (unsigned i = 0; i < count; i++) {
		if (i > 0) {
			assert_int_equal(feed_release(disturbed, &held.disturbed), 0);
			assert_int_equal(feed_release(undisturbed, &held.undisturbed), 0);
		}
		held.disturbed = next(disturbed);
		held.undisturbed = next(undisturbed);
		same(&held.disturbed, &held.undisturbed);
	}
	return held;
}

static void let_go(struct feed *disturbed, struct feed *undisturbed, const struct held *held)
{
	same(&held->disturbed, &held->undisturbed);
	assert_int_equal(feed_release(disturbed, &held->disturbed), 0);
	assert_int_equal(feed_release(undisturbed, &held->undisturbed), 0);
}

/* Opens the undisturbed feed on a private daemon, whose batches are the same. */
static struct feed *open_undisturbed(const struct feed_options *options,
				     struct feed_daemon **ret_daemon)
{
	struct feed_options own = *options;
	char error[FEED_ERROR_MAX];
	if (feed_daemon_start(NULL, 1, ret_daemon, error) != 0)
		fail_msg("%s", error);
	own.socket = feed_daemon_socket(*ret_daemon);
	own.slots = 8;
	return fixture_open(&own);
}

/*
 * Kills the daemon. Every fourth time stops it instead, in which case it exits once its batches
 * have been taken.
 */
TEST(a_service_dies)
{
	struct fixture *fixture = *state;
	struct feed_daemon *daemon;
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s",
		 fixture_dataset(fixture, "reopen", 600, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	fixture_start(fixture, NULL, "--threads", "2", "--set", "daemon.grace_ms=100", NULL);
	struct feed *undisturbed = open_undisturbed(&options, &daemon);
	struct feed *disturbed = fixture_open(&options);
	struct held held[4];
	double longest_ms = 0;
	for (unsigned life = 0; life < LIVES; life++) {
		if (life >= 4)
			let_go(disturbed, undisturbed, &held[life % 4]);
		held[life % 4] = advance(disturbed, undisturbed, EACH);
		fixture_stop(fixture, life % 4 == 3 ? SIGTERM : SIGKILL);
		fixture_start(fixture, NULL, "--threads", "2", "--set", "daemon.grace_ms=100",
			      NULL);
		uint64_t before = info_of(disturbed).reconnects;
		double start_ms = now_ms();
		while (info_of(disturbed).reconnects == before) {
			struct held one = advance(disturbed, undisturbed, 1);
			let_go(disturbed, undisturbed, &one);
		}
		if (now_ms() - start_ms > longest_ms)
			longest_ms = now_ms() - start_ms;
	}
	for (unsigned i = 0; i < 4; i++)
		let_go(disturbed, undisturbed, &held[i]);
	print_message("%d restarts; at most %.0f ms from one to its first batch\n", LIVES,
		      longest_ms);
	assert_int_equal(info_of(disturbed).reconnects, LIVES);
	assert_int_equal(info_of(undisturbed).reconnects, 0);
	assert_int_equal(fixture_ring_mappings(getpid()),
			 4); /* ring and ack page of each of two feeds */
	feed_close(disturbed);
	feed_close(undisturbed);
	feed_daemon_stop(daemon);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(a_private_daemon_dies)
{
	struct fixture *fixture = *state;
	struct feed_daemon *daemons[2];
	char path[PATH_MAX], error[FEED_ERROR_MAX];
	snprintf(path, sizeof(path), "%s",
		 fixture_dataset(fixture, "private", 600, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	struct feed *undisturbed = open_undisturbed(&options, &daemons[0]);
	assert_int_equal(feed_daemon_start(NULL, 2, &daemons[1], error), 0);
	options.socket = feed_daemon_socket(daemons[1]);
	struct feed *disturbed = fixture_open(&options);
	for (unsigned life = 0; life < LIVES; life++) {
		struct held held = advance(disturbed, undisturbed, EACH);
		let_go(disturbed, undisturbed, &held);
		kill((pid_t)feed_daemon_pid(daemons[1]), SIGKILL);
		while (info_of(disturbed).reconnects == life) {
			held = advance(disturbed, undisturbed, 1);
			let_go(disturbed, undisturbed, &held);
		}
	}
	feed_close(disturbed);
	feed_close(undisturbed);
	for (int i = 0; i < 2; i++)
		feed_daemon_stop(daemons[i]);
}

TEST(another_dataset_is_refused)
{
	struct fixture *fixture = *state;
	struct feed_batch batch = {.size = sizeof(batch)};
	char path[PATH_MAX], other[PATH_MAX];
	snprintf(path, sizeof(path), "%s", fixture_dataset(fixture, "old", 320, FIXTURE_JPEG, 0));
	snprintf(other, sizeof(other), "%s", fixture_dataset(fixture, "new", 320, FIXTURE_RAW, 64));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	for (unsigned i = 0; i < 3; i++) {
		batch = next(feed);
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	fixture_stop(fixture, SIGKILL);
	assert_int_equal(rename(other, path), 0);
	fixture_start(fixture, NULL, NULL);
	int r;
	while ((r = feed_next(feed, TIMEOUT_MS, &batch)) == 0)
		feed_release(feed, &batch);
	assert_int_equal(r, -ESTALE);
	assert_non_null(strstr(feed_error(feed), "has been replaced by another dataset"));
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * Starts a process that repeatedly connects, like a client that has lost its daemon. It exits with
 * 0 unless it found a socket that it could not use.
 */
static pid_t start_looking(const struct fixture *fixture)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture->socket);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (geteuid() == 0)
		fixture_become(OTHER_USER);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), r;
	while ((r = connect(fd, (struct sockaddr *)&address, sizeof(address))) < 0 &&
	       (errno == ENOENT || errno == ECONNREFUSED))
		;
	_exit(r == 0 ? 0 : errno);
}

TEST(socket_appears_only_when_usable)
{
	struct fixture *fixture = *state;
	assert_int_equal(chmod(fixture->folder, 0755), 0);
	for (unsigned life = 0; life < LIVES; life++) {
		pid_t pid = start_looking(fixture);
		int status;
		fixture_start(fixture, NULL, NULL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		fixture_stop(fixture, life % 2 == 0 ? SIGKILL : SIGTERM);
	}
}

static int setup(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	*state = &fixture;
	return 0;
}

static int teardown(void **state)
{
	fixture_deinit(*state);
	return 0;
}

TEST_MAIN(setup, teardown)
