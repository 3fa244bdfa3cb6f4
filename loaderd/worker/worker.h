/* A worker's life: the process that a supervisor starts for one user, at its end of link.h. */
#pragma once

#include "loaderd/worker/sandbox.h"
#include "loaderd/worker/server.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Enters the user's control group by IPC_GROUP_FD, which it closes. First of all: what a process
 * was charged for before stays with the group that it was in. -errno.
 */
int worker_join_group(void);
/*
 * uid: whom it serves. shared: the daemon has other users, too. Returns the process's exit status,
 * which is a positive errno if it could not begin to serve.
 */
int worker_run(uid_t uid, bool shared);
/* What it may take at most. */
struct sandbox_limits worker_limits(const struct server *server);
