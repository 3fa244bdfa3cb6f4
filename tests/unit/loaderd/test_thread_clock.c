/* Ticks keep time, and the thread clock distinguishes running, waiting for a CPU, and sleeping. */
#include "format/base/system/ticks.h"
#include "loaderd/batch/thread_clock.h"
#include "tests/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define MS UINT64_C(1000000)

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

TEST(ticks_keep_time)
{
	ticks_init();
	uint64_t outer = clock_ns(CLOCK_MONOTONIC), first = ticks_now();
	uint64_t inner = clock_ns(CLOCK_MONOTONIC);
	usleep(30000);
	inner = clock_ns(CLOCK_MONOTONIC) - inner;
	uint64_t ns = ticks_to_ns(ticks_since(first));
	outer = clock_ns(CLOCK_MONOTONIC) - outer;
	assert_true(ns > inner - inner / 1000);
	assert_true(ns < outer + outer / 1000);
	assert_int_equal(ticks_since(ticks_now() + ticks_now()), 0);
}

struct spinner {
	pthread_t thread;
	_Atomic bool stop;
};

static void *spin(void *argument)
{
	struct spinner *spinner = argument;
	while (!atomic_load(&spinner->stop))
		;
	return NULL;
}

/* Pins all spinners and this thread to one CPU. */
static void pin_to_one_cpu(struct spinner *spinners, unsigned count, cpu_set_t *ret_before)
{
	cpu_set_t one;
	pthread_getaffinity_np(pthread_self(), sizeof(*ret_before), ret_before);
	CPU_ZERO(&one);
	for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, ret_before))
			CPU_SET(cpu, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(pthread_create(&spinners[i].thread, NULL, spin, &spinners[i]), 0);
}

static void disperse(struct spinner *spinners, unsigned count, const cpu_set_t *before)
{
	for (unsigned i = 0; i < count; i++) {
		atomic_store(&spinners[i].stop, true);
		pthread_join(spinners[i].thread, NULL);
	}
	pthread_setaffinity_np(pthread_self(), sizeof(*before), before);
}

/* Runs laps of about 50 us until this much CPU time is used. */
static uint64_t work_for(struct thread_clock *clock, uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns, laps = 0;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end) {
		uint64_t start = ticks_now();
		while (ticks_to_ns(ticks_since(start)) < 50000)
			;
		laps += thread_clock_lap(clock, 0);
	}
	return ticks_to_ns(laps);
}

static void assert_about(uint64_t value, uint64_t expected, uint64_t tolerance)
{
	if (value > expected + tolerance || value + tolerance < expected)
		fail_msg("%.3f ms, expected %.3f ms", (double)value / 1e6, (double)expected / 1e6);
}

TEST(queueing)
{
	struct spinner spinners[2] = {0};
	struct thread_clock clock;
	cpu_set_t before;
	pin_to_one_cpu(spinners, 2, &before);
	thread_clock_init(&clock);
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t wall = work_for(&clock, 60 * MS);
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	disperse(spinners, 2, &before);
	thread_clock_deinit(&clock);
	/* Each of the three threads gets a third of the CPU; other load may take more. */
	assert_true(wall > 2 * cpu);
	assert_about(clock.queued_ns, wall - cpu, (wall - cpu) / 10);
	assert_int_equal(clock.blocked_ns, 0);
}

/* The kernel accounts involuntary sleep as sleep. */
TEST(blocking)
{
	struct thread_clock clock;
	thread_clock_init(&clock);
	if (clock.schedstat < 0)
		skip();
	uint64_t asleep = 0, wall = 0;
	for (int i = 0; i < 20; i++) {
		wall += work_for(&clock, MS / 4);
		uint64_t start = ticks_now();
		usleep(3000);
		asleep += ticks_since(start);
		wall += ticks_to_ns(thread_clock_lap(&clock, 0));
	}
	thread_clock_deinit(&clock);
	/* A late wake-up counts as sleep in `asleep`, but as queueing in the thread clock. */
	assert_true(clock.blocked_ns > 20 * 3 * MS * 9 / 10);
	assert_about(clock.blocked_ns + clock.queued_ns, ticks_to_ns(asleep),
		     ticks_to_ns(asleep) / 10 + (wall - ticks_to_ns(asleep)));
}

TEST(sleep_on_purpose)
{
	struct thread_clock clock;
	uint64_t missing = 0;
	thread_clock_init(&clock);
	for (int i = 0; i < 5; i++) {
		uint64_t start = ticks_now();
		usleep(4000);
		thread_clock_lap(&clock, ticks_since(start));
		missing = clock.blocked_ns;
		usleep(4000);
		thread_clock_restart(&clock);
	}
	thread_clock_deinit(&clock);
	assert_true(missing < MS);
}
