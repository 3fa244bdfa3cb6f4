/*
 * Time accounting of a pool thread. Stages are measured in ticks (ticks.h), which also advance
 * while the thread is not running. Every few milliseconds, and after a long lap, the clock compares
 * elapsed ticks with the thread's CPU time and splits the difference into:
 *
 * - queued: the thread was runnable, but other threads had the CPU;
 * - blocked: the thread slept in the kernel without having called a wait, that is, in a page fault
 *   on a dataset page that must be read first.
 *
 * Only these comparisons make system calls. A clock belongs to one thread.
 */
#pragma once

#include <stdint.h>

struct thread_clock {
	uint64_t mark;                  /* ticks; all time before it is accounted for */
	uint64_t queued_ns, blocked_ns; /* detected, not yet assigned to stages */

	uint64_t begun;    /* ticks at the last comparison with CPU time */
	uint64_t asleep;   /* ticks since `begun` that the thread waited on purpose */
	uint64_t cpu_ns;   /* CPU time at `begun` */
	uint64_t delay_ns; /* run-queue time already accounted for */
	long switches;     /* voluntary context switches at the last check */
	/*
	 * fd of /proc/thread-self/schedstat; -1 if unavailable, and all missing time then counts as
	 * queued.
	 */
	int schedstat;
};

/* Call it on the thread that the clock measures. */
void thread_clock_init(struct thread_clock *clock);
void thread_clock_deinit(struct thread_clock *clock);
/* Discards the time up to now, for example after a sleep. */
void thread_clock_restart(struct thread_clock *clock);
/*
 * Returns the ticks since the mark and moves the mark. Adds to queued_ns and blocked_ns if a
 * comparison is due. `asleep`: how many of these ticks the thread waited on purpose.
 */
uint64_t thread_clock_lap(struct thread_clock *clock, uint64_t asleep);
