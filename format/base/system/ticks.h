/*
 * Time for measuring stages, read several times per sample: the processor's time stamp counter
 * where it runs at one speed on all CPUs and the kernel itself keeps time by it, CLOCK_MONOTONIC
 * otherwise. A tick is about a processor cycle, or a nanosecond.
 *
 * ticks_init() once, before the threads that measure; without it a tick is a nanosecond. Any
 * thread. Ticks of two threads may differ by a few: compare with ticks_since(), which never is
 * negative.
 */
#pragma once

#include <stdint.h>

/*
 * Chooses the source and compares it with CLOCK_MONOTONIC, which takes 2 ms. Further calls do
 * nothing.
 */
void ticks_init(void);
uint64_t ticks_now(void);
/* From start to now; 0 when start lies in the future. */
uint64_t ticks_since(uint64_t start);
/* Nanoseconds that so many ticks last; right to 0.01 %. */
uint64_t ticks_to_ns(uint64_t ticks);
