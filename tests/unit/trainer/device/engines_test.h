/*
 * Shared code for tests of convolutions and matrix products: engines on a device or on the emulated
 * one, and operands rounded to the engine's element type, so that the reference computes from the
 * same values. A fixture has every operand that a pattern may use. A failure ends the test.
 */
#pragma once

#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "trainer/device/cuda/engines.h"

/* Largest relative error of the norm that counts as rounding, indexed by element type. */
extern const double tolerances[];

extern struct gpu_properties gpu;
extern struct engines engines;
extern bool emulated;
/* Number of problems for which compute() found a plan, and (only on a device) found none. */
extern unsigned planned, unplanned;

/*
 * An operand's values: as doubles for the reference (v), in its element type on the host (data) and
 * on the device (place).
 */
struct operand {
	size_t count;
	enum cuda_element element;
	double *v;
	void *data, *place;
};

/* Uniform in low..high. */
struct operand operand_new(size_t count, enum cuda_element element, uint64_t seed, double low,
			   double high);
void operand_free(struct operand *operand);
/* Rounds v to the element type and writes it to data. */
void operand_store(struct operand *operand);
/* Copy between data and place. */
void copy_in(const struct operand *operand, gpu_stream stream);
void copy_out(const struct operand *operand, gpu_stream stream);

/* Operands with the names of the pointers in struct conv_arguments. */
#define OPERANDS 33

union operands {
	struct {
		struct operand x, w, y, scale, bias, scale2, bias2, residual, activated,
			channel_bias, sum, squares, raw, mean, deviation, gamma, beta, dgamma,
			dbeta, a, b, d, shortcut, raw2, mean2, deviation2, gamma2, beta2, dgamma2,
			dbeta2, a2, b2, d2;
	};
	struct operand list[OPERANDS];
};

_Static_assert(offsetof(union operands, d2) == sizeof(struct operand) * (OPERANDS - 1),
	       "the list has them all");

struct fixture {
	struct conv_problem problem;
	union operands o;
	gpu_stream stream;
};

void open_fixture(struct fixture *f, const struct conv_problem *problem);
void close_fixture(struct fixture *f);
struct conv_arguments arguments_of(const struct fixture *f, void *workspace);
/*
 * Runs the problem. The results are in .data; .v keeps the values from before. Returns false if
 * there is no plan, on a device only.
 */
bool compute(struct fixture *f);
/* Fails the test unless the operand's data equals the reference within rounding. */
void expect(const struct fixture *f, const char *what, const struct operand *operand,
	    const double *reference);

/* shape: n h w c k r s stride pad, then pad_extra (default 0) and groups (default 1) */
#define CONV_SHAPE 11
struct conv_problem problem_of(const uint32_t shape[CONV_SHAPE], enum conv_direction direction,
			       enum cuda_element element);

/* One multiplication in a convolution: indices into x, w and y. */
struct product {
	size_t x, w, y;
};
typedef void (*product_function)(void *context, const struct product *product);
void for_each_product(const struct conv_problem *p, product_function function, void *context);

struct sums {
	const double *x, *w, *y;
	double *to;
};
/* A product_function that does y += x w; `context` is a struct sums. */
void add_to_y(void *context, const struct product *product);

double *zeroes(size_t count);

/*
 * Opens the engines, runs the tests and closes the engines. Returns main()'s exit status, 77 if
 * there is no GPU.
 */
int run_with_engines(void);
