/*
 * Harness for tests of kernels, of two kinds:
 * - CPU kernels; the variants are instruction sets (tests/kernels/cpu.h)
 * - CUDA kernels; the variants are element types (tests/kernels/cuda/cuda_kernels_test.h)
 *
 * A test is a function that creates operands, runs its kernel once, and states the expected
 * contents of each output, with functions of its kind of harness. A test program has a table of
 * tests, which run for every variant, shape and case, and a table of cases to time:
 *
 *	PROGRAM                         runs all tests
 *	PROGRAM --bench [VARIANT [TEXT]]  times those whose kernel or name contains TEXT
 *
 * The same function checks and times a kernel. Uses cmocka.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct kernel_case;

/*
 * `variant` is an enum cpu_isa or an enum cuda_element; test functions declare it with that type.
 */
typedef void (*kernel_check)(const struct kernel_case *k, unsigned variant);

/* A kernel at a shape. */
struct kernel_case {
	const char *kernel, *name;
	kernel_check check;
	uint32_t h, w, c;
	const void *settings; /* parameters of `check` */
	uint32_t n;           /* number of samples; the harness sets it for timed cases */
	uint32_t more[3];
	const char *unit; /* CPU: unit of n h w c, by which times are divided: "pixel" */
	/* not a kernel of ours: `measure` times other code for the same work, in ns per unit */
	const char *implementation;
	double (*measure)(const struct kernel_case *k);
};

struct kernel_shape {
	uint32_t n, h, w, c, more[3];
};

/* A row of a test program: `check` at every shape with all `settings`, or `once`. */
struct kernel_test {
	const char *name;
	kernel_check check;
	const struct kernel_shape *shapes;
	unsigned shape_count;
	const void *settings; /* [settings_count], each of settings_size bytes, or NULL */
	size_t settings_size;
	unsigned settings_count;
	void (*once)(void);
	uint32_t widths; /* instead of shapes: 1 x 1 x w x 1 for every w up to this */
	uint32_t times;  /* number of repetitions of the whole row; 0 means 1 */
};
#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define CHECK(check, shapes)                                                                       \
	{                                                                                          \
#check, check, shapes, COUNT_OF(shapes), .settings_count = 1                       \
	}
#define CHECK_TIMES(check, shapes, repeated)                                                       \
	{                                                                                          \
#check, check, shapes, COUNT_OF(shapes), .settings_count = 1, .times = (repeated)  \
	}
#define CHECK_EACH(check, shapes, hows)                                                            \
	{                                                                                          \
#check, check, shapes, COUNT_OF(shapes), hows, sizeof(*(hows)), COUNT_OF(hows)     \
	}
#define CHECK_WIDTHS(check, last, repeated)                                                        \
	{                                                                                          \
#check, check, .settings_count = 1, .widths = (last), .times = (repeated)          \
	}
#define CHECK_WIDTHS_EACH(check, last, repeated, hows)                                             \
	{                                                                                          \
#check, check, NULL, 0, hows, sizeof(*(hows)), COUNT_OF(hows), .widths = (last),   \
									       .times = (repeated) \
	}
#define ONCE(function)                                                                             \
	{                                                                                          \
		.name = #function, .once = function                                                \
	}

/* The functions of a kind of harness. */
struct kernel_kind {
	const char *const *variants; /* [variant_count] names */
	unsigned variant_count;
	unsigned rounds; /* number of rounds; every test runs in each, after begin_round() */
	void (*begin_round)(unsigned round);
	/* called before and after each test; end() is not called after a failed one */
	void (*begin)(const struct kernel_case *k, unsigned variant);
	void (*end)(void);
	/*
	 * reduces a timed case to a small one, which is then checked; NULL if timed cases are not
	 * checked
	 */
	void (*shrink)(struct kernel_case *k);
	/*
	 * Prints times. `only` names one variant or implementation; NULL prints all. Returns the
	 * exit status.
	 */
	int (*bench)(const struct kernel_case *cases, unsigned count, const char *only,
		     const char *text);
	CMFixtureFunction setup, teardown;
};

/* main() of a test program. */
#define KERNELS_MAIN(kind, tests, timed)                                                           \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return kernels_main(argc, argv, kind, tests, COUNT_OF(tests), timed,               \
				    COUNT_OF(timed));                                              \
	}
int kernels_main(int argc, char **argv, const struct kernel_kind *kind,
		 const struct kernel_test *tests, unsigned test_count,
		 const struct kernel_case *timed, unsigned timed_count);

/* True if TEXT of --bench asks for the case. */
bool kernels_selected(const struct kernel_case *k, const char *text);
/* Fails the test with a message that names the running case. */
void kernels_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Pseudo-random number from a counter (splitmix64), uniform in 0..1. */
double kernels_uniform(uint64_t seed, uint64_t counter);
