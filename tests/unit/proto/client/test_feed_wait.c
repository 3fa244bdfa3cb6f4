/*
 * libfeed with a slow fake daemon: waiting for batches, taking available ones without a system
 * call, in an event loop, with all slots held, and together with another thread.
 */
#include "tests/unit/proto/client/feed_test.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

TEST(waiting_ends_in_time)
{
	struct feed *feed = open_script("hang-1");
	struct feed_batch batch = next(feed);
	feed_release(feed, &batch);
	int64_t start = now_ms(), least = SOON_MS;
	for (int i = 0; i < 20;
	     i++) { /* take the minimum, because other processes may use the CPU */
		start = now_ms();
		assert_int_equal(feed_next(feed, 0, &batch), -ETIMEDOUT);
		least = now_ms() - start < least ? now_ms() - start : least;
	}
	assert_true(least < 40);
	start = now_ms();
	assert_int_equal(feed_next(feed, 80, &batch), -ETIMEDOUT);
	assert_in_range(now_ms() - start, 79, SOON_MS);
	feed_close(feed);
}

TEST(slow_batches_are_waited_for)
{
	struct feed *feed = open_script("slow-5");
	for (int i = 0; i < 30; i++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(feed, -1, &batch), 0);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

/*
 * In seccomp strict mode any system call except read, write and exit kills the process. The child
 * sends its result with write(), because the threads of a sanitizer outlive exit.
 */
TEST(taking_makes_no_system_call)
{
	int answer[2];
	assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		struct feed_options options = options_for("die-4");
		struct feed_batch batch = {.size = sizeof(batch)};
		struct feed *feed;
		signed char good = 0;
		options.slots =
			FAKE_SLOTS +
			1; /* one slot more than batches, so that the producer never waits */
		if (feed_open(&options, &feed, NULL) < 0)
			_exit(1);
		struct pollfd gone = {.fd = feed_fd(feed), .events = POLLIN};
		poll(&gone, 1, SOON_MS); /* wait until all batches are published */
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) < 0)
			good = -1;
		for (int i = 0; i < FAKE_SLOTS && good >= 0; i++)
			good += feed_next(feed, -1, &batch) == 0;
		syscall(SYS_write, answer[1], &good, 1);
		for (;;)
			syscall(SYS_read, answer[0], &good, 0);
	}
	signed char good = 99;
	struct pollfd p = {.fd = answer[0], .events = POLLIN};
	close(answer[1]);
	if (poll(&p, 1, 2 * SOON_MS) == 1)
		assert_true(read(answer[0], &good, 1) >= 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(answer[0]);
	if (good == -1)
		skip();
	assert_int_equal(good, FAKE_SLOTS);
}

/* An event loop polls the fd, which becomes readable again after each -ETIMEDOUT. */
TEST(an_event_loop_is_woken)
{
	struct feed *feed = open_script("slow-3");
	for (int batches = 0; batches < 30;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		int r = feed_next(feed, 0, &batch);
		if (r == 0) {
			assert_int_equal(batch.number, ++batches);
			feed_release(feed, &batch);
			continue;
		}
		assert_int_equal(r, -ETIMEDOUT);
		struct pollfd p = {.fd = feed_fd(feed), .events = POLLIN};
		assert_int_equal(poll(&p, 1, SOON_MS), 1);
	}
	feed_close(feed);
}

TEST(doorbell_floods_are_tolerated)
{
	struct feed *feed = open_script("flood");
	for (int i = 0; i < 40; i++) {
		struct feed_batch batch = next(feed);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

TEST(holding_all_slots_is_an_error)
{
	struct feed *feed = open_script("plain");
	struct feed_batch held[FAKE_SLOTS], batch = {.size = sizeof(batch)};
	for (int i = 0; i < FAKE_SLOTS; i++)
		held[i] = next(feed);
	assert_int_equal(feed_next(feed, -1, &batch), -ENOBUFS);
	assert_non_null(strstr(feed_error(feed), "All 4 batches"));
	for (int i = 0; i < FAKE_SLOTS; i++)
		check_pixels(&held[i]);
	/* held[0] is not released before the end */
	for (int i = 1; i < FAKE_SLOTS; i++)
		assert_int_equal(feed_release(feed, &held[i]), 0);
	for (int i = 0; i < 50; i++) {
		batch = next(feed);
		assert_int_equal(batch.number, FAKE_SLOTS + 1 + i);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	check_pixels(&held[0]);
	feed_close(feed);
}

struct mailbox {
	struct feed *feed;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct feed_batch batches[2];
	int count;
	bool done;
};

static void *releasing_thread(void *argument)
{
	struct mailbox *box = argument;
	pthread_mutex_lock(&box->lock);
	while (!box->done || box->count > 0) {
		if (box->count == 0) {
			pthread_cond_wait(&box->changed, &box->lock);
			continue;
		}
		struct feed_batch batch = box->batches[--box->count];
		pthread_cond_signal(&box->changed);
		pthread_mutex_unlock(&box->lock);
		check_pixels(&batch);
		assert_int_equal(feed_release(box->feed, &batch), 0);
		pthread_mutex_lock(&box->lock);
	}
	pthread_mutex_unlock(&box->lock);
	return NULL;
}

TEST(another_thread_may_release)
{
	struct mailbox box = {.feed = open_script("plain"),
			      .lock = PTHREAD_MUTEX_INITIALIZER,
			      .changed = PTHREAD_COND_INITIALIZER};
	pthread_t thread;
	pthread_create(&thread, NULL, releasing_thread, &box);
	for (int i = 0; i < 500; i++) {
		struct feed_batch batch = next(box.feed);
		pthread_mutex_lock(&box.lock);
		while (box.count == 2)
			pthread_cond_wait(&box.changed, &box.lock);
		box.batches[box.count++] = batch;
		pthread_cond_signal(&box.changed);
		pthread_mutex_unlock(&box.lock);
	}
	pthread_mutex_lock(&box.lock);
	box.done = true;
	pthread_cond_signal(&box.changed);
	pthread_mutex_unlock(&box.lock);
	pthread_join(thread, NULL);
	feed_close(box.feed);
}

int main(void)
{
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
