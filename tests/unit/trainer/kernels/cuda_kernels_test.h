/*
 * For tests of kernels/: arrays in a GPU's memory between guard zones, with what they hold as
 * doubles on the host. Written over gpu.h alone, so that the same tests run on the emulated GPU and
 * on a real one; only the order of threads is the emulation's to permute.
 *
 * What checks a kernel times it, too: with --bench a program queues its kernels through the same
 * functions, at ResNet-50's shapes (kernels_bench()).
 */
#pragma once

#include "trainer/device/cuda/kernels/columns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 3 /* enum cuda_element */

/* Of the program: opened by kernels_test_open(), NULL stream before. */
extern struct kernel_device kernels_device;

/* cmocka group functions. Skips the tests where there is no GPU. */
int kernels_test_open(void **state);
int kernels_test_close(void **state);
/* Variation of how a kernel is run: multiprocessors to cut grids for, order of threads. */
void kernels_vary(unsigned variation);
#define KERNELS_VARIATIONS 3

/* Zeros on the host; NULL while kernels are timed. */
void *kernels_zeros(uint64_t bytes);
/* A pseudo-random number from a counter (splitmix64), uniform in 0..1. */
double kernels_uniform(uint64_t seed, uint64_t counter);

/* Nearest value of the element, ties to even; as bits of its size, and back. */
double element_round(double value, enum cuda_element element);
uint32_t element_encode(double value, enum cuda_element element);
double element_decode(uint32_t bits, enum cuda_element element);
/* Largest relative error that rounding once makes, with room for fp32 arithmetic before it. */
double element_tolerance(enum cuda_element element);

struct array {
	char *memory; /* guard, data, guard */
	void *data;   /* [count] of element, in the GPU's memory */
	double *v;    /* [count] on the host: what is there */
	uint64_t count;
	uint32_t size; /* bytes of an element */
	enum cuda_element element;
};

/*
 * Multiples of 1/8 in -2..2, exact in every element: sums and products of a few are exact in fp32.
 */
struct array array_coarse(uint64_t count, enum cuda_element element, uint64_t seed);
/* Uniform in low..high, rounded to the element. */
struct array array_uniform(uint64_t count, enum cuda_element element, uint64_t seed, double low,
			   double high);
/* All NaN: what kernels write. */
struct array array_blank(uint64_t count, enum cuda_element element);
/* Bytes of any kind; v is NULL. */
struct array array_bytes(const void *bytes, uint64_t count);
void array_write(struct array *array); /* v to the GPU */
void array_read(struct array *array);  /* the GPU to v; fails the test where a guard was touched */
void array_read_bytes(const struct array *array, void *ret_bytes);
void array_free(struct array *array);

/*
 * The array as an operand: what a kernel has to read, to write, or both, once each; or room that it
 * may use, and what caches serve. The bytes of a rate are made of these.
 */
void *array_reads(struct array *array);
void *array_writes(struct array *array);
void *array_updates(struct array *array);
void *array_uses(struct array *array);

/*
 * Reads `array` and compares it with expected [count]: |got - expected| <= tolerance (1 +
 * |expected|), a NaN with a NaN, an infinity with itself. what..: printf format that names the
 * case.
 */
void array_expect(struct array *array, const double *expected, double tolerance, const char *what,
		  ...) __attribute__((format(printf, 4, 5)));

/* ---- timing ---- */

/* A kernel at a shape where its time counts. */
struct kernel_case {
	const char *kernel, *name;
	/*
	 * Makes operands, queues the kernel once and returns if kernels_timing; else it compares
	 * what the kernel made. May check more than the one kernel then.
	 */
	void (*check)(const struct kernel_case *k, enum cuda_element element);
	uint32_t h, w, c;
	const void *how; /* what `check` wants to know besides */
	uint32_t n;      /* samples: filled in for `check` */
};

/*
 * Kernels are being timed: arrays have no values and no guards, and lie in a slice of memory that
 * is full of noise, another one each time, from when they first are an operand.
 */
extern bool kernels_timing;

/* Checks what is timed, in every element, at a fraction of the size. */
void kernels_check(const struct kernel_case *cases, unsigned count);
/*
 * A program's --bench [ELEMENT [TEXT]]: prints what the cases cost whose kernel or name has TEXT in
 * it, with activations of ELEMENT (f16). Returns the exit status: 77 where there is no GPU.
 */
int kernels_bench(int argc, char **argv, const struct kernel_case *cases, unsigned count);
