/*
 * Two hundred clients are killed at arbitrary points while another client is served. They leave
 * nothing behind, and the other client gets no wrong batch and no long delay.
 */
#include "tests/integration/loaderd/control_client.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum {
	VICTIMS = 200,
	WARM_UP = 40, /* clients before the first measurement of memory, which fill the allocator's
			 caches */
	ATTEMPTS =
		/* another program may delay the test; a delay caused by the daemon would recur */
	3,
	GROWTH_MAX_KIB = 2048, /* detects even 10 KiB per client */
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * Holds some batches and writes a byte to `ready`. Then waits, takes and releases batches, or does
 * nothing until it is killed.
 */
static void live_dangerously(const struct feed_options *options, int ready, unsigned number)
{
	struct feed *feed;
	struct feed_batch batch = {.size = sizeof(batch)};
	if (feed_open(options, &feed, NULL) < 0)
		_exit(1);
	for (unsigned held = 0; held < number % 3; held++)
		if (feed_next(feed, -1, &batch) != 0)
			_exit(2);
	if (write(ready, "", 1) != 1)
		_exit(3);
	for (;;) {
		if (number % 4 == 0)
			pause();
		if (feed_next(feed, -1, &batch) == 0 && number % 4 != 1)
			feed_release(feed, &batch);
	}
}

/*
 * Every fifth client is killed at a random time while it connects and subscribes, the others after
 * a batch or two.
 */
static void kill_one(const struct feed_options *options, unsigned number)
{
	int ready[2];
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t client = fork();
	assert_true(client >= 0);
	if (client == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		live_dangerously(options, ready[1], number);
	}
	close(ready[1]);
	if (number % 5 != 0) {
		char byte;
		assert_int_equal(read(ready[0], &byte, 1), 1);
	}
	usleep(number * 7919 % 4000);
	kill(client, SIGKILL);
	int status;
	assert_int_equal(waitpid(client, &status, 0), client);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(ready[0]);
}

TEST(killed_clients_leave_nothing)
{
	struct fixture fixture;
	fixture_init(&fixture);
	const char *dataset = fixture_dataset(&fixture, "killed", 600, FIXTURE_JPEG, 0);
	fixture_start(&fixture, NULL, "--threads", "2", NULL);
	struct feed_options options =
		fixture_options(&fixture, dataset, "random_resized_crop(32) hflip(0.5)");
	struct control_client *control = control_client_start(&fixture, &options);
	struct resource_counts before = count_resources(&fixture), warm = before;
	assert_int_equal(before.feeds, 1);

	double longest_ms = 0;
	for (unsigned attempt = 1; attempt <= ATTEMPTS; attempt++) {
		unsigned phase = control_client_phase(control);
		uint64_t start_ns = now_ns();
		struct feed_options theirs = options;
		theirs.name = "client";
		for (unsigned number = 0; number < VICTIMS; number++) {
			theirs.seed = number;
			kill_one(&theirs, number);
			if (attempt == 1 && number == WARM_UP)
				warm = count_resources(&fixture);
		}
		longest_ms = control_client_longest_ms(control);
		print_message("%d clients killed in %.1f s: %llu batches for the other one, "
			      "longest wait %.1f ms\n",
			      VICTIMS, (double)(now_ns() - start_ns) / 1e9,
			      (unsigned long long)control->phase_batches[phase], longest_ms);
		if (longest_ms <= CONTROL_STALL_MAX_MS)
			break;
	}
	control_client_wait(control, 10);
	wait_resources_released(&fixture, &before);
	struct resource_counts after = count_resources(&fixture);
	print_message(
		"daemon before and after: descriptors %u %u, ring mappings %u %u, shared bytes "
		"%llu %llu, "
		"anonymous KiB %llu (%llu after %d) %llu\n",
		before.descriptors, after.descriptors, before.ring_mappings, after.ring_mappings,
		(unsigned long long)before.shared_bytes, (unsigned long long)after.shared_bytes,
		(unsigned long long)before.anonymous_kib, (unsigned long long)warm.anonymous_kib,
		WARM_UP, (unsigned long long)after.anonymous_kib);
	if (!sanitized()) {
		assert_true(longest_ms <= CONTROL_STALL_MAX_MS);
		assert_true(after.anonymous_kib <= warm.anonymous_kib + GROWTH_MAX_KIB);
	}
	control_client_finish(control);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}
