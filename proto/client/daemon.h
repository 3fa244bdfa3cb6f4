/*
 * Private daemons as seen by the rest of libfeed, which identifies them by socket name. Any thread.
 * Internal: not installed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds a program to run: `binary`, the variable's value, the file of that name next to this
 * program, or the name, for PATH. NULL and "" are none.
 */
void program_find(const char *binary, const char *variable, const char *name, char *ret_path,
		  size_t size);
/*
 * Moves an fd, which it takes, above those that a child gets by number. Returns it, or -1 with
 * errno.
 */
int fd_above_child(int fd);

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
