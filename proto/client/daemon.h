/*
 * Private daemons as seen by the rest of libfeed, which identifies them by socket name. Any thread.
 * Internal: not installed.
 */
#pragma once

#include <stdbool.h>

/* Returns true for the socket name of any process's private daemon. */
bool daemon_is_private(const char *socket);
/*
 * Returns true for a private daemon of this process that has ended; its socket would never answer.
 */
bool daemon_has_ended(const char *socket);
/*
 * Restarts that daemon if it has ended. Returns 0 also if it runs or does not belong to this
 * process.
 */
int daemon_revive(const char *socket, char *error);
/*
 * Returns an fd that becomes readable when that daemon ends, or -1 if it does not belong to this
 * process. The caller closes it.
 */
int daemon_watch(const char *socket);
