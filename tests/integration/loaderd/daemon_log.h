/*
 * Log of a daemon built with a sanitizer. An error in a worker ends only that worker, and the next
 * one serves its clients, so that they notice nothing. Therefore this module captures the daemon's
 * standard error and checks it after the daemon has exited. Daemons of other builds inherit the
 * test's standard error.
 */
#pragma once

/*
 * Creates a log for a daemon about to start. Returns -1 if none is needed, or if the test itself
 * reads the daemon's standard error.
 */
int daemon_log_new(void);
/* Call in the daemon's process before exec. */
void daemon_log_use(int log);
/*
 * Prints the log of a daemon that has exited, and fails the test if a sanitizer reported an error.
 */
void daemon_log_end(int log);
