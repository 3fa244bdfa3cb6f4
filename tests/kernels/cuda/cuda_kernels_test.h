/*
 * Tests of CUDA kernels: arrays in GPU memory between guard zones, with their values as doubles on
 * the host. Uses only gpu.h, so the same tests run on the emulated GPU and on a real one; only the
 * emulation can permute the order of threads. Tests run in every element, for several numbers of
 * multiprocessors and orders of threads; timed cases are checked too, at a fraction of their size.
 *
 *	static void add(const struct kernel_case *k, enum cuda_element element)
 *	{
 *		struct array *a = new_coarse(k->c, element), *b = new_coarse(k->c, element),
 *			     *y = new_blank(k->c, element);
 *		struct elementwise_add sum = {array_reads(a), array_reads(b), array_writes(y), ...};
 *
 *		if (queued(elementwise_add(&kernels_device, &sum)))
 *			return;
 *		for (uint64_t i = 0; i < k->c; i++)
 *			want(y)[i] = a->v[i] + b->v[i];
 *		expect(y, 0, "y");
 *	}
 */
#pragma once

#include "tests/kernels/kernel_test.h"

#include "trainer/device/cuda/kernels/row_reduce.h"

extern const struct kernel_kind cuda_kernels;

#define ELEMENTS 3 /* number of values of enum cuda_element */

/* The stream is NULL until the tests start. */
extern struct kernel_device kernels_device;

/*
 * True while kernels are timed. Arrays then have no values and no guards. They get their memory
 * when they first become an operand: a part of a slice of noise-filled memory. Each repetition uses
 * another slice.
 */
extern bool kernels_timing;

/*
 * Fails the test unless r is 0. Returns true while kernels are timed, in which case the test must
 * return; it computes the expected values after this call.
 */
bool queued(int r);

/*
 * Selects how kernels are run: the number of multiprocessors that grids are sized for, and the
 * order of threads.
 */
void kernels_vary(unsigned variation);
#define KERNELS_VARIATIONS 3

/* Returns zeros on the host, or NULL while kernels are timed. */
void *kernels_zeros(uint64_t bytes);

/*
 * element_round() rounds to the nearest value of the element type, ties to even. The others convert
 * between a value and its bits.
 */
double element_round(double value, enum cuda_element element);
uint32_t element_encode(double value, enum cuda_element element);
double element_decode(uint32_t bits, enum cuda_element element);
/* Largest relative error of one rounding, plus a margin for the fp32 arithmetic before it. */
double element_tolerance(enum cuda_element element);

struct array {
	char *memory; /* guard, data, guard */
	void *data;   /* [count] of element, in GPU memory */
	double *v;    /* [count] on the host: the values of data */
	double *want; /* [count] of want(): the expected values */
	uint64_t count;
	uint32_t size; /* bytes of an element */
	enum cuda_element element;
	struct array *next;
};

/*
 * Arrays of the running test, freed when it ends. Each is filled with different numbers.
 *
 * new_coarse: multiples of 1/8 in -2..2, which every element type represents exactly, so that fp32
 * sums and products of a few of them are exact.
 */
struct array *new_coarse(uint64_t count, enum cuda_element element);
/* Uniform in low..high, rounded to the element. */
struct array *new_uniform(uint64_t count, enum cuda_element element, double low, double high);
/* All NaN; for outputs. */
struct array *new_blank(uint64_t count, enum cuda_element element);
/* Raw bytes, or NaNs if `bytes` is NULL. v is NULL. */
struct array *new_bytes(const void *bytes, uint64_t count);
/* Zeros on the host, freed with the arrays; NULL while kernels are timed. */
double *new_doubles(uint64_t count);
void kernels_release(void); /* frees all arrays now */

void array_write(struct array *array); /* copies v to the GPU */
/*
 * Copy the data from the GPU; array_read() converts it to v. Fail the test if a guard was
 * overwritten.
 */
void array_read(struct array *array);
void array_read_bytes(const struct array *array, void *ret_bytes);

/*
 * Return the array as an operand that the kernel reads once (array_reads), writes once
 * (array_writes), or both. array_uses() is for scratch memory and data served from caches, which do
 * not count as moved bytes. Bandwidth is computed from the moved bytes.
 */
void *array_reads(struct array *array);
void *array_writes(struct array *array);
void *array_updates(struct array *array);
void *array_uses(struct array *array);

/* Returns the expected contents of the array after the kernel: zeros, which the test overwrites. */
double *want(struct array *array);
/*
 * Compares the GPU's data with want(): |got - wanted| <= tolerance (1 + |wanted|). A NaN must match
 * a NaN, an infinity the same infinity. Does not change v. The failure message contains `name`.
 */
void expect(struct array *array, double tolerance, const char *name);
void expect_bytes(struct array *array, const void *bytes, const char *name);
