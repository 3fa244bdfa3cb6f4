/*
 * A worker's watch. Stages are measured in ticks (ticks.h), which also pass while the thread does
 * not run. Every few milliseconds, and after a long lap, the watch compares ticks with the thread's
 * CPU time, the only system call of the accounts, and divides what is missing:
 *
 * queued: the thread could have run, but others had the CPU. blocked: the kernel had put it to
 * sleep, which happens to a worker outside its own waiting only when it touches a page of the
 * dataset that has to be read first.
 *
 * Belongs to its thread.
 */
#pragma once

#include <stdint.h>

struct thread_clock {
	uint64_t mark;                  /* ticks; all before has been booked */
	uint64_t queued_ns, blocked_ns; /* found missing, not booked yet */

	uint64_t begun;    /* ticks when CPU time was last compared */
	uint64_t asleep;   /* ticks since then in which the thread waited of its own will */
	uint64_t cpu_ns;   /* CPU time then */
	uint64_t delay_ns; /* time in run queues that is accounted for */
	long switches;     /* voluntary context switches, as last read */
	/* descriptor; -1: the system does not tell, and what is missing counts as queued */
	int schedstat;
};

/* On the thread itself. */
void thread_clock_init(struct thread_clock *watch);
void thread_clock_deinit(struct thread_clock *watch);
/* Time up to now is not to be booked: after a sleep, for instance. */
void thread_clock_restart(struct thread_clock *watch);
/*
 * Returns the ticks since the mark, moves it, and adds to queued_ns and blocked_ns when it is time
 * to compare. asleep: ticks of them spent waiting on purpose.
 */
uint64_t thread_clock_lap(struct thread_clock *watch, uint64_t asleep);
