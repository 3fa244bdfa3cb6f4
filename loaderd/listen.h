/* Making the daemon's listening sockets. */
#pragma once

#include "loaderd/config.h"

/* The administrator's socket has the clients' name and this. */
#define LISTEN_ADMIN_SUFFIX ".admin"

/*
 * Binds and listens on config->socket, and on the administrator's beside it, of mode 0600. The
 * folder of the default socket is made. A socket file that a daemon answers on is left alone
 * (-EADDRINUSE); one that nobody answers on is replaced. A locked file beside it keeps two daemons
 * that start together from both deciding so. Sentence in error.
 */
int listen_open(const struct config *config, int *ret_fd, int *ret_admin_fd,
		struct config_error *error);
/*
 * Removes the socket files, whose descriptors are closed, unless another daemon has put its own
 * there.
 */
void listen_remove(const struct config *config);
