/* Reads the kernel's clocks. Stateless, any thread. */
#pragma once

#include <stdint.h>
#include <time.h>

/*
 * Return 0 if the clock no longer exists, such as the CPU-time clock of a thread or process that
 * has ended.
 */
uint64_t clock_ns(clockid_t clock);
double clock_s(clockid_t clock);

/* CLOCK_MONOTONIC in milliseconds, for deadlines. */
int64_t clock_ms(void);
/* Milliseconds until the deadline, clamped to 0 .. INT_MAX. */
int clock_left_ms(int64_t deadline_ms);
/* Returns the CLOCK_MONOTONIC time in wait_ms from now, for pthread_cond_timedwait(). */
struct timespec clock_after_ms(unsigned wait_ms);
