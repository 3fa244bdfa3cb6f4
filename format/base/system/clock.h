/* What time it is, by any of the kernel's clocks. Functions without state, any thread. */
#pragma once

#include <stdint.h>
#include <time.h>

/* 0 of a clock that is not there any more: that of a thread or process that has ended. */
uint64_t clock_ns(clockid_t clock);
double clock_s(clockid_t clock);

/* CLOCK_MONOTONIC in milliseconds, in which deadlines are counted. */
int64_t clock_ms(void);
/* Milliseconds left until then, at most INT_MAX, at least 0. */
int clock_left_ms(int64_t deadline_ms);
/* So long from now by CLOCK_MONOTONIC, as pthread_cond_timedwait() takes it. */
struct timespec clock_after_ms(unsigned wait_ms);
