/*
 * Tests of CPU kernels: every instruction set against the C reference, byte for byte. A test
 * function runs once per instruction set, each time with the same random numbers; the harness
 * compares the outputs.
 *
 *	static void grayscale(const struct kernel_case *k, enum cpu_isa isa)
 *	{
 *		uint32_t *pixels = cpu_updates(4 * k->w);
 *
 *		CPU_RUN(kernels[isa]->grayscale(pixels, k->w));
 *	}
 *
 * Allocations end at an inaccessible page and have canaries before them. A kernel that reads beyond
 * its input crashes; one that writes outside its output crashes or fails.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "tests/kernels/kernel_test.h"

extern struct kernel_kind cpu_kernels;

/* Returns a random number; the sequence is the same for every instruction set. */
uint32_t cpu_random(void);
uint32_t cpu_below(uint32_t bound);
uint32_t cpu_between(uint32_t low, uint32_t high);
double cpu_uniform(double low, double high);

/*
 * Allocate memory for the running test.
 * - cpu_reads(): input, filled with noise or, in one of four cases, with extreme values only
 * - cpu_writes(): output of up to `room` bytes, of which the first `size` are compared
 * - cpu_updates(): filled as by cpu_reads(), updated in place and compared
 */
void *cpu_reads(size_t size);
void *cpu_writes(size_t size, size_t room);
void *cpu_updates(size_t size);
/* Byte that fills memory of cpu_writes() before the kernel runs. */
#define CPU_CANARY 0xa5
/* Compares a result that is not in memory of cpu_writes() or cpu_updates(). */
void cpu_result(const void *result, size_t size);

/* Calls the kernel once, or repeatedly while it is timed. */
#define CPU_RUN(call)                                                                              \
	while (cpu_again())                                                                        \
	(call)
bool cpu_again(void);
/* Sets the number of units that a call processes, if it is not n h w c. */
void cpu_units(double units);
