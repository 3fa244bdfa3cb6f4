#include "loaderd/log.h"

#include "format/base/system/clock.h"
#include "format/base/text/printable.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	LINE_MAX_BYTES = 2048,
	ALLOWED_PER_SECOND = 5,
	ALLOWED_AT_ONCE = 20,
};

static _Atomic enum log_level log_limit = LOG_LEVEL_INFO;
static bool to_journal;
static atomic_ulong dropped;

void log_init(enum log_level level)
{
	struct stat status;
	unsigned long long device, inode;
	const char *stream = getenv("JOURNAL_STREAM");
	log_limit = level;
	to_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		     fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device &&
		     status.st_ino == inode;
}

void log_set_level(enum log_level level)
{
	log_limit = level;
}

void log_to_supervisor(void)
{
	to_journal = true;
}

bool log_allowed(uint64_t *account_ns)
{
	/*
	 * Each line costs 1/ALLOWED_PER_SECOND of a second; the account may be overdrawn by
	 * ALLOWED_AT_ONCE lines.
	 */
	const uint64_t cost_ns = UINT64_C(1000000000) / ALLOWED_PER_SECOND;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (*account_ns < now_ns)
		*account_ns = now_ns;
	if (*account_ns - now_ns >= ALLOWED_AT_ONCE * cost_ns)
		return false;
	*account_ns += cost_ns;
	return true;
}

void log_relay(const char *who, const char *line)
{
	/* lines without a prefix come from a library or a sanitizer */
	enum log_level level = LOG_LEVEL_WARNING;
	if (line[0] == '<' && line[1] >= '0' + LOG_LEVEL_ERROR &&
	    line[1] <= '0' + LOG_LEVEL_DEBUG && line[2] == '>') {
		level = (enum log_level)(line[1] - '0');
		line += 3;
	}
	log_line(level, "%s%s", who, line);
}

static int put_prefix(char *line, size_t size, enum log_level level)
{
	if (to_journal)
		return snprintf(line, size, "<%d>", (int)level);
	struct timespec t;
	struct tm tm;
	char when[32];
	clock_gettime(CLOCK_REALTIME, &t);
	localtime_r(&t.tv_sec, &tm);
	strftime(when, sizeof(when), "%F %T", &tm);
	const char *name = level == LOG_LEVEL_ERROR     ? "error: "
			   : level == LOG_LEVEL_WARNING ? "warning: "
			   : level == LOG_LEVEL_DEBUG   ? "debug: "
							: "";
	return snprintf(line, size, "%s.%03ld loaderd: %s", when, t.tv_nsec / 1000000, name);
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES], message[LINE_MAX_BYTES];
	if (level > log_limit)
		return;
	int at = put_prefix(line, sizeof(line), level);
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	size_t length = n < 0 ? 0 : (size_t)n;
	if (length > sizeof(message) - 1)
		length = sizeof(message) - 1;
	/* Quote text from clients: it must not forge log lines or send terminal escapes. */
	size_t size = (size_t)at;
	size += printable_write(line + size, sizeof(line) - size - 1, message, length);
	line[size++] = '\n';
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0 ||
	    write(STDERR_FILENO, line, size) < 0)
		atomic_fetch_add(&dropped, 1);
}
