/*
 * Closes descriptors, and does other work that may block, on threads of its own. The last close of
 * a client's connection also closes what the client has put into it, which may be a socket that
 * lingers for as long as the client has chosen: nothing that serves others waits for that, and it
 * is cut short, or who does it again and again would leave no descriptors. A key, the client's uid,
 * chooses the thread, so that few others share it with a user who does so. Other work may
 * take long: one of these threads does it, and no more of it than that; what more there is has
 * threads of its own, which start when they are needed, and goes to whichever is idle. Some of them
 * are left for work of which nothing says that it will take long.
 *
 * Owned by the supervisor, whose thread alone uses it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct blocking_pool;

int blocking_pool_new(struct blocking_pool **ret_pool);
/* Does not wait for what is still to be closed. */
void blocking_pool_free(struct blocking_pool *blocking_pool);
/* Takes fd over. */
void blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd);
/*
 * Calls run(context) on a thread. slow: it will take long, as things look. False: too much waits
 * already. The key chooses the thread where the system lets us have none but those that close.
 */
bool blocking_pool_run(struct blocking_pool *blocking_pool, uint32_t key, bool slow,
		       void (*run)(void *context), void *context);
