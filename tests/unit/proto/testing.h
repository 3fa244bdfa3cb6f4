/* Helpers for tests of the protocol. */
#pragma once

#include "tests/test.h"

#include <dirent.h>
#include <time.h>

/*
 * Upper bound for an operation that should finish immediately, even on an overloaded machine.
 * feed_open() has a longer timeout.
 */
enum { SOON_MS = 20000 };

static inline unsigned count_open_fds(void)
{
	unsigned count = 0;
	DIR *directory = opendir("/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static inline int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
