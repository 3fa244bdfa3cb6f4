/*
 * Shared code for tests of kernels/: arrays in GPU memory between guard zones, with their values as
 * doubles on the host. Uses only gpu.h, so the same tests run on the emulated GPU and on a real
 * one; only the emulation can permute the order of threads.
 *
 * The same functions also time the kernels: with --bench a test program queues its kernels at
 * ResNet-50's shapes (kernels_bench()).
 */
#pragma once

#include "trainer/device/cuda/kernels/row_reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 3 /* number of values of enum cuda_element */

/* One per program, set by kernels_test_open() or kernels_bench(); its stream is NULL before. */
extern struct kernel_device kernels_device;

/* cmocka group functions. kernels_test_open() skips the tests if there is no GPU. */
int kernels_test_open(void **state);
int kernels_test_close(void **state);
/*
 * Selects how kernels are run: the number of multiprocessors that grids are sized for, and the
 * order of threads.
 */
void kernels_vary(unsigned variation);
#define KERNELS_VARIATIONS 3

/* Returns zeros on the host, or NULL while kernels are timed. */
void *kernels_zeros(uint64_t bytes);
/* Pseudo-random number from a counter (splitmix64), uniform in 0..1. */
double kernels_uniform(uint64_t seed, uint64_t counter);

/* Round to the nearest value of the element, ties to even; encode as its bits; decode them. */
double element_round(double value, enum cuda_element element);
uint32_t element_encode(double value, enum cuda_element element);
double element_decode(uint32_t bits, enum cuda_element element);
/* Largest relative error of one rounding, plus a margin for the fp32 arithmetic before it. */
double element_tolerance(enum cuda_element element);

struct array {
	char *memory; /* guard, data, guard */
	void *data;   /* [count] of element, in GPU memory */
	double *v;    /* [count] on the host: the values of data */
	double *want; /* [count], of want() */
	uint64_t count;
	uint32_t size; /* bytes of an element */
	enum cuda_element element;
	struct array *next; /* of the case's */
};

/*
 * Arrays of the running case, freed when it ends; seeds are numbered. The contents are those of the
 * functions below.
 */
struct array *new_coarse(uint64_t count, enum cuda_element element);
struct array *new_uniform(uint64_t count, enum cuda_element element, double low, double high);
struct array *new_blank(uint64_t count, enum cuda_element element);
struct array *new_bytes(const void *bytes, uint64_t count);
/* Zeros of the running case, on the host; NULL while kernels are timed. */
double *new_doubles(uint64_t count);

/* What the array is to hold after the kernel: zeros that the test fills in. */
double *want(struct array *array);
/*
 * Compares the array with want(), as array_expect() does, and leaves array->v as it is. The message
 * names the case, the shape, and `name`.
 */
void expect(struct array *array, double tolerance, const char *name);
void expect_bytes(struct array *array, const void *bytes, const char *name);

/*
 * Fails the test unless r is 0. Returns true while kernels are timed: then the test is over.
 *
 *	if (queued(norm_statistics(&kernels_device, &a)))
 *		return;
 */
bool queued(int r);

/*
 * Multiples of 1/8 in -2..2, exact in every element, so that fp32 sums and products of a few of
 * them are exact.
 */
struct array array_coarse(uint64_t count, enum cuda_element element, uint64_t seed);
/* Uniform in low..high, rounded to the element. */
struct array array_uniform(uint64_t count, enum cuda_element element, uint64_t seed, double low,
			   double high);
/* All NaN, for outputs. */
struct array array_blank(uint64_t count, enum cuda_element element);
/* Raw bytes; v is NULL. */
struct array array_bytes(const void *bytes, uint64_t count);
void array_write(struct array *array); /* copies v to the GPU */
void array_read(struct array *array);  /* copies the GPU's data to v; fails the test if a guard was
					  overwritten */
void array_read_bytes(const struct array *array, void *ret_bytes);
void array_free(struct array *array);

/*
 * Return the array as a kernel operand that the kernel reads once, writes once, or both;
 * array_uses() is for scratch memory and for data served from caches, which are not counted.
 * Bandwidth is computed from these counts.
 */
void *array_reads(struct array *array);
void *array_writes(struct array *array);
void *array_updates(struct array *array);
void *array_uses(struct array *array);

/*
 * Reads `array` and compares it with expected [count]: |got - expected| <= tolerance (1 +
 * |expected|); a NaN must match a NaN, an infinity the same infinity. `what` is a printf format
 * that names the case.
 */
void array_expect(struct array *array, const double *expected, double tolerance, const char *what,
		  ...) __attribute__((format(printf, 4, 5)));

/* ---- timing ---- */

/* A kernel at a shape. */
struct kernel_case {
	const char *kernel, *name;
	/*
	 * Makes operands and queues the kernel once. Returns then if kernels_timing is set;
	 * otherwise compares the kernel's output, and may check other kernels too.
	 */
	void (*check)(const struct kernel_case *k, enum cuda_element element);
	uint32_t h, w, c;
	const void *how;  /* extra parameters for `check` */
	uint32_t n;       /* number of samples; of timed cases set before `check` is called */
	uint32_t more[3]; /* more of the shape, if `check` has use for it */
};

/*
 * True while kernels are timed: arrays have no values and no guards. They lie in a slice of
 * noise-filled memory, a different slice in each repetition, and get their memory when they first
 * become an operand.
 */
extern bool kernels_timing;

struct kernel_shape {
	uint32_t n, h, w, c, more[3];
};

/*
 * A row of a test program: `check` at every shape, with every `how`, in every element and
 * variation; or `once`.
 */
struct kernel_test {
	const char *name;
	void (*check)(const struct kernel_case *k, enum cuda_element element);
	const struct kernel_shape *shapes;
	unsigned shape_count;
	const void *how; /* [how_count], each of how_size bytes, or NULL */
	size_t how_size;
	unsigned how_count;
	void (*once)(void);
};
#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define CHECK(check, shapes)                                                                       \
	{                                                                                          \
#check, check, shapes, COUNT_OF(shapes), NULL, 0, 1, NULL                          \
	}
#define CHECK_EACH(check, shapes, hows)                                                            \
	{                                                                                          \
#check, check, shapes, COUNT_OF(shapes), hows, sizeof(*(hows)), COUNT_OF(hows),    \
			NULL                                                                       \
	}
#define ONCE(function)                                                                             \
	{                                                                                          \
#function, NULL, NULL, 0, NULL, 0, 0, function                                     \
	}

/*
 * main() of a test program: runs every row, and the timed cases in every element at a fraction of
 * their size; with --bench [ELEMENT [TEXT]] times them, as kernels_bench() does.
 */
#define KERNELS_MAIN(tests, timed)                                                                 \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return kernels_main(argc, argv, tests, COUNT_OF(tests), timed, COUNT_OF(timed));   \
	}
int kernels_main(int argc, char **argv, const struct kernel_test *tests, unsigned test_count,
		 const struct kernel_case *timed, unsigned timed_count);

/* Frees the arrays of the running case. */
void kernels_release(void);
/* Checks the timed cases in every element, at a fraction of their size. */
void kernels_check(const struct kernel_case *cases, unsigned count);
/*
 * Implements a program's --bench [ELEMENT [TEXT]]: prints the cost of the cases whose kernel or
 * name contains TEXT, with activations of ELEMENT (default f16). Returns the exit status, 77 if
 * there is no GPU.
 */
int kernels_bench(int argc, char **argv, const struct kernel_case *cases, unsigned count);
