/*
 * The worker's server: a control thread with epoll that owns a user's connections and limits.
 * Blocking work goes to the jobs, decoding to the pool. Batches do not pass through the control
 * thread; only connections, requests, doorbells from clients and hang-ups do.
 *
 * One per process, at the worker's end of worker_ipc.h. server_run() returns when the supervisor
 * retires the worker or is gone, or when a drain has completed.
 */
#pragma once

#include "loaderd/config.h"

#include <sys/types.h>

struct server;

/*
 * Creates the server and its threads. Everything that needs more than reading fds happens here, so
 * that server_run() can run in the sandbox. uid: the user to serve. config must outlive the server,
 * which changes it on the supervisor's orders. Returns 0, or -errno, usually with a sentence in
 * error.
 */
int server_new(struct config *config, uid_t uid, struct server **ret_server,
	       struct config_error *error);
/* Returns the largest number of threads that the server may have. */
unsigned server_threads_max(const struct server *server);
void server_free(struct server *server);
/* Serves until told to stop. Returns 0 after a regular stop, -errno if epoll fails. */
int server_run(struct server *server);
