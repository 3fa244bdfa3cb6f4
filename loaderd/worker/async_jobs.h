/*
 * Jobs that may block (opening files, mapping shared memory, closing clients' fds) run on separate
 * threads, so that the control thread stays responsive. run() is called on a job thread; then
 * async_jobs_finish() calls done() on the control thread. A job is embedded in its owner's struct
 * and belongs to this module between the two calls.
 *
 * Only a few jobs use a CPU at a time, however many are queued: job threads are outside the decode
 * pool's fair share and would take CPU time from other users. Another job starts early only when a
 * running one sleeps in I/O or close(). Job threads have a higher nice value than decode threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct async_job {
	void (*run)(struct async_job *job);
	void (*done)(struct async_job *job); /* may be NULL */
	STAILQ_ENTRY(async_job) next;
};

struct async_jobs;

/* Limit of threads, and so of jobs that can hang in storage before others must wait. */
enum { ASYNC_JOBS_THREADS_MAX = 64 };

/*
 * at_once: jobs that may use a CPU at a time. Call it before entering the sandbox, which forbids
 * setpriority(); threads started later inherit the lowered priority. Returns 0 or -errno.
 */
int async_jobs_new(unsigned at_once, struct async_jobs **ret_jobs);
/* Waits for running and queued jobs. Does not call done(). Accepts NULL. */
void async_jobs_free(struct async_jobs *jobs);
void async_jobs_add(struct async_jobs *jobs, struct async_job *job);
/*
 * Closes an fd on a job thread: with SO_LINGER, close() blocks for as long as the socket's owner
 * chose.
 */
void async_jobs_close(struct async_jobs *jobs, int fd);
/* Returns an fd that is readable when async_jobs_finish() has work. */
int async_jobs_fd(const struct async_jobs *jobs);
void async_jobs_finish(struct async_jobs *jobs);
/* When to call async_jobs_replace_blocked(); UINT64_MAX for never. Control thread only. */
uint64_t async_jobs_due_ns(struct async_jobs *jobs);
/*
 * Finds jobs that have slept since the last call, by the CPU time of their threads, and lets others
 * run in their place. Control thread only.
 */
void async_jobs_replace_blocked(struct async_jobs *jobs, uint64_t now_ns);
/*
 * Bracket a wait inside a job, during which another job may run. async_jobs_resume() returns when
 * the job may use a CPU again. No-ops on other threads.
 */
void async_jobs_suspend(void);
void async_jobs_resume(void);
