/* Work of a by_matrix optimizer between its matrix products, against double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/orthogonalize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* padded as in trainer/device/cuda/lowering/matrix_products.h, and unpadded */
static const struct shape {
	uint32_t rows, columns, x_rows, x_columns;
} shapes[] = {{41, 601, 48, 608}, {24, 144, 24, 144}, {7, 5, 8, 8}, {1, 1, 8, 8}, {64, 3, 64, 8}};

enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

struct operands {
	struct array gradient, x, squares, decision;
	struct orthogonalize_matrix a;
};

/* Elements are uniform and below `scale`. */
static struct operands operands_new(const struct shape *shape, double scale, bool made,
				    enum cuda_element element)
{
	struct update_decision decision = {.made = made};
	struct operands o = {
		.gradient = array_uniform((uint64_t)shape->rows * shape->columns, CUDA_F32, 1,
					  -scale, scale),
		.x = array_blank((uint64_t)shape->x_rows * shape->x_columns, element),
		.decision = array_bytes(&decision, sizeof(decision)),
	};
	double squares = 0;

	for (uint64_t i = 0; o.gradient.v && i < o.gradient.count; i++)
		squares += o.gradient.v[i] * o.gradient.v[i];
	o.squares = array_bytes(&squares, sizeof(squares));
	o.a = (struct orthogonalize_matrix){
		.squares = array_uses(&o.squares),
		.decision = array_uses(&o.decision),
		.rows = shape->rows,
		.columns = shape->columns,
		.x_rows = shape->x_rows,
		.x_columns = shape->x_columns,
		.element = element,
	};
	return o;
}

static void operands_free(struct operands *o)
{
	array_free(&o->gradient);
	array_free(&o->x);
	array_free(&o->squares);
	array_free(&o->decision);
}

static void check_begin(struct operands *o, bool made)
{
	const struct orthogonalize_matrix *a = &o->a;
	double squares = 0, *expected;

	o->a.gradient = array_reads(&o->gradient);
	o->a.x = array_writes(&o->x);
	assert_int_equal(orthogonalize_begin(&kernels_device, a), 0);
	if (kernels_timing)
		return;
	expected = calloc(o->x.count, sizeof(*expected));
	for (uint64_t i = 0; i < o->gradient.count; i++)
		squares += o->gradient.v[i] * o->gradient.v[i];
	for (uint64_t i = 0; i < o->x.count; i++) {
		uint64_t row = i / a->x_columns, column = i % a->x_columns;

		if (!made)
			expected[i] = NAN;
		else if (row < a->rows && column < a->columns)
			expected[i] = o->gradient.v[row * a->columns + column] /
				      fmax(sqrt(squares), (double)UPDATE_MATRIX_NORM_MIN);
	}
	/* elements below 1, down to denormal halves */
	array_expect(&o->x, expected, element_tolerance(a->element), "x of %u x %u", a->rows,
		     a->columns);
	free(expected);
}

static void check_end(struct operands *o, bool made)
{
	const struct orthogonalize_matrix *a = &o->a;
	double *expected;

	o->a.x = array_reads(&o->x);
	o->a.gradient = array_writes(&o->gradient);
	if (!kernels_timing) {
		for (uint64_t i = 0; i < o->x.count; i++)
			o->x.v[i] = element_round(kernels_uniform(2, i), a->element);
		array_write(&o->x);
	}
	assert_int_equal(orthogonalize_end(&kernels_device, a), 0);
	if (kernels_timing)
		return;
	expected = malloc(o->gradient.count * sizeof(*expected));
	for (uint64_t i = 0; i < o->gradient.count; i++)
		expected[i] = made ? o->x.v[i / a->columns * a->x_columns + i % a->columns]
				   : o->gradient.v[i];
	array_expect(&o->gradient, expected, 0, "gradient of %u x %u", a->rows, a->columns);
	free(expected);
}

static void test_ends(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS; i++) {
		/* the last has a norm below the minimum */
		for (unsigned how = 0; how < 3; how++) {
			struct operands o =
				operands_new(&shapes[i / ELEMENTS], how == 2 ? 1e-10 : 3, how != 1,
					     (enum cuda_element)(i % ELEMENTS));

			kernels_vary((i + how) % KERNELS_VARIATIONS);
			check_begin(&o, how != 1);
			check_end(&o, how != 1);
			operands_free(&o);
		}
	}
}

static void check_combine(uint32_t side, enum cuda_element element)
{
	uint64_t count = (uint64_t)side * side;
	struct array gram = array_uniform(count, element, 3, -1, 1);
	struct array square = array_uniform(count, CUDA_F32, 4, -1, 1);
	struct array product = array_blank(count, element);
	const struct orthogonalize_combine a = {
		.gram = array_reads(&gram),
		.square = array_reads(&square),
		.product = array_writes(&product),
		.side = side,
		.element = element,
		.polynomial = {3.5f, -4.75f, 2.25f},
	};

	assert_int_equal(orthogonalize_combine(&kernels_device, &a), 0);
	if (!kernels_timing) {
		double *expected = malloc(count * sizeof(*expected));

		for (uint64_t i = 0; i < count; i++)
			expected[i] = (i % (side + 1) == 0 ? 3.5 : 0) - 4.75 * gram.v[i] +
				      2.25 * square.v[i];
		array_expect(&product, expected, element_tolerance(element), "polynomial of %u",
			     side);
		free(expected);
	}
	array_free(&gram);
	array_free(&square);
	array_free(&product);
}

static void test_combine(void **state)
{
	static const uint32_t sides[] = {1, 8, 24, 40, 136};

	for (unsigned i = 0; i < sizeof(sides) / sizeof(*sides) * ELEMENTS; i++) {
		kernels_vary(i % KERNELS_VARIATIONS);
		check_combine(sides[i / ELEMENTS], (enum cuda_element)(i % ELEMENTS));
	}
}

/* ---- timed: a layer of vit_base_patch16 ---- */

static struct shape timed_shape(const struct kernel_case *k)
{
	return (struct shape){k->h, k->w, k->h, k->w};
}

static void begin(const struct kernel_case *k, enum cuda_element element)
{
	struct shape shape = timed_shape(k);
	struct operands o = operands_new(&shape, 1, true, element);

	check_begin(&o, true);
	operands_free(&o);
}

static void end(const struct kernel_case *k, enum cuda_element element)
{
	struct shape shape = timed_shape(k);
	struct operands o = operands_new(&shape, 1, true, element);

	check_end(&o, true);
	operands_free(&o);
}

static void combine(const struct kernel_case *k, enum cuda_element element)
{
	check_combine(k->h, element);
}

static const struct kernel_case timed[] = {
	{"orthogonalize_begin", "3072x768", begin, 3072, 768},
	{"orthogonalize_combine", "768x768", combine, 768, 768},
	{"orthogonalize_end", "3072x768", end, 3072, 768},
};

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_combine),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: orthogonalize", tests, kernels_test_open,
					   kernels_test_close);
}
