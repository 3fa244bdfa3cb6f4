#include "loaderd/batch/thread_clock.h"

#include "format/base/system/clock.h"
#include "format/base/system/ticks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	COMPARE_NS = 4 * 1000 * 1000,
	/* Compare at once after a lap this long: other threads may have had the CPU. */
	LONG_LAP_NS = 1000 * 1000,
	/*
	 * If less than 1/MISSING_PART of the time is missing, it is interrupts and rounding: do not
	 * ask the kernel for the cause.
	 */
	MISSING_PART = 32,
};

static long voluntary_switches(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_THREAD, &usage) < 0 ? 0 : usage.ru_nvcsw;
}

/*
 * Returns the time the thread has spent in run queues (Linux,
 * Documentation/scheduler/sched-stats.rst).
 */
static uint64_t run_delay_ns(const struct thread_clock *clock)
{
	char text[96];
	uint64_t delay_ns;
	ssize_t size = pread(clock->schedstat, text, sizeof(text) - 1, 0);
	if (size <= 0)
		return clock->delay_ns;
	text[size] = '\0';
	return sscanf(text, "%*s %" SCNu64, &delay_ns) == 1 ? delay_ns : clock->delay_ns;
}

void thread_clock_init(struct thread_clock *clock)
{
	*clock = (struct thread_clock){0};
	clock->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	clock->delay_ns = run_delay_ns(clock);
	thread_clock_restart(clock);
}

void thread_clock_deinit(struct thread_clock *clock)
{
	if (clock->schedstat >= 0)
		close(clock->schedstat);
}

void thread_clock_restart(struct thread_clock *clock)
{
	clock->asleep = 0;
	clock->switches = voluntary_switches();
	clock->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	clock->mark = clock->begun = ticks_now();
}

static void thread_clock_divide(struct thread_clock *clock, uint64_t missing_ns)
{
	long switches = voluntary_switches();
	uint64_t queued_ns = missing_ns;
	if (switches == clock->switches || clock->schedstat < 0) {
		clock->delay_ns += queued_ns;
	} else {
		uint64_t delay_ns = run_delay_ns(clock);
		uint64_t newly_ns = delay_ns > clock->delay_ns ? delay_ns - clock->delay_ns : 0;
		if (newly_ns < missing_ns)
			queued_ns = newly_ns;
		clock->delay_ns = delay_ns;
	}
	clock->switches = switches;
	clock->queued_ns += queued_ns;
	clock->blocked_ns += missing_ns - queued_ns;
}

uint64_t thread_clock_lap(struct thread_clock *clock, uint64_t asleep)
{
	uint64_t lap = ticks_since(clock->mark);
	uint64_t now = clock->mark + lap;
	clock->mark = now;
	clock->asleep += asleep;
	uint64_t wall_ns = ticks_to_ns(now - clock->begun);
	if (wall_ns < COMPARE_NS && ticks_to_ns(lap) < LONG_LAP_NS)
		return lap;
	uint64_t cpu_now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t known_ns = cpu_now_ns - clock->cpu_ns + ticks_to_ns(clock->asleep);
	if (wall_ns > known_ns && (wall_ns - known_ns) * MISSING_PART > wall_ns)
		thread_clock_divide(clock, wall_ns - known_ns);
	clock->begun = now;
	clock->cpu_ns = cpu_now_ns;
	clock->asleep = 0;
	return lap;
}
