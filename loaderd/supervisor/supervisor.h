/*
 * The supervisor: what the service is, and a private daemon. Accepts connections, asks the kernel
 * whose they are, and hands them to that user's worker. It reads no file of a user's and no
 * message, and gets no descriptor from anybody. One thread with epoll, and one per process (it
 * handles signals). loaderd(1), ISOLATION.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>

enum { SUPERVISOR_LISTENERS_MAX = 16 };

struct supervisor_options {
	const struct config *config;              /* that it starts with */
	int listen_fds[SUPERVISOR_LISTENERS_MAX]; /* listening sockets, taken over */
	unsigned listen_count;
	int admin_fd; /* of the administrator; -1: none */
	/* the sockets are systemd's: while stopping, leave new connections to the next daemon */
	bool activated;
	int lifeline_fd;   /* the daemon ends at once when this reads end of file; -1: none */
	bool private_only; /* serve only the daemon's own user, by one worker that starts at once */
	/*
	 * Reads the configuration again, on SIGHUP: 0, or -errno with a sentence in error. NULL: it
	 * comes from no file, and SIGHUP ends the daemon.
	 */
	int (*read_config)(const void *context, struct config *ret_config,
			   struct config_error *error);
	const void *read_context;
};

/* 0 after a regular stop; -errno with a sentence in error. Blocks the signals that it handles. */
int supervisor_run(const struct supervisor_options *options, struct config_error *error);
