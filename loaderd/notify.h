/*
 * Talking to systemd: readiness, watchdog, sockets passed by activation. All do nothing,
 * successfully, where it is not there.
 */
#pragma once

#include <stdint.h>

/* sd_notify(3) */
void notify_say(const char *state);
/* Interval within which the watchdog must be fed, 0: none. */
uint64_t notify_watchdog_ns(void);
/*
 * Listening sockets passed to this process, made close-on-exec and not to wait: their number, the
 * one whose unit names it "admin" (FileDescriptorName=) apart, -1 if there is none. Negative errno.
 */
int notify_listen_fds(int *ret_fds, int most, int *ret_admin_fd);
