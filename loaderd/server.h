/*
 * The server: one control thread with epoll that owns listening sockets, sessions and limits, and hands everything slow to the chores
 * and everything heavy to the pool. Batches do not pass through it; only connects, requests, doorbells from clients and hang-ups do.
 *
 * One per process (it handles signals). server_run() returns when the daemon has been told to stop and has drained.
 */
#pragma once

#include "config.h"

#include <stdbool.h>

struct server;

struct server_options {
	const struct config *config; /* lives as long as the server */
	const int *listen_fds;       /* listening sockets, taken over on success */
	unsigned listen_count;
	bool activated;              /* the sockets are systemd's: while stopping, leave new connections to the next daemon */
	int lifeline_fd;   /* the daemon ends at once when this reads end of file; -1: none */
	bool private_only; /* serve only the daemon's own user */
};

/* -errno with a sentence in error. Blocks the signals that it handles in the calling thread, which becomes the control thread. */
int server_new(const struct server_options *options, struct server **ret_server,
	       struct config_error *error);
void server_free(struct server *server);
/* 0 after a regular stop, negative errno when epoll fails. */
int server_run(struct server *server);
/* From another thread: as if SIGTERM had come. For programs that embed the daemon. */
void server_stop(struct server *server);
