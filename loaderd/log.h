/*
 * The daemon's log: one line per event on stderr, prefixed with systemd's level if stderr is the
 * journal, otherwise with the time. Process-wide; any thread may log, but decode threads do not:
 * they leave records that the control thread logs. A line that stderr cannot take at once is
 * dropped and counted, never waited for: a parent that does not read our output must not stall a
 * feed.
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
/* Safe while other threads log. */
void log_set_level(enum log_level level);
/*
 * Prefixes lines with levels, for the supervisor to relay with time and user. Call it after
 * log_init().
 */
void log_to_supervisor(void);
/*
 * Logs a line that another process wrote, at the level of its prefix (see log_to_supervisor());
 * `who` is put in front.
 */
void log_relay(const char *who, const char *line);
/*
 * Rate-limits lines that clients can provoke at will: a burst, then a few per second. *account_ns
 * is 0 at first; it is owned by the caller and used by one thread.
 */
bool log_allowed(uint64_t *account_ns);
__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
