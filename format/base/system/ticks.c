#include "format/base/system/ticks.h"

#include "format/base/system/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

enum {
	COMPARE_NS = 2 * 1000 * 1000,
	COMPARE_TRIES = 8, /* the try with the smallest delay counts */
};

static bool counter_in_use;
static double tick_ns = 1;

#ifdef __x86_64__

static uint64_t ticks_counter(void)
{
	return __rdtsc();
}

/*
 * True if the kernel uses the counter as clock source, or if sysfs is not visible: CPUID then
 * decides alone.
 */
static bool is_kernel_clocksource(void)
{
	char name[32] = "";
	FILE *file =
		fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (!file)
		return true;
	bool right = fgets(name, sizeof(name), file) && strcmp(name, "tsc\n") == 0;
	fclose(file);
	return right;
}

/*
 * True if the counter runs at a constant rate in all power states: CPUID 80000007h, EDX bit 8
 * (AMD64 manual volume 3, E.4.4; Intel SDM 18.17.1).
 */
static bool ticks_counter_is_good(void)
{
	unsigned a, b, c, d = 0;
	return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0 &&
	       is_kernel_clocksource();
}

#else

static uint64_t ticks_counter(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static bool ticks_counter_is_good(void)
{
	return false;
}

#endif

/* Reads both clocks as close together as possible. */
static void read_both(uint64_t *ret_ticks, uint64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < COMPARE_TRIES; i++) {
		uint64_t before = ticks_counter(), ns = clock_ns(CLOCK_MONOTONIC),
			 after = ticks_counter();
		if (after - before >= best)
			continue;
		best = after - before;
		*ret_ticks = before + best / 2;
		*ret_ns = ns;
	}
}

static void ticks_choose(void)
{
	const struct timespec pause = {.tv_nsec = COMPARE_NS};
	uint64_t ticks[2] = {0}, ns[2] = {0};
	if (!ticks_counter_is_good())
		return;
	read_both(&ticks[0], &ns[0]);
	nanosleep(&pause, NULL);
	read_both(&ticks[1], &ns[1]);
	if (ticks[1] <= ticks[0] || ns[1] <= ns[0])
		return;
	tick_ns = (double)(ns[1] - ns[0]) / (double)(ticks[1] - ticks[0]);
	counter_in_use = true;
}

void ticks_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, ticks_choose);
}

uint64_t ticks_now(void)
{
	return counter_in_use ? ticks_counter() : clock_ns(CLOCK_MONOTONIC);
}

uint64_t ticks_since(uint64_t start)
{
	uint64_t now = ticks_now();
	return now > start ? now - start : 0;
}

uint64_t ticks_to_ns(uint64_t ticks)
{
	return (uint64_t)((double)ticks * tick_ns);
}
