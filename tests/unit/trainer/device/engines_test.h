/*
 * For the tests of convolutions and matrix products: engines on a device or on the emulated one,
 * and operands of which the reference sees what the engine does, rounded to its element. A fixture
 * has every operand that a pattern might name. What fails ends the test.
 */
#pragma once

#include "tests/unit/trainer/device/test_device_reference.h"
#include "trainer/device/cuda/engines.h"

#include <cmocka.h>
#include <stddef.h>

/* Largest relative error of the norm that is taken for rounding, by element. */
extern const double tolerances[];

extern struct gpu_properties gpu;
extern struct engines engines;
extern bool emulated;
/* Problems that compute() was given: with a plan, and, on a device, without. */
extern unsigned planned, unplanned;

/* An operand: what the reference sees, the same in its element, and that on the device. */
struct operand {
	size_t count;
	enum cuda_element element;
	double *v;
	void *data, *place;
};

/* Uniform in low .. high. */
struct operand operand_new(size_t count, enum cuda_element element, uint64_t seed, double low,
			   double high);
void operand_free(struct operand *operand);
/* Rounds v, and puts it into data. */
void operand_store(struct operand *operand);
/* Between data and place. */
void copy_in(const struct operand *operand, gpu_stream stream);
void copy_out(const struct operand *operand, gpu_stream stream);

/* Every pointer that struct conv_arguments has, named as there. */
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
 * Runs the problem. The results lie in .data; .v keeps what was there before. False: there is no
 * plan, on a device.
 */
bool compute(struct fixture *f);
/* Fails unless the operand's data is the reference but for rounding. */
void expect(const struct fixture *f, const char *what, const struct operand *operand,
	    const double *reference);

/* shape: n h w c k r s stride pad, and where they are not 0 and 1, pad_extra groups */
#define CONV_SHAPE 11
struct conv_problem problem_of(const uint32_t shape[CONV_SHAPE], enum conv_direction direction,
			       enum cuda_element element);

/* One product of a convolution: which x, which w, which y. */
struct product {
	size_t x, w, y;
};
typedef void (*product_function)(void *context, const struct product *product);
void for_each_product(const struct conv_problem *p, product_function function, void *context);

struct sums {
	const double *x, *w, *y;
	double *to;
};
/* A product_function: y += x w; context is a struct sums. */
void add_to_y(void *context, const struct product *product);

double *zeroes(size_t count);

/*
 * Opens the engines, calls `run`, which runs the tests, and closes them. What main() returns: 77
 * where there is no GPU.
 */
int run_with_engines(int (*run)(void));
