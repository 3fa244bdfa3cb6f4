/*
 * Tests of the CPU's kernels: every instruction set against the C reference, byte for byte. A test
 * runs for each set in turn, with the same random numbers; the harness compares what the sets
 * wrote.
 *
 *	static void grayscale(const struct kernel_case *k, enum cpu_isa isa)
 *	{
 *		uint32_t *pixels = cpu_updates(4 * k->w);
 *
 *		CPU_RUN(kernels[isa]->grayscale(pixels, k->w));
 *	}
 *
 * Memory ends at an inaccessible page and has canaries before it, so a kernel that reads beyond its
 * input crashes, and one that writes beyond its output fails.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "tests/kernels/kernel_test.h"

extern struct kernel_kind cpu_kernels;

/* Random, the same for every instruction set. */
uint32_t cpu_random(void);
uint32_t cpu_below(uint32_t bound);
uint32_t cpu_between(uint32_t low, uint32_t high);
double cpu_uniform(double low, double high);

/*
 * Memory of the running test. cpu_reads: noise, or one time in four extreme values only.
 * cpu_writes: `room` bytes that the kernel may write, of which the first `size` are compared.
 * cpu_updates: as cpu_reads(), and compared.
 */
void *cpu_reads(size_t size);
void *cpu_writes(size_t size, size_t room);
void *cpu_updates(size_t size);
/* What memory of cpu_writes() holds before the kernel. */
#define CPU_CANARY 0xa5
/* Compares a result that is not in such memory. */
void cpu_result(const void *result, size_t size);

/* Calls the kernel: once, or, while it is timed, again and again. */
#define CPU_RUN(call)                                                                              \
	while (cpu_again())                                                                        \
	(call)
bool cpu_again(void);
/* Units of the case that a call processes, if they are not n h w c. */
void cpu_units(double units);
