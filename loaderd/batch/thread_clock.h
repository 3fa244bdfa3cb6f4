/*
 * Time accounting of a pool thread. Stages are measured in ticks (ticks.h), which also advance
 * while the thread is not running. Every few milliseconds, and after a long lap, the clock compares
 * elapsed ticks with the thread's CPU time and splits the difference. Only these comparisons make
 * system calls.
 *
 * queued: the thread was runnable, but other threads had the CPU. blocked: the kernel had put it to
 * sleep. Outside its own waits, a thread sleeps only when it touches a dataset page that must be
 * read first.
 *
 * Only its own thread may use it.
 */
#pragma once

#include <stdint.h>

struct thread_clock {
	uint64_t mark;                  /* ticks; all time before it is accounted for */
	uint64_t queued_ns, blocked_ns; /* detected, not yet accounted for */

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

/* Must be called on the thread itself. */
void thread_clock_init(struct thread_clock *clock);
void thread_clock_deinit(struct thread_clock *clock);
/* Discards the time up to now, for example after a sleep. */
void thread_clock_restart(struct thread_clock *clock);
/*
 * Returns the ticks since the mark and moves the mark. Adds to queued_ns and blocked_ns if a
 * comparison is due. `asleep`: how many of these ticks the thread waited on purpose.
 */
uint64_t thread_clock_lap(struct thread_clock *clock, uint64_t asleep);
