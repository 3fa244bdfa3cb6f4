/*
 * What libfeed's other files need to know of private daemons, by the sockets that their feeds name.
 * Any thread. Internal: not installed.
 */
#pragma once

#include <stdbool.h>

/* Whether the name is one of a private daemon, of this process or another. */
bool daemon_is_private(const char *socket);
/* Whether it is the socket of a daemon of this process that has ended: nobody would answer there.
 */
bool daemon_has_ended(const char *socket);
/* Starts that daemon again. 0 also where it runs, or is not this process's. */
int daemon_revive(const char *socket, char *error);
/* A descriptor that becomes readable when that daemon ends, for the caller to close; -1: it is not
 * this process's. */
int daemon_watch(const char *socket);
