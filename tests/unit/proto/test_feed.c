/* libfeed against a fake daemon (fake_loaderd, named in $FAKE_LOADERD), slow, dying in every state, and lying. */
#include "testing.h"

#include "fake.h"
#include "feed.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *binary;
static struct feed_daemon *fake;
static char error[FEED_ERROR_MAX];

static int start_fake(void **state)
{
	int r = feed_daemon_start(binary, 0, &fake, error);
	if (r < 0)
		print_error("%s\n", error);
	return r;
}

static int stop_fake(void **state)
{
	feed_daemon_stop(fake);
	fake = NULL;
	return 0;
}

static struct feed_options options_for(const char *script)
{
	struct feed_options options;
	feed_options_init(&options);
	options.socket = feed_daemon_socket(fake);
	options.dataset = script;
	options.batch_size = 8;
	return options;
}

static struct feed *open_script(const char *script)
{
	struct feed_options options = options_for(script);
	struct feed *feed = NULL;
	int r = feed_open(&options, &feed, error);
	if (r < 0)
		print_error("%s: %s\n", script, error);
	assert_int_equal(r, 0);
	assert_string_equal(error, "");
	return feed;
}

static struct feed_batch next(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof batch};
	int r = feed_next(feed, SOON_MS, &batch);
	if (r != 0)
		print_error("feed_next: %d, %s\n", r, feed_error(feed));
	assert_int_equal(r, 0);
	return batch;
}

static void check_pixels(const struct feed_batch *batch)
{
	const uint8_t *pixels = batch->images;
	size_t each = FAKE_HEIGHT * FAKE_WIDTH * FAKE_CHANNELS;
	assert_int_equal(batch->image_bytes, each * batch->count);
	assert_int_equal((uintptr_t)pixels % 64, 0);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = fake_sample(batch->batch, 8, i);
		assert_int_equal(batch->samples[i], sample);
		assert_int_equal(batch->labels[i], sample % FAKE_CLASSES);
		for (size_t v = 0; v < each; v++)
			assert_int_equal(pixels[i * each + v], fake_pixel(batch->epoch, sample));
	}
}

static const uint8_t no_uuid[16];

static void batches_arrive(void **state)
{
	struct feed *feed = open_script("plain");
	struct feed_info info = {.size = sizeof info};
	assert_int_equal(feed_info(feed, &info), 0);
	assert_int_equal(info.feed_id, 17);
	assert_int_equal(info.samples, 80);
	assert_int_equal(info.batches_per_epoch, FAKE_BATCHES);
	assert_int_equal(info.classes, FAKE_CLASSES);
	assert_int_equal(info.slots, FAKE_SLOTS);
	assert_int_equal(info.batch_size, 8);
	assert_memory_equal(info.dataset_uuid, "plain\0\0\0\0\0\0\0\0\0\0", 16);
	for (uint64_t n = 0; n < 25; n++) {
		uint64_t epoch, position;
		feed_position(feed, &epoch, &position);
		assert_int_equal(epoch * FAKE_BATCHES + position, n);
		struct feed_batch batch = next(feed);
		assert_int_equal(batch.number, n + 1);
		assert_int_equal(batch.epoch, n / FAKE_BATCHES);
		assert_int_equal(batch.batch, n % FAKE_BATCHES);
		assert_int_equal(batch.last, n % FAKE_BATCHES == FAKE_BATCHES - 1);
		assert_int_equal(batch.count, 8);
		assert_int_equal(batch.bad, n % FAKE_BATCHES == 0);
		assert_int_equal(batch.flags[3],
				 n % FAKE_BATCHES == 0 ? FEED_SAMPLE_SUBSTITUTED : 0);
		assert_true((const char *)batch.images > (const char *)info.memory);
		assert_true((const char *)batch.images + batch.image_bytes <=
			    (const char *)info.memory + info.memory_size);
		check_pixels(&batch);
		assert_int_equal(feed_release(feed, &batch), 0);
		assert_int_equal(feed_release(feed, &batch), -EINVAL);
	}
	feed_close(feed);
}

/* One in which the client can write; the daemon goes on from what it knows itself. */
static void a_ring_is_mapped_writable(void **state)
{
	struct feed_options options = options_for("plain");
	struct feed_info info = {.size = sizeof info};
	struct feed *feed;
	options.writable = 1;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	feed_info(feed, &info);
	for (uint64_t n = 0; n < 25; n++) {
		struct feed_batch batch = next(feed);
		assert_int_equal(batch.number, n + 1);
		check_pixels(&batch);
		memset((void *)(uintptr_t)batch.images, 0xee, batch.image_bytes);
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	feed_close(feed);
	options.dataset = "old";
	assert_int_equal(feed_open(&options, &feed, error), -ENOTSUP);
	assert_non_null(strstr(error, "update it"));
	options.writable = 0;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	feed_info(feed, &info);
	assert_memory_equal(info.dataset_uuid, no_uuid, 16);
	feed_close(feed);
}

static void a_position_is_resumed(void **state)
{
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.epoch = 3;
	options.batch = 9;
	options.epoch_end = 5;
	options.last = FEED_LAST_SHORT;
	assert_int_equal(feed_open(&options, &feed, NULL), 0);
	struct feed_batch batch = next(feed);
	assert_int_equal(batch.epoch, 3);
	assert_int_equal(batch.batch, 9);
	assert_int_equal(batch.count, 7);
	check_pixels(&batch);
	uint64_t epoch, position;
	feed_position(feed, &epoch, &position);
	assert_int_equal(epoch, 4);
	assert_int_equal(position, 0);
	feed_release(feed, &batch);
	for (int i = 0; i < FAKE_BATCHES; i++) {
		batch = next(feed);
		feed_release(feed, &batch);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(feed_next(feed, -1, &batch), FEED_END);
	feed_close(feed);
}

static void fields_arrive(void **state)
{
	static const char *const names[] = {"id", "float", "bytes", "json"};
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.fields = names;
	options.field_count = 4;
	options.field_bytes = 9;
	assert_int_equal(feed_open(&options, &feed, error), 0);
	struct feed_batch first = next(feed), batch = next(feed);
	feed_release(feed, &first);
	struct feed_field field;
	assert_int_equal(feed_field(feed, &batch, 0, &field), 0);
	assert_string_equal(field.name, "id");
	assert_int_equal(field.type, FEED_INT64);
	assert_int_equal(field.stride, 8);
	assert_int_equal(((const int64_t *)field.values)[3], -22);
	assert_int_equal(feed_field(feed, &batch, 1, &field), 0);
	assert_int_equal(field.type, FEED_FLOAT64);
	assert_true(((const double *)field.values)[7] == 15.0 / 4);
	assert_int_equal(feed_field(feed, &batch, 2, &field), 0);
	assert_int_equal(field.type, FEED_BYTES);
	assert_int_equal(field.stride, 16); /* 4 + 9, up to a multiple of 4 */
	uint32_t size;
	memcpy(&size, (const char *)field.values + field.stride * 2, 4);
	assert_int_equal(size, 9);
	assert_memory_equal((const char *)field.values + field.stride * 2 + 4, "sample 10", 9);
	assert_int_equal(feed_field(feed, &batch, 3, &field), 0);
	assert_int_equal(field.type, FEED_JSON);
	assert_int_equal(feed_field(feed, &batch, 4, &field), -EINVAL);
	feed_close(feed);
}

static void every_refusal_is_a_sentence(void **state)
{
	unsigned fds = count_open_fds();
	static const struct {
		const char *script;
		int code;
		const char *text;
	} cases[] = {
		{"missing", -ENOENT, "dataset: there is no file of that name"},
		{"mute", -ETIMEDOUT, "did not answer in time"},
		{"refuse", -ECONNRESET, "closed the connection before it answered"},
		{"wrongreply", -EPROTO, "answered a subscription with message"},
		{"noise", -EPROTO, "cannot be read"},
		{"toolong", -EPROTO, "not our protocol"},
		{"nofds", -EPROTO, "no ring that this library knows"},
		{"onefd", -EPROTO, "no ring that this library knows"},
		{"swapped", -EPROTO, "no ring that this library knows"},
		{"badheader", -EPROTO, "no ring that this library knows"},
		{"badoffset", -EPROTO, "no ring that this library knows"},
		{"", -EINVAL, "dataset: no path given"},
		{NULL, -EINVAL, "dataset: no path given"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct feed_options options = options_for(cases[i].script);
		struct feed *feed = (struct feed *)&options;
		if (cases[i].code == -ETIMEDOUT)
			options.open_timeout_ms = 300;
		int64_t start = now_ms();
		assert_int_equal(feed_open(&options, &feed, error), cases[i].code);
		assert_true(now_ms() - start < SOON_MS);
		if (strstr(error, cases[i].text) == NULL)
			print_error("%s: %s\n", cases[i].script, error);
		assert_non_null(strstr(error, cases[i].text));
		assert_ptr_equal(feed, &options); /* outputs stay on failure */
		assert_int_equal(feed_open(&options, &feed, NULL), cases[i].code);
	}
	assert_int_equal(count_open_fds(), fds);
}

static void options_are_checked(void **state)
{
	struct feed *feed;
	struct feed_options options = options_for("plain");
	options.rank = 4;
	options.world = 4;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_string_equal(error, "rank: 4 is not below world, 4.");
	options = options_for("plain");
	options.last = 7;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options = options_for("plain");
	options.bad = 7;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options = options_for("plain");
	options.field_count = 17;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options.field_count = 1;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_non_null(strstr(error, "fields: number 0 of 1 has no name"));

	char *endless = malloc(2 << 20);
	memset(endless, 'x', (2 << 20) - 1);
	endless[(2 << 20) - 1] = '\0';
	options = options_for("plain");
	options.pipeline = endless;
	assert_int_equal(feed_open(&options, &feed, error), -EMSGSIZE);
	options = options_for("plain");
	options.socket = endless;
	assert_int_equal(feed_open(&options, &feed, error), -ENAMETOOLONG);
	free(endless);

	options = options_for("plain");
	options.socket = "/nonexistent/loaderd.sock";
	assert_int_equal(feed_open(&options, &feed, error), -ENOENT);
	assert_non_null(strstr(error, "No daemon listens on /nonexistent/loaderd.sock"));
	setenv("LOADERD_SOCKET", "@nobody-listens-here", 1);
	options.socket = NULL;
	assert_int_equal(feed_open(&options, &feed, error), -ECONNREFUSED);
	assert_non_null(strstr(error, "No daemon listens on @nobody-listens-here"));
	unsetenv("LOADERD_SOCKET");
}

static void a_position_is_shown(void **state)
{
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.pipeline = "resize(256) blur(3) hflip";
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_string_equal(error, "pipeline: \"blur\" is no transform; there are resize, hflip\n"
				   "  resize(256) blur(3) hflip\n"
				   "              ^");
	/* a long one is cut on both sides and still fits */
	char pipeline[1000];
	memset(pipeline, 'a', sizeof pipeline);
	memcpy(pipeline + 500, "blur", 4);
	pipeline[999] = '\0';
	options.pipeline = pipeline;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	char *caret = strrchr(error, '\n'), *line = caret;
	while (*--line != '\n')
		;
	assert_int_equal(line[strcspn(caret, "^")], 'b');
	assert_non_null(strstr(line, "..."));
}

static void waiting_ends_in_time(void **state)
{
	struct feed *feed = open_script("hang-1");
	struct feed_batch batch = next(feed);
	feed_release(feed, &batch);
	int64_t start = now_ms(), least = SOON_MS;
	for (int i = 0; i < 20; i++) { /* others may have the CPU meanwhile, but not each time */
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

static void slow_batches_are_waited_for(void **state)
{
	struct feed *feed = open_script("slow-5");
	for (int i = 0; i < 30; i++) {
		struct feed_batch batch = {.size = sizeof batch};
		assert_int_equal(feed_next(feed, -1, &batch), 0);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

/* In strict mode any system call but read, write and exit is death. The answer comes by write, as a sanitizer's own threads outlive an exit. */
static void taking_makes_no_system_call(void **state)
{
	int answer[2];
	assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		struct feed_options options = options_for("die-4");
		struct feed_batch batch = {.size = sizeof batch};
		struct feed *feed;
		signed char good = 0;
		options.slots =
			FAKE_SLOTS + 1; /* there is room for the batch that it does not make */
		if (feed_open(&options, &feed, NULL) < 0)
			_exit(1);
		struct pollfd gone = {.fd = feed_fd(feed), .events = POLLRDHUP};
		poll(&gone, 1, SOON_MS); /* all are there */
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

/* With a descriptor in somebody's event loop: it fires after -ETIMEDOUT, each time. */
static void an_event_loop_is_woken(void **state)
{
	struct feed *feed = open_script("slow-3");
	for (int batches = 0; batches < 30;) {
		struct feed_batch batch = {.size = sizeof batch};
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

static void floods_of_doorbells_pass(void **state)
{
	struct feed *feed = open_script("flood");
	for (int i = 0; i < 40; i++) {
		struct feed_batch batch = next(feed);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

static void holding_all_is_told(void **state)
{
	struct feed *feed = open_script("plain");
	struct feed_batch held[FAKE_SLOTS], batch = {.size = sizeof batch};
	for (int i = 0; i < FAKE_SLOTS; i++)
		held[i] = next(feed);
	assert_int_equal(feed_next(feed, -1, &batch), -ENOBUFS);
	assert_non_null(strstr(feed_error(feed), "All 4 batches"));
	for (int i = 0; i < FAKE_SLOTS; i++)
		check_pixels(&held[i]);
	/* one kept for good */
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

static void another_thread_may_release(void **state)
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

/* What was published before is delivered, then the loss is told at once, and again. */
static void expect_loss(const char *script, int batches, int code, const char *text)
{
	struct feed *feed = open_script(script);
	struct feed_batch batch = {.size = sizeof batch};
	for (int i = 0; i < batches; i++) {
		batch = next(feed);
		check_pixels(&batch);
		feed_release(feed, &batch);
	}
	int64_t start = now_ms();
	int r = feed_next(feed, -1, &batch);
	if (r != code || strstr(feed_error(feed), text) == NULL)
		print_error("%s: %d, %s\n", script, r, feed_error(feed));
	assert_int_equal(r, code);
	assert_true(now_ms() - start < SOON_MS);
	assert_non_null(strstr(feed_error(feed), text));
	assert_int_equal(feed_next(feed, -1, &batch), code);
	assert_int_equal(feed_next(feed, 0, &batch), code);
	feed_close(feed);
}

static void every_end_is_told(void **state)
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
	expect_loss("oops-1", 1, -EIO, "the disk is gone");
	expect_loss("badslot", 0, -EPROTO, "batch 1 with a header that cannot be");
	expect_loss("badnumber", 0, -EPROTO, "batch 1 with a header that cannot be");
}

static void published_batches_survive_the_daemon(void **state)
{
	struct feed *feed = open_script("die-3");
	struct feed_batch held[3], batch = {.size = sizeof batch};
	usleep(200000); /* it is long gone when we look first */
	for (int i = 0; i < 3; i++)
		held[i] = next(feed);
	for (int i = 0; i < 3; i++)
		check_pixels(&held[i]);
	assert_int_equal(feed_next(feed, -1, &batch), -ECONNRESET);
	for (int i = 0; i < 3; i++)
		assert_int_equal(feed_release(feed, &held[i]), 0);
	feed_close(feed);
}

static void *kill_later(void *argument)
{
	usleep(150000);
	kill((pid_t)(intptr_t)argument, SIGKILL);
	return NULL;
}

/* Killed without a word while the client waits for ever, before the reply and after. */
static void a_killed_daemon_is_told_at_once(void **state)
{
	static const char *const scripts[] = {"mute", "hang-0", "hang-2"};
	for (int i = 0; i < 3; i++) {
		pthread_t killer;
		struct feed_daemon *daemon;
		struct feed *feed = NULL;
		assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
		struct feed_options options = options_for(scripts[i]);
		options.socket = feed_daemon_socket(daemon);
		pthread_create(&killer, NULL, kill_later,
			       (void *)(intptr_t)feed_daemon_pid(daemon));
		int64_t start = now_ms();
		int r = feed_open(&options, &feed, error);
		struct feed_batch batch = {.size = sizeof batch};
		while (r == 0)
			r = feed_next(feed, -1, &batch);
		assert_int_equal(r, -ECONNRESET);
		assert_in_range(now_ms() - start, 100, SOON_MS);
		pthread_join(killer, NULL);
		while (feed_daemon_alive(
			daemon)) /* its files are closed a moment before it is gone */
			assert_true(now_ms() - start < SOON_MS);
		feed_close(feed);
		assert_int_equal(feed_open(&options, &feed, error), -ECONNREFUSED);
		feed_daemon_stop(daemon);
	}
}

static void disconnecting_keeps_what_is_held(void **state)
{
	unsigned fds = count_open_fds();
	struct feed *feed = open_script("plain");
	struct feed_batch held = next(feed), batch = {.size = sizeof batch};
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

static void opening_and_closing_leaks_nothing(void **state)
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

/* What a fork does, even at its end, changes nothing for the parent; and the daemon sees the parent go although the fork lives. */
static void a_fork_cannot_touch_the_feed(void **state)
{
	struct feed *feed = open_script("plain");
	struct feed_batch held = next(feed), batch = {.size = sizeof batch};
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

/* A caller built against a shorter structure gets no more than it has room for. */
static void structures_may_grow(void **state)
{
	struct feed *feed = open_script("plain");
	struct {
		struct feed_batch batch;
		char canary[8];
	} out;
	memset(&out, 0x55, sizeof out);
	out.batch.size = offsetof(struct feed_batch, images);
	assert_int_equal(feed_next(feed, 5000, &out.batch), 0);
	assert_int_equal(out.batch.count, 8);
	assert_int_equal((uintptr_t)out.batch.images, 0x5555555555555555);
	assert_int_equal(out.batch.size, offsetof(struct feed_batch, images));
	out.batch.size = sizeof out; /* and one built against a longer one keeps the rest */
	assert_int_equal(feed_next(feed, 5000, &out.batch), 0);
	assert_non_null(out.batch.images);
	assert_int_equal(out.canary[0], 0x55);
	feed_close(feed);
}

static void datasets_are_described(void **state)
{
	struct feed_dataset *dataset = NULL;
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "some.pimg", &dataset, error), 0);
	assert_int_equal(dataset->samples, 320);
	assert_int_equal(dataset->classes, FAKE_CLASSES);
	assert_string_equal(dataset->class_names[4], "class 4");
	assert_int_equal(dataset->has_statistics, 1);
	assert_true(dataset->mean[1] == 116.25 && dataset->std[2] == 57.5);
	assert_string_equal(dataset->metadata, "made=by hand\nnote=a=b\n");
	assert_memory_equal(dataset->uuid, "0123456789abcdef", 16);
	feed_dataset_free(dataset);
	feed_dataset_free(NULL);
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "missing", &dataset, error),
			 -ENOENT);
	assert_string_equal(error, "dataset: there is no file of that name");
	assert_int_equal(feed_dataset("@nobody", "x", &dataset, error), -ECONNREFUSED);
	assert_int_equal(feed_dataset(feed_daemon_socket(fake), "", &dataset, error), -EINVAL);
}

static void a_failed_start_says_why(void **state)
{
	unsigned fds = count_open_fds();
	struct feed_daemon *daemon = (struct feed_daemon *)&fds;
	setenv("FAKE_START", "die", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), -ECHILD);
	assert_non_null(strstr(
		error, "ended with status 1 while starting: loaderd: threads: 9999 are more"));
	setenv("FAKE_START", "kill", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), -ECHILD);
	assert_non_null(strstr(error, "ended by signal 9 while starting."));
	unsetenv("FAKE_START");
	assert_int_equal(feed_daemon_start("/nonexistent/loaderd", 0, &daemon, error), -ENOENT);
	assert_non_null(strstr(error, "/nonexistent/loaderd"));
	setenv("LOADERD", "/nonexistent/other", 1);
	assert_int_equal(feed_daemon_start(NULL, 0, &daemon, error), -ENOENT);
	assert_non_null(strstr(error, "/nonexistent/other"));
	unsetenv("LOADERD");
	assert_int_equal(feed_daemon_start("/etc/passwd", 0, &daemon, NULL), -EACCES);
	assert_ptr_equal(daemon, &fds);
	assert_int_equal(count_open_fds(), fds);
}

static void a_daemon_starts_and_stops(void **state)
{
	unsigned fds = count_open_fds();
	struct feed_daemon *daemon;
	int leak = dup(0); /* inheritable, and not to be inherited: fake_loaderd looks */
	setenv("LOADERD", binary, 1);
	assert_int_equal(feed_daemon_start(NULL, 3, &daemon, error), 0);
	unsetenv("LOADERD");
	close(leak);
	assert_int_equal(feed_daemon_alive(daemon), 1);
	assert_int_equal(feed_daemon_socket(daemon)[0], '@');
	char log[200];
	assert_int_equal(feed_daemon_log(daemon, log, sizeof log),
			 strlen("threads 3\nloaderd: ready\n"));
	assert_string_equal(log, "threads 3\nloaderd: ready\n");
	assert_int_equal(feed_daemon_log(daemon, log, 19), strlen("loaderd: ready\n"));
	assert_string_equal(log, "loaderd: ready\n");
	pid_t pid = (pid_t)feed_daemon_pid(daemon);
	int64_t start = now_ms();
	feed_daemon_stop(daemon);
	assert_true(now_ms() - start < 6900); /* it did not have to be killed */
	assert_int_equal(kill(pid, 0), -1);
	feed_daemon_stop(NULL);

	setenv("FAKE_START", "chatty", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
	unsetenv("FAKE_START");
	assert_true(feed_daemon_log(daemon, log, sizeof log) > 100);
	assert_memory_equal(log, "loaderd: line ", 14);
	feed_daemon_stop(daemon);
	assert_int_equal(count_open_fds(), fds);
}

static void a_stubborn_daemon_is_killed(void **state)
{
	struct feed_daemon *daemon;
	setenv("FAKE_START", "stubborn", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
	unsetenv("FAKE_START");
	pid_t pid = (pid_t)feed_daemon_pid(daemon);
	int64_t start = now_ms();
	feed_daemon_stop(daemon);
	assert_in_range(now_ms() - start, 6900, SOON_MS);
	assert_int_equal(kill(pid, 0), -1);
}

/*
 * The client is killed outright, while a process that it forked lives on with every descriptor it inherited; the daemon ends all the
 * same. As subreaper we see it go.
 */
static void no_private_daemon_outlives_its_client(void **state)
{
	int pids[2];
	assert_int_equal(pipe2(pids, O_CLOEXEC), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid_t client = fork();
	if (client == 0) {
		struct feed_daemon *daemon;
		pid_t mine[2] = {-1, -1};
		if (feed_daemon_start(binary, 0, &daemon, NULL) == 0)
			mine[0] = (pid_t)feed_daemon_pid(daemon);
		mine[1] = fork();
		if (mine[1] == 0) {
			sleep(600);
			_exit(0);
		}
		ssize_t n = write(pids[1], mine, sizeof mine);
		(void)n;
		raise(SIGKILL);
	}
	pid_t theirs[2] = {-1, -1};
	int status = 0;
	assert_int_equal(read(pids[0], theirs, sizeof theirs), sizeof theirs);
	assert_int_equal(waitpid(client, &status, 0), client);
	assert_true(theirs[0] > 0);
	assert_int_equal(waitpid(theirs[0], &status, 0), theirs[0]);
	assert_int_equal(waitpid(theirs[1], &status, WNOHANG), 0); /* the bystander lives */
	kill(theirs[1], SIGKILL);
	waitpid(theirs[1], &status, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	close(pids[0]);
	close(pids[1]);
}

int main(void)
{
	binary = getenv("FAKE_LOADERD");
	if (binary == NULL) {
		fputs("FAKE_LOADERD names no program\n", stderr);
		return 99;
	}
	if (getenv("MESON_EXE_WRAPPER")) { /* the library starts the daemon itself, without an emulator */
		fputs("Under an emulator no daemon can be started\n", stderr);
		return 77;
	}
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_arrive),
		cmocka_unit_test(a_ring_is_mapped_writable),
		cmocka_unit_test(a_position_is_resumed),
		cmocka_unit_test(fields_arrive),
		cmocka_unit_test(every_refusal_is_a_sentence),
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(a_position_is_shown),
		cmocka_unit_test(waiting_ends_in_time),
		cmocka_unit_test(slow_batches_are_waited_for),
		cmocka_unit_test(taking_makes_no_system_call),
		cmocka_unit_test(an_event_loop_is_woken),
		cmocka_unit_test(floods_of_doorbells_pass),
		cmocka_unit_test(holding_all_is_told),
		cmocka_unit_test(another_thread_may_release),
		cmocka_unit_test(every_end_is_told),
		cmocka_unit_test(published_batches_survive_the_daemon),
		cmocka_unit_test(a_killed_daemon_is_told_at_once),
		cmocka_unit_test(disconnecting_keeps_what_is_held),
		cmocka_unit_test(opening_and_closing_leaks_nothing),
		cmocka_unit_test(a_fork_cannot_touch_the_feed),
		cmocka_unit_test(structures_may_grow),
		cmocka_unit_test(datasets_are_described),
		cmocka_unit_test(a_failed_start_says_why),
		cmocka_unit_test(a_daemon_starts_and_stops),
		cmocka_unit_test(a_stubborn_daemon_is_killed),
		cmocka_unit_test(no_private_daemon_outlives_its_client),
	};
	return cmocka_run_group_tests_name("feed", tests, start_fake, stop_fake);
}
