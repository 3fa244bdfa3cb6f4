/*
 * Default path of the control socket, for daemons and clients. loaderd(1), FILES; feed(3),
 * ENVIRONMENT.
 *
 * Root's daemon listens on the system socket. Any other user's daemon listens in $XDG_RUNTIME_DIR,
 * like the socket unit of systemctl --user, or, without that directory, in a per-user directory
 * under /tmp. A client takes the first of these two sockets that exists, else the system socket.
 * Directories that are writable by others are ignored. The only state is the environment; any
 * thread.
 */
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

enum { SOCKET_PATH_MAX = 108 }; /* bytes including the terminator: the size of sun_path */

/*
 * Fills in the address for a path, or for "@name" in the abstract namespace. Returns its size, or 0
 * if the name is empty or too long.
 */
socklen_t socket_address(const char *name, struct sockaddr_un *ret_address);

/* Default socket for a daemon of this user to listen on. */
void socket_to_listen(char ret_path[SOCKET_PATH_MAX]);
/*
 * Creates the directory of socket_to_listen() unless it exists. -EPERM if it belongs to another
 * user or others can write to it.
 */
int socket_make_folder(void);
/*
 * Folder of the user's fetchers: "loaderd" in $XDG_RUNTIME_DIR or, without that directory, the one
 * under /tmp. Creates it unless it exists. -EPERM if it belongs to another user or others can write
 * to it; ret_folder names it in any case.
 */
int socket_make_fetch_folder(char ret_folder[SOCKET_PATH_MAX]);
/* Default socket for a client of this user to connect to. */
void socket_to_connect(char ret_path[SOCKET_PATH_MAX]);
/*
 * Command that shows the log of the systemd service with this socket, or NULL if no service has it.
 */
const char *socket_journal(const char *socket);
