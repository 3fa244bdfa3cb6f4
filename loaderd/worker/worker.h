/*
 * The worker process, which the supervisor spawns for one user; see worker_ipc.h for its channels.
 */
#pragma once

#include "loaderd/worker/sandbox.h"
#include "loaderd/worker/server.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Enters the user's cgroup through IPC_GROUP_FD, which it closes. Call it first: memory charged
 * before stays with the previous cgroup. Returns 0 or -errno.
 */
int worker_join_group(void);
/*
 * Runs the worker. uid: the user to serve. shared: the daemon serves other users, too. Returns the
 * exit status of the process: a positive errno if it failed.
 */
int worker_run(uid_t uid, bool shared);
/* Returns the resource limits for the server. */
struct sandbox_limits worker_limits(const struct server *server);
