/*
 * systemd integration: readiness, watchdog, socket activation. Without systemd, all functions
 * succeed and do nothing.
 */
#pragma once

#include <stdint.h>

/* Sends a state such as "READY=1"; see sd_notify(3). */
void notify_say(const char *state);
/* Returns the watchdog interval, or 0 if there is no watchdog. */
uint64_t notify_watchdog_ns(void);
/*
 * Takes the sockets passed by systemd, made nonblocking and close-on-exec. Stores them in ret_fds
 * and returns their number. *ret_admin_fd is the one with FileDescriptorName=admin, or -1; it does
 * not count. Returns -E2BIG if there are more than `max`, -EEXIST if several are named admin, or
 * another -errno.
 */
int notify_listen_fds(int *ret_fds, int max, int *ret_admin_fd);
