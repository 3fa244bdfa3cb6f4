/*
 * Clock for measuring pipeline stages, read several times per sample. Uses the time stamp counter
 * if it runs at a constant rate on all CPUs and the kernel itself uses it as clock source,
 * otherwise CLOCK_MONOTONIC. A tick is about a processor cycle, or a nanosecond.
 *
 * Call ticks_init() once before starting the threads that measure; without it a tick is a
 * nanosecond. Any thread. Clocks of two threads may differ by a few ticks: compare them with
 * ticks_since(), which is never negative.
 */
#pragma once

#include <stdint.h>

/* Selects the clock and calibrates it against CLOCK_MONOTONIC, which takes 2 ms. Idempotent. */
void ticks_init(void);
uint64_t ticks_now(void);
/* Returns the ticks from start to now; 0 if start is in the future. */
uint64_t ticks_since(uint64_t start);
/* Converts ticks to nanoseconds, accurate to 0.01 %. */
uint64_t ticks_to_ns(uint64_t ticks);
