/*
 * libfeed with a fake daemon that dies in every state, and closing of feeds in one process and
 * after fork().
 */
#include "tests/unit/proto/client/feed_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/*
 * Opens a feed that fails as soon as its daemon dies. test_feed_reopen.c tests feeds that
 * reconnect.
 */
static struct feed *open_once(const char *script)
{
	struct feed_options options = options_for(script);
	struct feed *feed = NULL;
	options.reconnect = FEED_RECONNECT_NEVER;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	return feed;
}

/*
 * libfeed still delivers batches published before the daemon died; then feed_next() reports the
 * loss, repeatedly.
 */
static void expect_loss(const char *script, int batches, int code, const char *text)
{
	struct feed *feed = open_once(script);
	struct feed_batch batch = {.size = sizeof(batch)};
	for (int i = 0; i < batches; i++) {
		batch = next(feed);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	int64_t start = now_ms();
	int r = feed_next(feed, -1, &batch);
	if (r != code || !strstr(feed_error(feed), text))
		print_error("%s: %d, %s\n", script, r, feed_error(feed));
	assert_int_equal(r, code);
	assert_true(now_ms() - start < SOON_MS);
	assert_non_null(strstr(feed_error(feed), text));
	assert_int_equal(feed_next(feed, -1, &batch), code);
	assert_int_equal(feed_next(feed, 0, &batch), code);
	feed_close(feed);
}

TEST(every_end_is_reported)
{
	expect_loss("die-0", 0, -ECONNRESET,
		    "went away; the feed can be opened again at epoch 0, batch 0.");
	expect_loss("die-2", 2, -ECONNRESET, "epoch 0, batch 2.");
	expect_loss("die-13", 13, -ECONNRESET, "epoch 1, batch 3.");
	expect_loss("shutdown-3", 3, -ECONNRESET, "is shutting down; ");
	expect_loss("stop-2", 2, -ECONNRESET,
		    "is shutting down; the feed can be opened again at epoch 0, batch 2.");
	expect_loss("fail-0", 0, -EBADMSG, "sample 7 is broken");
	expect_loss("fail-6", 6, -EBADMSG, "sample 7 is broken");
	expect_loss("garbage-2", 2, -EPROTO, "failed");
	expect_loss("oops-1", 1, -EIO, "the disk ?[2Jis gone?");
	expect_loss("badslot", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("badnumber", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("nosamples", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("nowidth", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("onechannel", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("odd", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("again-2", 2, -EPROTO, "batch 3 with a header that cannot be");
	expect_loss("skip-2", 2, -EPROTO, "batch 3 with a header that cannot be");
	expect_loss("past-12", 12, -EPROTO, "batch 13 with a header that cannot be");
	expect_loss("state-1", 1, -EPROTO, "the unknown state 99");
	expect_loss("endless-1", 1, -EBADMSG, "The feed failed: ????????");
}

/*
 * libfeed detects a daemon that publishes into a held slot, and can still release the held batches.
 */
TEST(publishing_into_held_slot_is_detected)
{
	struct feed *feed = open_script("overwrite-2");
	struct feed_batch first = next(feed), second = next(feed), batch = {.size = sizeof(batch)};
	assert_int_equal(feed_next(feed, SOON_MS, &batch), -EPROTO);
	assert_int_equal(feed_release(feed, &first), 0);
	assert_int_equal(feed_release(feed, &second), 0);
	feed_close(feed);
}

/* Slot headers that change while they are read: libfeed uses the values that it checked. */
TEST(a_header_that_changes_is_read_once)
{
	size_t each = FAKE_HEIGHT * FAKE_WIDTH * FAKE_CHANNELS;
	unsigned counts[9] = {0};
	struct feed *feed = open_script("flip");
	for (int i = 0; i < 100000; i++) {
		struct feed_batch batch = next(feed);
		assert_in_range(batch.count, 7, 8);
		assert_int_equal(batch.image_bytes, batch.count * each);
		feed_release(feed, &batch);
		counts[batch.count]++;
	}
	print_message("%u batches of 7, %u of 8\n", counts[7], counts[8]);
	feed_close(feed);
}

TEST(published_batches_survive_the_daemon)
{
	struct feed *feed = open_once("die-3");
	struct feed_batch held[3], batch = {.size = sizeof(batch)};
	usleep(200000); /* time for the daemon to die before the first batch is taken */
	for (int i = 0; i < 3; i++)
		held[i] = next(feed);
	for (int i = 0; i < 3; i++)
		check_pixels(&held[i]);
	assert_int_equal(feed_next(feed, -1, &batch), -ECONNRESET);
	for (int i = 0; i < 3; i++)
		assert_int_equal(feed_release(feed, &held[i]), 0);
	feed_close(feed);
}

static atomic_bool killed;

static void *kill_later(void *argument)
{
	usleep(400000); /* time for a slow open */
	atomic_store(&killed, true);
	kill((pid_t)(intptr_t)argument, SIGKILL);
	return NULL;
}

/*
 * The daemon gets SIGKILL while the client waits without a timeout, before the reply and after it.
 */
TEST(killed_daemon_is_reported_at_once)
{
	static const char *const scripts[] = {"mute", "hang-0", "hang-2"};
	for (int i = 0; i < 3; i++) {
		pthread_t killer;
		struct feed_daemon *daemon;
		struct feed *feed = NULL;
		assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
		struct feed_options options = options_for(scripts[i]);
		options.socket = feed_daemon_socket(daemon);
		options.reconnect = FEED_RECONNECT_NEVER;
		atomic_store(&killed, false);
		pthread_create(&killer, NULL, kill_later,
			       (void *)(intptr_t)feed_daemon_pid(daemon));
		int64_t start = now_ms();
		int r = feed_open(&options, &feed, error);
		struct feed_batch batch = {.size = sizeof(batch)};
		while (r == 0)
			r = feed_next(feed, -1, &batch);
		assert_int_equal(r, -ECONNRESET);
		assert_true(atomic_load(&killed));
		assert_true(now_ms() - start < SOON_MS);
		pthread_join(killer, NULL);
		while (feed_daemon_alive(daemon)) /* the kernel closes a process's files shortly
						     before the process can be reaped */
			assert_true(now_ms() - start < SOON_MS);
		feed_close(feed);
		assert_int_equal(feed_open(&options, &feed, error), -ECONNREFUSED);
		feed_daemon_stop(daemon);
	}
}

TEST(held_batches_survive_disconnect)
{
	unsigned fds = count_open_fds();
	struct feed *feed = open_script("plain");
	struct feed_batch held = next(feed), batch = {.size = sizeof(batch)};
	feed_disconnect(feed);
	int r;
	for (int i = 0; (r = feed_next(feed, -1, &batch)) == 0; i++)
		assert_true(i < FAKE_SLOTS);
	assert_int_equal(r, -ENOTCONN);
	check_pixels(&held);
	assert_int_equal(feed_release(feed, &held), 0);
	feed_close(feed);
	feed_close(NULL);
	assert_int_equal(count_open_fds(), fds);
}

TEST(opening_and_closing_leaks_nothing)
{
	unsigned fds = count_open_fds();
	for (int i = 0; i < 100; i++) {
		struct feed *feed = open_script("plain");
		struct feed_batch batch = next(feed);
		if (i % 2 == 0)
			feed_release(feed, &batch);
		feed_close(feed);
	}
	assert_int_equal(count_open_fds(), fds);
}

/*
 * Whatever a forked child does, including exit, does not affect the parent's feed; and the daemon
 * detects the parent's death although the child lives.
 */
TEST(a_fork_cannot_touch_the_feed)
{
	struct feed *feed = open_script("plain");
	struct feed_batch held = next(feed), batch = {.size = sizeof(batch)};
	pid_t child = fork();
	if (child == 0) {
		bool good = feed_next(feed, -1, &batch) == -ECHILD;
		good &= strstr(feed_error(feed), "forked") != NULL;
		good &= feed_release(feed, &held) == -ECHILD;
		feed_disconnect(feed);
		feed_close(feed);
		_exit(good ? 0 : 1);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (int i = 0; i < 20; i++) {
		batch = next(feed);
		assert_int_equal(batch.number, 2 + i);
		feed_release(feed, &batch);
	}
	check_pixels(&held);
	assert_int_equal(feed_release(feed, &held), 0);
	feed_close(feed);
}

int main(void)
{
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
