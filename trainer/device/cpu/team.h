/*
 * The worker threads of the CPU backend: those of the OpenMP runtime that oneDNN itself runs on, so
 * that the two never compete. libgomp's entry point is called directly; so it makes no difference
 * which compiler builds this, and no second runtime comes in.
 *
 * Work is cut into tasks, and threads claim tasks as they get free. Whatever is summed over tasks
 * is cut by the problem alone, never by the threads: who does a task does not change its result,
 * and a thread that shares its core with the loader does fewer. A team belongs to the thread that
 * uses the device; its workers are libgomp's and live as long as the process.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct team {
	unsigned threads; /* the caller's included */
	unsigned cpus;    /* that there are for them, which is what threads 0 takes; 0: not known */
	/* threads take a CPU each: only when they take all that the process has */
	bool pin;
	cpu_set_t allowed;
	cpu_set_t caller; /* what the caller's affinity was at team_enter() */
	bool entered;
};

/* task: 0 .. tasks - 1; thread: 0 .. threads - 1, never two tasks at a time with the same one */
typedef void (*team_function)(void *context, uint32_t task, unsigned thread);

/*
 * threads 0: as many as there are CPUs allowed by affinity, or by the cgroup's quota if that is
 * fewer; an even share of them if `sharers` processes, this one included, do the same on these
 * CPUs.
 */
int team_init(struct team *team, unsigned threads, unsigned sharers);
/*
 * Around every stretch of work, oneDNN's included: sets the number of threads and, on two CPUs, the
 * caller's place. Left to the scheduler, two threads that wait for each other at a barrier were
 * seen to share one CPU for milliseconds at a time. team_leave() restores, so that a child process
 * does not inherit it.
 */
void team_enter(struct team *team);
void team_leave(struct team *team);
/* Runs all tasks and returns when they are done. */
void team_run(struct team *team, uint32_t tasks, team_function function, void *context);
