/*
 * What a daemon of a sanitizer's build says: a fault in one of its workers ends that worker, whose
 * clients are served by the next one and so notice nothing. Its standard error is kept here, and
 * read when it has ended. Other builds' standard error is the test's.
 */
#pragma once

/*
 * A log for a daemon that is about to be started; -1: none is kept, or the test reads the daemon's
 * standard error itself.
 */
int daemon_log_new(void);
/* In the daemon's process, before it becomes the daemon. */
void daemon_log_use(int log);
/*
 * Prints the log of a daemon that has ended, and fails the test if a sanitizer has found something.
 */
void daemon_log_end(int log);
