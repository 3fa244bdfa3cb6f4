/* Kernels of a by_matrix optimizer between its matrix products, against double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/orthogonalize.h"

#include <math.h>

/*
 * rows and columns; rows and columns of x, padded as in
 * trainer/device/cuda/lowering/matrix_products.h, and unpadded
 */
static const struct kernel_shape shapes[] = {
	{1, 41, 601, 1, {48, 608}}, {1, 24, 144, 1, {24, 144}}, {1, 7, 5, 1, {8, 8}},
	{1, 1, 1, 1, {8, 8}},       {1, 64, 3, 1, {64, 8}},
};
static const struct kernel_shape sides[] = {
	{1, 1, 1, 1}, {1, 8, 8, 1}, {1, 24, 24, 1}, {1, 40, 40, 1}, {1, 136, 136, 1}};

struct matrix_case {
	double scale; /* bound of the elements; the last gives a norm below the minimum */
	bool made;
};

static const struct matrix_case matrix_cases[] = {{3, true}, {3, false}, {1e-10, true}};

struct matrix {
	struct orthogonalize_matrix a;
	struct array *gradient, *x;
};

static struct matrix new_matrix(const struct kernel_case *k, enum cuda_element element)
{
	const struct matrix_case *settings = k->settings;
	struct update_decision decision = {.made = settings->made};
	struct matrix m = {.a = {.rows = k->h,
				 .columns = k->w,
				 .x_rows = k->more[0] ? k->more[0] : k->h,
				 .x_columns = k->more[0] ? k->more[1] : k->w,
				 .element = element}};
	double squares = 0;

	m.gradient =
		new_uniform((uint64_t)k->h * k->w, CUDA_F32, -settings->scale, settings->scale);
	m.x = new_uniform((uint64_t)m.a.x_rows * m.a.x_columns, element, 0, 1);
	for (uint64_t i = 0; m.gradient->v && i < m.gradient->count; i++)
		squares += m.gradient->v[i] * m.gradient->v[i];
	m.a.squares = array_uses(new_bytes(&squares, sizeof(squares)));
	m.a.decision = array_uses(new_bytes(&decision, sizeof(decision)));
	return m;
}

static void begin(const struct kernel_case *k, enum cuda_element element)
{
	const struct matrix_case *settings = k->settings;
	struct matrix m = new_matrix(k, element);
	const double *g = m.gradient->v;
	double squares = 0;

	m.a.gradient = array_reads(m.gradient);
	m.a.x = array_writes(m.x);
	if (queued(orthogonalize_begin(&kernels_device, &m.a)))
		return;
	for (uint64_t i = 0; i < m.gradient->count; i++)
		squares += g[i] * g[i];
	for (uint64_t i = 0; i < m.x->count; i++) {
		uint64_t row = i / m.a.x_columns, column = i % m.a.x_columns;

		if (!settings->made)
			want(m.x)[i] = m.x->v[i];
		else if (row < m.a.rows && column < m.a.columns)
			want(m.x)[i] = g[row * m.a.columns + column] /
				       fmax(sqrt(squares), (double)UPDATE_MATRIX_NORM_MIN);
	}
	/* elements below 1, down to denormal halves */
	expect(m.x, element_tolerance(element), "x");
}

static void end(const struct kernel_case *k, enum cuda_element element)
{
	const struct matrix_case *settings = k->settings;
	struct matrix m = new_matrix(k, element);

	m.a.x = array_reads(m.x);
	m.a.gradient = array_writes(m.gradient);
	if (queued(orthogonalize_end(&kernels_device, &m.a)))
		return;
	for (uint64_t i = 0; i < m.gradient->count; i++)
		want(m.gradient)[i] = settings->made ? m.x->v[i / k->w * m.a.x_columns + i % k->w]
						     : m.gradient->v[i];
	expect(m.gradient, 0, "gradient");
}

static void combine(const struct kernel_case *k, enum cuda_element element)
{
	uint64_t count = (uint64_t)k->h * k->h;
	struct array *gram = new_uniform(count, element, -1, 1),
		     *square = new_uniform(count, CUDA_F32, -1, 1),
		     *product = new_blank(count, element);
	const struct orthogonalize_combine a = {
		.gram = array_reads(gram),
		.square = array_reads(square),
		.product = array_writes(product),
		.gram_side = k->h,
		.element = element,
		.polynomial = {3.5f, -4.75f, 2.25f},
	};

	if (queued(orthogonalize_combine(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < count; i++)
		want(product)[i] =
			(i % (k->h + 1) == 0 ? 3.5 : 0) - 4.75 * gram->v[i] + 2.25 * square->v[i];
	expect(product, element_tolerance(element), "product");
}

static const struct kernel_test tests[] = {
	CHECK_EACH(begin, shapes, matrix_cases),
	CHECK_EACH(end, shapes, matrix_cases),
	CHECK(combine, sides),
};

/* A layer of vit_base_patch16. */
static const struct kernel_case timed[] = {
	{"orthogonalize_begin", "3072x768", begin, 3072, 768, 1, &matrix_cases[0]},
	{"orthogonalize_combine", "768x768", combine, 768, 768, 1},
	{"orthogonalize_end", "3072x768", end, 3072, 768, 1, &matrix_cases[0]},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
