/* Creates and removes the daemon's listening sockets. */
#pragma once

#include "loaderd/config.h"

/* Suffix of the admin socket: its path is config->socket plus this. */
#define LISTEN_ADMIN_SUFFIX ".admin"

/*
 * Binds config->socket and the admin socket (mode 0600) and listens on both. Creates the directory
 * of the default socket. Returns -EADDRINUSE if a daemon answers on an existing socket file, and
 * replaces the file if none does. A lock file serialises this check among daemons that start at the
 * same time. ret_admin_fd: NULL if there is an admin socket already. On error, `error` holds a
 * sentence.
 */
int listen_open(const struct config *config, int *ret_fd, int *ret_admin_fd,
		struct config_error *error);
/*
 * Removes the socket files unless another daemon has replaced them. Call it after closing the
 * listening fds.
 */
void listen_remove(const struct config *config);
