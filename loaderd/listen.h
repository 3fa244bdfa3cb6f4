/* Making the daemon's listening socket. */
#pragma once

#include "config.h"

/*
 * Binds and listens on config->socket. A socket file that a daemon answers on is left alone (-EADDRINUSE); one that nobody answers on is
 * replaced. A lock on the directory keeps two daemons that start together from both deciding so. Sentence in error.
 */
int listen_open(const struct config *config, int *ret_fd, struct config_error *error);
/* Removes the socket file unless another daemon has put its own there. */
void listen_remove(const struct config *config, int fd);
