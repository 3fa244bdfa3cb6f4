/*
 * The administrator's socket: status of all users, and the end of the daemon. Only root and the
 * daemon's own user connect to it (its mode is 0600, and who connects is looked at besides). The
 * supervisor's thread alone uses it. proto/SPEC.md, "Administration".
 */
#pragma once

#include "loaderd/supervisor/worker_manager.h"

/*
 * Serves a connection that has just been accepted until it hangs up. Takes fd over. stop is called
 * when the client asks the daemon to stop.
 */
int admin_open(struct worker_manager *manager, int fd, void (*stop)(void *user), void *user);
