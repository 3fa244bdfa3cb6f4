/*
 * The daemon's log: one line per event on standard error, with systemd's level prefixes when the
 * journal reads it and a time otherwise. Process-wide; any thread may log, but workers do not (they
 * leave records that the control thread logs). A line that standard error cannot take at once is
 * dropped and counted rather than waited for: a parent that does not read our output must not stop
 * a feed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

void log_init(enum log_level level);
/* Any thread, also while others log. */
void log_set_level(enum log_level level);
/*
 * Lines go to a supervisor, which says when and whose they are: with level prefixes. After
 * log_init().
 */
void log_to_supervisor(void);
/*
 * A line of somebody else's, of a level that log_to_supervisor() has put before it; `who` goes
 * before it.
 */
void log_relay(const char *who, const char *line);
/*
 * May a line be logged that clients can provoke at will? A few at once, then a few per second. The
 * account, 0 in the beginning, is the caller's and one thread's: until when lines so far use it up.
 */
bool log_allowed(uint64_t *account_ns);
__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
