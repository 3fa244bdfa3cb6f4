/*
 * The supervisor: the main process of the service, or of a private daemon. Accepts connections,
 * gets the peer's uid from the kernel, and passes each connection to that user's worker. It never
 * reads a user's file or a client's request and never receives an fd. Single-threaded event loop;
 * one per process, because it handles signals. loaderd(1), ISOLATION.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>

enum { SUPERVISOR_LISTENERS_MAX = 16 };

struct supervisor_options {
	const struct config *config;              /* initial configuration */
	int listen_fds[SUPERVISOR_LISTENERS_MAX]; /* listening sockets, taken over */
	unsigned listen_count;
	int admin_fd; /* admin socket; -1 if none */
	/*
	 * socket-activated: stop accepting while draining, so that connections wait for the next
	 * daemon
	 */
	bool activated;
	int lifeline_fd;   /* stop at once when this reads EOF; -1 if none */
	bool private_only; /* serve only the daemon's own user; start its worker at once */
	/*
	 * Rereads the configuration on SIGHUP. Returns 0, or -errno with a sentence in error. NULL
	 * if there is no configuration file: SIGHUP then terminates the daemon.
	 */
	int (*read_config)(const void *context, struct config *ret_config,
			   struct config_error *error);
	const void *read_context;
};

/*
 * Runs until stopped. Returns 0 after a regular stop, or -errno with a sentence in error. Blocks
 * the signals that it handles.
 */
int supervisor_run(const struct supervisor_options *options, struct config_error *error);
