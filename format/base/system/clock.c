#include "format/base/system/clock.h"

#include <limits.h>

uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	return clock_gettime(clock, &now) < 0
		       ? 0
		       : (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double clock_s(clockid_t clock)
{
	struct timespec now = {0};
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int64_t clock_ms(void)
{
	return (int64_t)(clock_ns(CLOCK_MONOTONIC) / 1000000);
}

int clock_left_ms(int64_t deadline_ms)
{
	int64_t left = deadline_ms - clock_ms();
	return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

struct timespec clock_after_ms(unsigned wait_ms)
{
	uint64_t until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)wait_ms * 1000000;
	return (struct timespec){
		.tv_sec = (time_t)(until / 1000000000),
		.tv_nsec = (long)(until % 1000000000),
	};
}
