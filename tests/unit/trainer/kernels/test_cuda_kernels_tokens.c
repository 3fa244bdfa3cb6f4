/* Tokens with and without a class token, and taking one token, against plain loops. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/tokens.h"

#include <errno.h>
#include <stdlib.h>

static const struct {
	uint32_t n, places, channels;
} shapes[] = {{1, 1, 1}, {3, 6, 7}, {5, 12, 32}, {9, 4, 200}, {33, 3, 12}, {2, 49, 1030}};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

struct operands {
	struct tokens_arguments a;
	uint64_t x_count, y_count, row; /* row: elements of all tokens of a sample */
	struct array x, dy, y, dx, positions, class_token, dpositions, dclass_token;
	double *expected; /* room for the largest array */
};

static struct operands operands_new(uint32_t n, uint32_t places, uint32_t channels, bool classes,
				    enum cuda_element element)
{
	uint64_t row = (uint64_t)(places + classes) * channels, y = n * row;
	uint64_t x = (uint64_t)n * places * channels;

	return (struct operands){
		.a = {.n = n,
		      .places = places,
		      .tokens = places + classes,
		      .channels = channels,
		      .element = element},
		.x_count = x,
		.y_count = y,
		.row = row,
		.x = array_coarse(x, element, 1),
		.dy = array_coarse(y, element, 2),
		.y = array_blank(y, element),
		.dx = array_blank(x, element),
		.positions = array_coarse(row, CUDA_F32, 3),
		.class_token = array_coarse(channels, CUDA_F32, 4),
		.dpositions = array_blank(row, CUDA_F32),
		.dclass_token = array_blank(channels, CUDA_F32),
		.expected = kernels_zeros(y * sizeof(double)),
	};
}

static void operands_free(struct operands *o)
{
	struct array *arrays[] = {&o->x,         &o->dy,          &o->y,          &o->dx,
				  &o->positions, &o->class_token, &o->dpositions, &o->dclass_token};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(o->expected);
}

/* Returns the index in y of an element of x or dx. */
static uint64_t of_token(const struct operands *o, uint64_t at)
{
	uint64_t image = (uint64_t)o->a.places * o->a.channels;

	return at / image * o->row + o->row - image + at % image;
}

static void check_forward(struct operands *o)
{
	struct tokens_arguments a = o->a;

	a.x = array_reads(&o->x);
	a.y = array_writes(&o->y);
	a.positions = array_reads(&o->positions);
	a.class_token = a.tokens > a.places ? array_reads(&o->class_token) : NULL;
	assert_int_equal(tokens_forward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < o->y_count; i++)
		o->expected[i] =
			o->positions.v[i % o->row] +
			o->class_token.v[i % o->a.channels]; /* correct for the class token; the
								loop below overwrites the others */
	for (uint64_t i = 0; i < o->x_count; i++)
		o->expected[of_token(o, i)] = o->positions.v[of_token(o, i) % o->row] + o->x.v[i];
	array_expect(&o->y, o->expected, element_tolerance(a.element), "y of %u x %u x %u", a.n,
		     a.tokens, a.channels);
}

static void expect_sums(struct operands *o, struct array *sums, bool add)
{
	for (uint64_t i = 0; i < sums->count; i++) {
		o->expected[i] = add ? sums->v[i] : 0;
		for (uint32_t n = 0; n < o->a.n; n++)
			o->expected[i] += o->dy.v[n * o->row + i];
	}
	array_expect(sums, o->expected, 1e-6, "gradients of %u x %u x %u", o->a.n, o->a.tokens,
		     o->a.channels);
}

/* The class token's sums equal those of the first position. */
static void check_backward(struct operands *o, bool dx, bool sums, bool add)
{
	struct tokens_arguments a = o->a;
	bool classes = a.tokens > a.places;

	a.dy = array_reads(&o->dy);
	a.dx = dx ? array_writes(&o->dx) : NULL;
	a.dpositions = sums ? array_writes(&o->dpositions) : NULL;
	a.dclass_token = sums && classes ? array_writes(&o->dclass_token) : NULL;
	a.add_positions = a.add_class_token = add;
	assert_int_equal(tokens_backward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < o->x_count; i++)
		o->expected[i] = o->dy.v[of_token(o, i)];
	if (dx)
		array_expect(&o->dx, o->expected, 0, "dx of %u x %u x %u", a.n, a.tokens,
			     a.channels);
	if (sums)
		expect_sums(o, &o->dpositions, add);
	if (sums && classes)
		expect_sums(o, &o->dclass_token, add);
}

static void test_tokens(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS * KERNELS_VARIATIONS * 2; i++) {
		unsigned shape = i / 2 / KERNELS_VARIATIONS / ELEMENTS;
		struct operands o;

		kernels_vary(i / 2 % KERNELS_VARIATIONS);
		o = operands_new(shapes[shape].n, shapes[shape].places, shapes[shape].channels,
				 i % 2, (enum cuda_element)(i / 2 / KERNELS_VARIATIONS % ELEMENTS));
		check_forward(&o);
		check_backward(&o, true, false, false);
		check_backward(&o, false, true, false);
		check_backward(&o, true, true, true);
		operands_free(&o);
	}
}

/* y and dy hold one token per sample here. */
static void check_take(struct operands *o, uint32_t taken)
{
	uint32_t channels = o->a.channels, image = o->a.places * channels;
	struct array y = array_blank((uint64_t)o->a.n * channels, o->a.element);
	struct array dy = array_coarse((uint64_t)o->a.n * channels, o->a.element, 5);
	struct tokens_arguments a = o->a;

	a.tokens = 1;
	a.taken = taken;
	a.x = array_reads(&o->x);
	a.y = array_writes(&y);
	a.dy = array_reads(&dy);
	a.dx = array_writes(&o->dx);
	assert_int_equal(tokens_take(&kernels_device, &a), 0);
	assert_int_equal(tokens_take_backward(&kernels_device, &a), 0);
	for (uint64_t i = 0; i < y.count; i++)
		o->expected[i] =
			o->x.v[i / channels * image + (uint64_t)taken * channels + i % channels];
	array_expect(&y, o->expected, 0, "place %u of %u x %u x %u", taken, a.n, a.places,
		     channels);
	for (uint64_t i = 0; i < o->x_count; i++)
		o->expected[i] = i % image / channels == taken
					 ? dy.v[i / image * channels + i % channels]
					 : 0;
	array_expect(&o->dx, o->expected, 0, "dx of place %u of %u x %u x %u", taken, a.n, a.places,
		     channels);
	array_free(&y);
	array_free(&dy);
}

static void test_take(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS; i++) {
		struct operands o;

		kernels_vary(i % KERNELS_VARIATIONS);
		o = operands_new(shapes[i / ELEMENTS].n, shapes[i / ELEMENTS].places,
				 shapes[i / ELEMENTS].channels, false,
				 (enum cuda_element)(i % ELEMENTS));
		check_take(&o, 0);
		check_take(&o, o.a.places - 1);
		check_take(&o, o.a.places / 2);
		operands_free(&o);
	}
}

static void test_refused(void **state)
{
	struct tokens_arguments a = {
		.n = 1u << 16, .places = 1u << 10, .tokens = 1u << 10, .channels = 64};

	assert_int_equal(tokens_forward(&kernels_device, &a), -EINVAL);
}

/* ---- timed: vision transformers ---- */

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(k->n, k->h * k->w, k->c, true, element);

	check_forward(&o);
	operands_free(&o);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(k->n, k->h * k->w, k->c, true, element);

	check_backward(&o, true, true, false);
	operands_free(&o);
}

/* clang-format off */
static const struct kernel_case timed[] = {
	{"tokens", "14x14x384", forward, 14, 14, 384},
	{"tokens", "14x14x768", forward, 14, 14, 768},
	{"tokens_backward", "14x14x384", backward, 14, 14, 384},
	{"tokens_backward", "14x14x768", backward, 14, 14, 768},
};
/* clang-format on */

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_take),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: tokens", tests, kernels_test_open,
					   kernels_test_close);
}
