/*
 * Where daemons listen and clients look that are told of no socket: one rule for both. loaderd(1),
 * FILES; feed(3), ENVIRONMENT.
 *
 * Root's daemon is the system's. Another user's own listens in $XDG_RUNTIME_DIR, as the socket unit
 * of systemctl --user does, or without that in a folder of its own below /tmp. A client takes the
 * first of the two that is there, else the system's. Folders that others can write count as none.
 * Functions without state but the environment, any thread.
 */
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

enum { SOCKET_PATH_MAX = 108 }; /* bytes with the final zero: what an address holds */

/* The address of a path, or of "@name" in the abstract namespace, and its size; 0: too long. */
socklen_t socket_address(const char *name, struct sockaddr_un *ret_address);

/* What a daemon of this user listens on. */
void socket_to_listen(char ret_path[SOCKET_PATH_MAX]);
/*
 * Makes the folder of that, unless it is there. -EPERM: it is another user's, or others can write
 * it.
 */
int socket_make_folder(void);
/* What a client of this user connects to. */
void socket_to_connect(char ret_path[SOCKET_PATH_MAX]);
/* The command that shows the log of the service that has this socket; NULL: it is no service's. */
const char *socket_journal(const char *socket);
