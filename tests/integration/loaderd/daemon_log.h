/*
 * Log of a daemon built with a sanitizer. An error in a worker ends only that worker, and the next
 * one serves its clients, which notice nothing. So the daemon's standard error is captured here and
 * checked after the daemon has ended. Daemons of other builds inherit the test's standard error.
 */
#pragma once

/*
 * Creates a log for a daemon about to start; -1 if none is needed, or the test reads the daemon's
 * standard error itself.
 */
int daemon_log_new(void);
/* Call in the daemon's process before exec. */
void daemon_log_use(int log);
/*
 * Prints the log of a daemon that has ended, and fails the test if a sanitizer reported an error.
 */
void daemon_log_end(int log);
