/*
 * Threads of the CPU backend: those of the OpenMP runtime that oneDNN uses, so that the two
 * never compete. Calls libgomp's entry point directly, so it works with any compiler and links no
 * second runtime.
 *
 * Work is split into tasks, which threads claim dynamically. Sums are split by the problem size,
 * never by the number of threads, so results do not depend on which thread runs a task, and a
 * thread that shares its core with the loader just runs fewer. A thread pool belongs to the thread
 * that uses the device; the workers are libgomp's and live as long as the process.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct thread_pool {
	unsigned threads; /* including the caller's thread */
	unsigned cpus; /* CPUs available to the threads, the default of `threads`; 0 if unknown */
	/* pin each thread to a CPU; only if the threads use all CPUs of the process */
	bool pin;
	cpu_set_t allowed;
	cpu_set_t caller; /* affinity of the calling thread before thread_pool_enter() */
	bool entered;
};

/* Runs task 0..tasks - 1 on thread 0..threads - 1; a thread runs one task at a time. */
typedef void (*thread_pool_function)(void *context, uint32_t task, unsigned thread);

/*
 * With threads 0 it uses the number of CPUs that affinity and cgroup quota allow, divided by
 * `sharers`: the number of processes on the same CPUs, this one included.
 */
int thread_pool_init(struct thread_pool *thread_pool, unsigned threads, unsigned sharers);
/*
 * Bracket all computation, oneDNN's included: set the number of threads and, on two CPUs, pin the
 * caller. Without pinning, the scheduler was seen to run two threads that wait for each other at a
 * barrier on one CPU for milliseconds. thread_pool_leave() restores the affinity, so that child
 * processes do not inherit it.
 */
void thread_pool_enter(struct thread_pool *thread_pool);
void thread_pool_leave(struct thread_pool *thread_pool);
/* Runs all tasks; returns when they are done. */
void thread_pool_run(struct thread_pool *thread_pool, uint32_t tasks, thread_pool_function function,
		     void *context);
