/*
 * Threads for close() and other calls that may block.
 *
 * - Closing threads call close(). The last close of a client's connection also closes the fds
 *   queued in it. One of these may be a socket with SO_LINGER, whose close() blocks for as long as
 *   the client chose; a timer signal therefore interrupts it. A key (the uid) maps to one closing
 *   thread, so a user whose close() blocks delays few others.
 * - Runner threads run other jobs. They start on demand; slow jobs have separate runners. To avoid
 *   starting runners, one job at a time may run on the closing thread of its key, if that is idle.
 *
 * Owned by the supervisor. Supervisor thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct blocking_pool;

/* Threads of all kinds. Each has a timer, which counts in RLIMIT_SIGPENDING. */
enum { BLOCKING_POOL_THREADS_MAX = 24 };

int blocking_pool_new(struct blocking_pool **ret_pool);
/* Does not wait: the threads finish queued jobs, then exit. */
void blocking_pool_free(struct blocking_pool *blocking_pool);
/*
 * Closes fd on the closing thread of this key, on another if that one is busy with a job, or in the
 * caller if all queues are full.
 */
void blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd);
/*
 * Calls run(context) on a thread. slow: the job is known to take long. key: selects the closing
 * thread. Returns false if the queue is full.
 */
bool blocking_pool_run(struct blocking_pool *blocking_pool, uint32_t key, bool slow,
		       void (*run)(void *context), void *context);
