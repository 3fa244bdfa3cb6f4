/*
 * Threads for close() and other calls that may block. The last close of a client's connection also
 * closes the descriptors queued in it, and one of these may be a socket with SO_LINGER: close()
 * blocks for as long as the client chose, so a signal interrupts it. Each uid has one closing
 * thread, by uid modulo their number, so a user who does this delays few others. Other work runs on
 * one closing thread while it is idle, else on runners, which start on demand and take the next job
 * each. Some runners are reserved for jobs not known to be slow.
 *
 * Owned by the supervisor, whose thread alone uses it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct blocking_pool;

int blocking_pool_new(struct blocking_pool **ret_pool);
/* Does not wait: threads finish what is queued. */
void blocking_pool_free(struct blocking_pool *blocking_pool);
/* Closes fd on the thread of this key. */
void blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd);
/*
 * Calls run(context) on a thread. slow: the job is known to take long. Returns false if the queue
 * is full. The key selects a closing thread where no runner can be started.
 */
bool blocking_pool_run(struct blocking_pool *blocking_pool, uint32_t key, bool slow,
		       void (*run)(void *context), void *context);
