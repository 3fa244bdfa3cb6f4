/*
 * Jobs that may block (opening files, mapping shared memory, closing descriptors of clients) run on
 * threads of their own, so that the control thread always answers. run() is called on such a
 * thread, then done() on the control thread by async_jobs_finish(). A job is embedded in its
 * owner's structure, and belongs to this module between the two calls.
 *
 * Only a few jobs use a CPU at a time, however many are queued: these threads are outside the
 * decode pool's fair share and would take CPU time from other users. Another job starts early only
 * when a running one sleeps in I/O or close(). The threads have a higher nice value than those that
 * decode.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct async_job {
	void (*run)(struct async_job *job);
	void (*done)(struct async_job *job); /* NULL: nothing follows run() */
	STAILQ_ENTRY(async_job) next;
};

struct async_jobs;

/* So many jobs may hang in storage before others have to wait. */
enum { ASYNC_JOBS_THREADS_MAX = 64 };

/*
 * at_once: jobs that may use a CPU at a time. Call it before the sandbox is entered: threads
 * lower their own priority, which is refused later. Threads that are started then inherit it.
 */
int async_jobs_new(unsigned at_once, struct async_jobs **ret_jobs);
/* Waits for running and queued jobs, without calling done(). */
void async_jobs_free(struct async_jobs *jobs);
void async_jobs_add(struct async_jobs *jobs, struct async_job *job);
/* Closes a descriptor: with SO_LINGER close() blocks for as long as the socket's owner chose. */
void async_jobs_close(struct async_jobs *jobs, int fd);
/* Readable when async_jobs_finish() has work. */
int async_jobs_fd(const struct async_jobs *jobs);
void async_jobs_finish(struct async_jobs *jobs);
/* When async_jobs_replace_blocked() is to be called; UINT64_MAX: it has nothing to do. Control
 * thread. */
uint64_t async_jobs_due_ns(struct async_jobs *jobs);
/*
 * Looks for jobs that have slept since the last call, by the CPU time of their threads, and lets
 * others run in their place. Control thread.
 */
void async_jobs_replace_blocked(struct async_jobs *jobs, uint64_t now_ns);
/*
 * Around a wait inside of a job, during which another may run. async_jobs_resume() returns when the
 * job may use a CPU again. On other threads both do nothing.
 */
void async_jobs_suspend(void);
void async_jobs_resume(void);
