/*
 * libfeed with fake daemons that die, restart, or come back with different data: the feed continues
 * with the next batch, or an error text says why it cannot.
 */
#include "tests/unit/proto/client/feed_test.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

/*
 * Takes batch i of a feed that started at batch 0, and checks it, however many daemons have died
 * since.
 */
static struct feed_batch expect(struct feed *feed, uint64_t i)
{
	struct feed_batch batch = next(feed);
	assert_int_equal(batch.number, i + 1);
	assert_int_equal(batch.epoch, i / FAKE_BATCHES);
	assert_int_equal(batch.batch, i % FAKE_BATCHES);
	check_pixels(&batch);
	return batch;
}

static uint64_t reconnects_of(const struct feed *feed)
{
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	return info.reconnects;
}

static unsigned count_rings(void)
{
	unsigned count = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start,
			end; /* counts only rings: ack pages are not larger than a page */
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && end - start > 4096)
			count += strstr(line, "memfd:loaderd-ring") != NULL;
	}
	fclose(maps);
	return count;
}

static int next_code(struct feed *feed, int timeout_ms)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	return feed_next(feed, timeout_ms, &batch);
}

/*
 * The daemon dies right after a batch (within an epoch, at its end, beyond it), or reports that it
 * is stopping.
 */
TEST(feed_continues_after_reconnect)
{
	static const char *const scripts[] = {"die-1",  "die-3",      "die-10",
					      "die-13", "shutdown-3", "stop-4"};
	unsigned fds = count_open_fds();
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct feed *feed = open_script(scripts[i]);
		int fd = feed_fd(feed);
		assert_string_equal(feed_reconnect_text(feed), "");
		for (uint64_t b = 0; b < 35; b++) {
			struct feed_batch batch = expect(feed, b);
			assert_int_equal(batch.reconnects, reconnects_of(feed));
			assert_int_equal(feed_release(feed, &batch), 0);
			assert_int_equal(feed_release(feed, &batch), -EINVAL);
		}
		uint64_t each = (uint64_t)atoi(strchr(scripts[i], '-') + 1);
		assert_int_equal(reconnects_of(feed), (35 - 1) / each);
		assert_non_null(strstr(feed_reconnect_text(feed), "; the feed goes on at epoch "));
		assert_int_equal(feed_fd(feed), fd);
		feed_close(feed);
	}
	assert_int_equal(count_open_fds(), fds);
	assert_int_equal(count_rings(), 0);
}

/* The daemon dies after the last batch, before it reports the end. */
TEST(end_is_known_without_a_daemon)
{
	struct feed_options options = options_for("die-20");
	struct feed *feed;
	options.epoch_end = 2;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	for (uint64_t b = 0; b < 20; b++) {
		struct feed_batch batch = expect(feed, b);
		feed_release(feed, &batch);
	}
	assert_int_equal(next_code(feed, SOON_MS), FEED_END);
	assert_int_equal(next_code(feed, 0), FEED_END);
	assert_int_equal(reconnects_of(feed), 0);
	feed_close(feed);
}

TEST(held_batches_stay)
{
	struct feed *feed = open_script("die-3");
	struct feed_batch held[12], again;
	for (uint64_t b = 0; b < 12; b++)
		held[b] = expect(feed, b);
	assert_int_equal(reconnects_of(feed), 3);
	assert_int_equal(count_rings(), 4);
	for (int b = 0; b < 12; b++)
		check_pixels(&held[b]);
	for (int b = 0; b < 9; b++) {
		assert_int_equal(count_rings(), 4 - b / 3);
		assert_int_equal(feed_release(feed, &held[b]), 0);
		assert_int_equal(feed_release(feed, &held[b]), -EINVAL);
	}
	assert_int_equal(count_rings(), 1);
	again = expect(feed, 12); /* first batch in the fifth ring */
	assert_int_equal(count_rings(), 2);
	check_pixels(&held[11]);
	assert_int_equal(feed_release(feed, &held[11]), 0);
	assert_int_equal(feed_release(feed, &again), 0);
	feed_close(feed);
	assert_int_equal(count_rings(), 0);
}

/* Fields of a held batch are read from the ring that contains the batch. */
TEST(fields_of_held_batches_stay)
{
	static const char *const fields[] = {"int", "bytes"};
	struct feed_options options = options_for("die-2");
	struct feed *feed;
	struct feed_field field;
	options.fields = fields;
	options.field_count = 2;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	struct feed_batch held = expect(feed, 0);
	for (uint64_t b = 1; b < 5; b++) {
		struct feed_batch batch = expect(feed, b);
		assert_int_equal(feed_field(feed, &batch, 0, &field), 0);
		assert_int_equal(((const int64_t *)field.values)[1],
				 -2 * (int64_t)fake_sample(batch.batch, 8, 1));
		feed_release(feed, &batch);
	}
	assert_int_equal(feed_field(feed, &held, 0, &field), 0);
	assert_int_equal(((const int64_t *)field.values)[1], -2);
	feed_release(feed, &held);
	assert_int_equal(feed_field(feed, &held, 0, &field), -EINVAL);
	feed_close(feed);
}

/* Holds one batch of each connection: the number of old rings is limited, and no batch is lost. */
TEST(connections_held_are_bounded)
{
	struct feed *feed = open_script("die-1");
	struct feed_batch held[64];
	uint64_t count = 0;
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feed, SOON_MS, &batch)) == 0 && count < 64)
		held[count++] = batch;
	assert_int_equal(r, -ENOBUFS);
	assert_non_null(strstr(feed_error(feed), "are still held"));
	assert_int_equal(next_code(feed, -1), -ENOBUFS);
	for (uint64_t b = 0; b < count; b++) {
		check_pixels(&held[b]);
		assert_int_equal(feed_release(feed, &held[b]), 0);
	}
	expect(feed, count);
	feed_close(feed);
}

TEST(kept_memory_stays_mapped)
{
	struct feed *feed = open_script("die-2");
	struct feed_info first = {.size = sizeof(first)}, second = first;
	feed_info(feed, &first);
	assert_int_equal(feed_keep_memory(feed, &first), -EINVAL);
	assert_int_equal(feed_drop_memory(feed, first.memory), -EINVAL);
	assert_int_equal(feed_keep_memory(feed, first.memory), 0);
	for (uint64_t b = 0; b < 3; b++) {
		struct feed_batch batch = expect(feed, b);
		feed_release(feed, &batch);
	}
	feed_info(feed, &second);
	assert_int_equal(second.reconnects, 1);
	assert_ptr_not_equal(first.memory, second.memory);
	assert_int_equal(count_rings(), 2);
	assert_int_equal(feed_drop_memory(feed, first.memory), 0);
	assert_int_equal(feed_drop_memory(feed, first.memory), -EINVAL);
	assert_int_equal(count_rings(), 1);
	feed_close(feed);
}

/* libfeed refuses a feed that differs after a reconnect. */
TEST(different_feed_is_refused_after_reconnect)
{
	static const struct {
		const char *script;
		int code;
		const char *text;
	} cases[] = {
		{"replaced-2", -ESTALE, "has been replaced by another dataset"},
		{"divided-2", -EPROTO, "divides "},
		{"denied-2", -EINVAL,
		 "went away before epoch 0, batch 2, and the feed could not be opened again "
		 "there: pipeline: no longer known"},
	};
	unsigned fds = count_open_fds();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct feed *feed = open_script(cases[i].script);
		struct feed_batch first = expect(feed, 0), second = expect(feed, 1);
		int64_t start = now_ms();
		assert_int_equal(next_code(feed, -1), cases[i].code);
		assert_true(now_ms() - start < SOON_MS);
		if (!strstr(feed_error(feed), cases[i].text))
			print_error("%s: %s\n", cases[i].script, feed_error(feed));
		assert_non_null(strstr(feed_error(feed), cases[i].text));
		assert_int_equal(next_code(feed, -1), cases[i].code);
		assert_int_equal(next_code(feed, 0), cases[i].code);
		check_pixels(&first);
		assert_int_equal(feed_release(feed, &first), 0);
		check_pixels(&second);
		feed_disconnect(feed);
		feed_close(feed);
	}
	assert_int_equal(count_open_fds(), fds);
}

TEST(limit_is_retried_when_reopening)
{
	struct feed *feed = open_script("quota-4");
	for (uint64_t b = 0; b < 10; b++) {
		struct feed_batch batch = expect(feed, b);
		feed_release(feed, &batch);
	}
	assert_int_equal(reconnects_of(feed), 2);
	feed_close(feed);
}

/* A stopping daemon reports this to all clients, including those that wait for a feed to open. */
TEST(stopping_daemon_refuses_feeds)
{
	struct feed *feed = open_script("leaving-4");
	for (uint64_t b = 0; b < 10; b++) {
		struct feed_batch batch = expect(feed, b);
		feed_release(feed, &batch);
	}
	assert_int_equal(reconnects_of(feed), 2);
	feed_close(feed);
}

/*
 * The next daemon starts only after this one has exited, and this one waits for its clients to
 * disconnect.
 */
TEST(feed_disconnects_from_stopping_daemon)
{
	struct feed *feed = open_script("linger-4");
	int64_t start = now_ms();
	for (uint64_t b = 0; b < 10; b++) {
		struct feed_batch batch = expect(feed, b);
		feed_release(feed, &batch);
	}
	assert_int_equal(reconnects_of(feed), 2);
	assert_true(now_ms() - start < SOON_MS);
	feed_close(feed);
}

/* A sample crashes the daemon each time. */
TEST(repeated_crashes_end_the_feed)
{
	struct feed *feed = open_script("die-0");
	int64_t start = now_ms();
	assert_int_equal(next_code(feed, -1), -ECONNRESET);
	assert_true(now_ms() - start < SOON_MS);
	assert_non_null(strstr(feed_error(feed), "before epoch 0, batch 0, and"));
	assert_non_null(strstr(feed_error(feed), "several times in a row"));
	assert_int_equal(next_code(feed, -1), -ECONNRESET);
	assert_int_equal(reconnects_of(feed), 5);
	feed_close(feed);
}

/* A system service, addressed by its socket path. */
struct service {
	char path[64];
	pid_t pid;
};

static void start_service(struct service *service)
{
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	service->pid = fork();
	if (service->pid == 0) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		memcpy(address.sun_path, service->path, sizeof(service->path));
		unlink(service->path);
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		    listen(fd, 64) == 0 && write(ready[1], "", 1) == 1)
			fake_serve(fd, -1);
		_exit(1);
	}
	char byte;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static void kill_service(struct service *service)
{
	kill(service->pid, SIGKILL);
	waitpid(service->pid, NULL, 0);
}

static struct feed *open_at(struct service *service, const char *script, uint32_t timeout_ms)
{
	struct feed_options options = options_for(script);
	struct feed *feed;
	snprintf(service->path, sizeof(service->path), "/tmp/test-feed-reopen-%d", (int)getpid());
	start_service(service);
	options.socket = service->path;
	options.reconnect_timeout_ms = timeout_ms;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	return feed;
}

/* The service is missing before the first batch, and later for some time. */
TEST(missing_service_is_awaited)
{
	struct service service;
	struct feed *feed = open_at(&service, "slow-200", 0);
	kill_service(&service);
	assert_int_equal(next_code(feed, 0), -ETIMEDOUT);
	assert_int_equal(next_code(feed, 300), -ETIMEDOUT);
	assert_non_null(strstr(feed_error(feed), "is not there again yet"));
	unlink(service.path);
	assert_int_equal(next_code(feed, 100), -ETIMEDOUT);
	start_service(&service);
	struct feed_batch batch = expect(feed, 0);
	feed_release(feed, &batch);
	kill_service(&service);
	start_service(&service);
	expect(feed, 1);
	assert_int_equal(reconnects_of(feed), 2);
	feed_disconnect(feed);
	while (next_code(feed, 0) == 0)
		;
	assert_int_equal(next_code(feed, -1), -ENOTCONN);
	feed_close(feed);
	kill_service(&service);
	unlink(service.path);
}

TEST(waiting_for_a_service_ends)
{
	struct service service;
	struct feed *feed = open_at(&service, "hang-1", 400);
	struct feed_batch held = expect(feed, 0);
	kill_service(&service);
	int64_t start = now_ms();
	assert_int_equal(next_code(feed, -1), -ECONNRESET);
	assert_in_range(now_ms() - start, 399, SOON_MS);
	assert_non_null(
		strstr(feed_error(feed), "could not be opened again there: No daemon listens on"));
	assert_int_equal(next_code(feed, -1), -ECONNRESET);
	check_pixels(&held);
	feed_close(feed);
	unlink(service.path);
}

/*
 * feed_fd() returns the same fd for the life of the feed, and the fd does not stay readable while
 * the daemon is away.
 */
TEST(an_event_loop_is_woken)
{
	struct service service;
	struct feed *feed = open_at(&service, "slow-20", 0);
	int fd = feed_fd(feed), fired = 0;
	for (uint64_t b = 0; b < 20;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		int r = feed_next(feed, 0, &batch);
		if (r == 0) {
			assert_int_equal(batch.number, ++b);
			feed_release(feed, &batch);
			if (b == 5)
				kill_service(&service);
			continue;
		}
		assert_int_equal(r, -ETIMEDOUT);
		if (fired == 20)
			start_service(&service);
		struct pollfd p = {.fd = fd, .events = POLLIN};
		assert_int_equal(poll(&p, 1, SOON_MS), 1);
		fired++;
	}
	print_message("woken %d times for 20 batches\n", fired);
	assert_in_range(fired, 20, 200);
	feed_close(feed);
	kill_service(&service);
	unlink(service.path);
}

struct mailbox {
	struct feed *feed;
	_Atomic uint64_t given, taken;
	struct feed_batch batches[8];
};

static void *releasing_thread(void *argument)
{
	struct mailbox *box = argument;
	for (;;) {
		uint64_t taken = atomic_load(&box->taken);
		while (atomic_load(&box->given) == taken)
			usleep(50);
		struct feed_batch batch = box->batches[taken % 8];
		if (batch.number == 0)
			return NULL;
		check_pixels(&batch);
		assert_int_equal(feed_release(box->feed, &batch), 0);
		atomic_store(&box->taken, taken + 1);
	}
}

static void hand_over(struct mailbox *box, const struct feed_batch *batch)
{
	uint64_t given = atomic_load(&box->given);
	while (given - atomic_load(&box->taken) == 2)
		usleep(50);
	box->batches[given % 8] = *batch;
	atomic_store(&box->given, given + 1);
}

/* Another thread releases batches of the old ring during a reconnect. */
TEST(another_thread_may_release)
{
	struct mailbox box = {.feed = open_script("die-2")};
	pthread_t thread;
	pthread_create(&thread, NULL, releasing_thread, &box);
	for (uint64_t b = 0; b < 100; b++) {
		struct feed_batch batch = expect(box.feed, b);
		hand_over(&box, &batch);
	}
	hand_over(&box, &(struct feed_batch){0});
	pthread_join(thread, NULL);
	feed_close(box.feed);
	assert_int_equal(count_rings(), 0);
}

/*
 * Only libfeed can restart a private daemon. Both of the daemon's feeds continue, on the same
 * socket. Once the daemon is stopped, feeds do not wait for it.
 */
TEST(a_private_daemon_is_started_again)
{
	unsigned fds = count_open_fds();
	struct feed_daemon *daemon;
	struct feed *feeds[2];
	assert_int_equal(feed_daemon_start(binary, 3, &daemon, error), 0);
	struct feed_options options = options_for("slow-2");
	options.socket = feed_daemon_socket(daemon);
	for (int i = 0; i < 2; i++)
		assert_int_equal(feed_open(&options, &feeds[i], error), 0);
	for (uint64_t b = 0; b < 50; b++) {
		for (int i = 0; i < 2; i++) {
			struct feed_batch batch = expect(feeds[i], b);
			feed_release(feeds[i], &batch);
		}
		if (b % 10 == 5 && b < 40)
			kill((pid_t)feed_daemon_pid(daemon), SIGKILL);
	}
	assert_int_equal(reconnects_of(feeds[0]), 4);
	assert_int_equal(reconnects_of(feeds[1]), 4);
	assert_int_equal(feed_daemon_alive(daemon), 1);
	char log[512];
	feed_daemon_log(daemon, log, sizeof(log));
	assert_non_null(
		strstr(log, "threads 3\nloaderd: ready\nthreads 3\n")); /* the log of both starts */

	kill((pid_t)feed_daemon_pid(daemon), SIGKILL);
	while (feed_daemon_alive(daemon))
		usleep(1000);
	options.reconnect = FEED_RECONNECT_NEVER;
	struct feed *third;
	assert_int_equal(feed_open(&options, &third, error), -ECONNREFUSED);
	assert_int_equal(feed_daemon_restart(daemon, error), 0);
	assert_int_equal(feed_daemon_restart(daemon, error), 0);
	assert_int_equal(feed_open(&options, &third, error), 0);
	feed_close(third);

	feed_daemon_stop(daemon);
	int64_t start = now_ms();
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feeds[0], -1, &batch)) == 0)
		feed_release(feeds[0], &batch);
	assert_int_equal(r, -ECONNRESET);
	assert_true(now_ms() - start < SOON_MS);
	feed_close(feeds[0]);
	feed_close(feeds[1]);
	assert_int_equal(count_open_fds(), fds);
}

int main(void)
{
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
