/*
 * The worker's server: one control thread with epoll that owns a user's connections and limits, and
 * hands everything slow to the jobs and everything heavy to the pool. Batches do not pass through
 * it; only connections, requests, doorbells from clients and hang-ups do.
 *
 * One per process, at the worker's end of link.h. server_run() returns when the supervisor has told
 * it to end, and it has drained.
 */
#pragma once

#include "loaderd/config.h"

#include <sys/types.h>

struct server;

/*
 * -errno with a sentence in error. Everything that takes more than reading descriptors is done
 * here: server_run() can be had in a sandbox. uid: whom it serves. config
 * lives as long as the server, which changes it as the supervisor says.
 */
int server_new(struct config *config, uid_t uid, struct server **ret_server,
	       struct config_error *error);
/* Threads that it may ever have. */
unsigned server_threads_max(const struct server *server);
void server_free(struct server *server);
/* 0 after a regular stop, negative errno when epoll fails. */
int server_run(struct server *server);
