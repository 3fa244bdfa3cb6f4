/*
 * The admin socket: reports the status of all users and shuts the daemon down. Only root and the
 * daemon's own user may use it: its mode is 0600, and the supervisor also checks the peer's uid.
 * Supervisor thread only. proto/SPEC.md, "Administration".
 */
#pragma once

#include "loaderd/supervisor/worker_manager.h"

/*
 * Serves an accepted connection until it hangs up. Takes over fd. Calls stop(user) when the client
 * asks the daemon to shut down. Returns 0 or -errno.
 */
int admin_open(struct worker_manager *manager, int fd, void (*stop)(void *user), void *user);
