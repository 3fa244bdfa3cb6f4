/* Conversions, sums, copies, folding and checks against plain loops in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/elementwise.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t counts[] = {1, 3, 8, 17, 255, 1024, 5001};

#define COUNTS (sizeof(counts) / sizeof(*counts))

static struct elementwise_copy flat_copy(const struct array *from, const struct array *to)
{
	return (struct elementwise_copy){
		.from = from->data,
		.to = to->data,
		.rows = 1,
		.from_columns = (uint32_t)from->count,
		.to_columns = (uint32_t)to->count,
		.from_element = from->element,
		.to_element = to->element,
	};
}

/* Converts `count` values; both sides are raw bits. */
static void copy_bits(enum cuda_element from_element, const void *from,
		      enum cuda_element to_element, void *ret_to, uint32_t count)
{
	struct array in = array_bytes(from, (uint64_t)count * cuda_element_size(from_element));
	struct array out = array_bytes(NULL, (uint64_t)count * cuda_element_size(to_element));
	struct elementwise_copy copy = {
		.from = in.data,
		.to = out.data,
		.rows = count,
		.from_columns = 1,
		.to_columns = 1,
		.from_element = from_element,
		.to_element = to_element,
	};

	assert_int_equal(elementwise_copy(&kernels_device, &copy), 0);
	array_read_bytes(&out, ret_to);
	array_free(&in);
	array_free(&out);
}

/* Every 16-bit value converts to the right fp32 value and back. */
static void test_widening(void **state)
{
	static uint16_t halves[65536], back[65536];
	static float floats[65536];

	for (uint32_t i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	for (int element = CUDA_F16; element <= CUDA_BF16; element++) {
		copy_bits((enum cuda_element)element, halves, CUDA_F32, floats, 65536);
		copy_bits(CUDA_F32, floats, (enum cuda_element)element, back, 65536);
		for (uint32_t i = 0; i < 65536; i++) {
			double expected = element_decode(i, (enum cuda_element)element);

			if (isnan(expected)) {
				assert_true(isnan(floats[i]));
				assert_true(
					isnan(element_decode(back[i], (enum cuda_element)element)));
				continue;
			}
			if ((double)floats[i] != expected ||
			    !signbit(floats[i]) != !signbit(expected) || back[i] != i)
				fail_msg("%#x of element %d is %g, not %g, and goes back to %#x", i,
					 element, (double)floats[i], expected, back[i]);
		}
	}
}

/*
 * fp32 rounds to nearest even: around every boundary between two halves, and for arbitrary values.
 */
static void test_narrowing(void **state)
{
	enum { COUNT = 6 * 4096 };
	static float floats[COUNT];
	static uint16_t got[COUNT];

	for (int element = CUDA_F16; element <= CUDA_BF16; element++) {
		for (uint32_t i = 0; i < COUNT / 6; i++) {
			uint32_t low = (uint32_t)(kernels_uniform(5, i) *
						  (element == CUDA_F16 ? 0x7c00 : 0x7f7f));
			double a = element_decode(low, (enum cuda_element)element);
			double b = low == 0x7bff && element == CUDA_F16
					   ? 65536
					   : element_decode(low + 1, (enum cuda_element)element);
			float middle = (float)((a + b) / 2);
			uint32_t any = (uint32_t)(kernels_uniform(6, i) * 0x1p32);

			floats[6 * i] = middle;
			floats[6 * i + 1] = nextafterf(middle, 0);
			floats[6 * i + 2] = nextafterf(middle, INFINITY);
			floats[6 * i + 3] = -middle;
			memcpy(&floats[6 * i + 4], &any, sizeof(any));
			floats[6 * i + 5] = (float)a;
		}
		copy_bits(CUDA_F32, floats, (enum cuda_element)element, got, COUNT);
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t expected =
				element_encode((double)floats[i], (enum cuda_element)element);

			if (isnan(floats[i]))
				assert_true(
					isnan(element_decode(got[i], (enum cuda_element)element)));
			else if (got[i] != expected)
				fail_msg("%a becomes %#x of element %d, not %#x", (double)floats[i],
					 got[i], element, expected);
		}
	}
}

static void check_add(enum cuda_element element, uint64_t count, bool in_place, unsigned offset)
{
	struct array a = array_coarse(count + offset, element, 1),
		     b = array_coarse(count + offset, element, 2);
	struct array y = in_place ? a : array_blank(count + offset, element);
	double *expected = kernels_zeros((count + offset) * sizeof(*expected));
	uint64_t skip = (uint64_t)offset * cuda_element_size(element);
	struct elementwise_add add = {
		.a = (char *)array_reads(&a) + skip,
		.b = (char *)array_reads(&b) + skip,
		.y = (char *)array_writes(&y) + skip,
		.count = count,
		.element = element,
	};

	assert_int_equal(elementwise_add(&kernels_device, &add), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < count + offset; i++)
		expected[i] = i < offset ? (in_place ? a.v[i] : NAN) : a.v[i] + b.v[i];
	array_expect(&y, expected, 0, "%llu elements from %u", (unsigned long long)count, offset);
	free(expected);
	array_free(&b);
	if (!in_place)
		array_free(&y);
	array_free(&a);
}

static void test_add(void **state)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++)
			for (unsigned i = 0; i < COUNTS; i++)
				for (unsigned offset = 0; offset < 4; offset += 3) {
					check_add((enum cuda_element)element, counts[i], false,
						  offset);
					check_add((enum cuda_element)element, counts[i], true,
						  offset);
				}
	}
}

static void check_copy(enum cuda_element from, enum cuda_element to, uint64_t rows,
		       uint32_t from_columns, uint32_t to_columns, bool add)
{
	struct array in = array_coarse(rows * from_columns, from, 3);
	struct array out =
		add ? array_coarse(rows * to_columns, to, 4) : array_blank(rows * to_columns, to);
	double *expected = kernels_zeros(out.count * sizeof(*expected));
	struct elementwise_copy copy;

	array_reads(&in);
	if (add)
		array_updates(&out);
	else
		array_writes(&out);
	copy = flat_copy(&in, &out);
	copy.rows = rows;
	copy.from_columns = from_columns;
	copy.to_columns = to_columns;
	copy.add = add;
	assert_int_equal(elementwise_copy(&kernels_device, &copy), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < out.count; i++) {
		uint64_t row = i / to_columns, column = i % to_columns;

		expected[i] = (column < from_columns ? in.v[row * from_columns + column] : 0) +
			      (add ? out.v[i] : 0);
	}
	array_expect(&out, expected, 0, "%llu rows, %u columns of element %d to %u",
		     (unsigned long long)rows, from_columns, from, to_columns);
	free(expected);
	array_free(&in);
	array_free(&out);
}

static void test_copy(void **state)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int pair = 0; pair < ELEMENTS * ELEMENTS * 2; pair++) {
			enum cuda_element from = (enum cuda_element)(pair / 2 / ELEMENTS),
					  to = (enum cuda_element)(pair / 2 % ELEMENTS);

			for (unsigned i = 0; i < COUNTS; i++)
				check_copy(from, to, 1, (uint32_t)counts[i], (uint32_t)counts[i],
					   pair % 2);
			check_copy(from, to, 50, 3, 4, pair % 2);
			check_copy(from, to, 50, 4, 3, pair % 2);
			check_copy(from, to, 9, 16, 16, pair % 2);
			check_copy(from, to, 1, 1, 8, pair % 2);
		}
	}
}

/* Makes copies of all these counts in one launch, every third one added to its target. */
static void check_copies(enum cuda_element from, enum cuda_element to, unsigned variation,
			 bool aligned)
{
	struct elementwise_copies copies = {.count = COUNTS};
	struct array in[COUNTS], out[COUNTS];

	for (unsigned i = 0; i < COUNTS; i++) {
		/* so that some blocks of each copy have only whole packs */
		uint64_t count = counts[i] + (i == variation ? 3 * 8192 : 0),
			 odd = !aligned && i == 4;

		in[i] = array_coarse(count + odd, from, 3 + i);
		out[i] = i % 3 ? array_blank(count, to) : array_coarse(count, to, 20 + i);
		copies.list[i] = flat_copy(&in[i], &out[i]);
		copies.list[i].from = (char *)in[i].data + odd * cuda_element_size(from);
		copies.list[i].from_columns = (uint32_t)count;
		copies.list[i].add = i % 3 == 0;
	}
	assert_int_equal(elementwise_copies(&kernels_device, &copies), 0);
	for (unsigned i = 0; i < COUNTS; i++) {
		double *expected = malloc(out[i].count * sizeof(*expected));

		for (uint64_t j = 0; j < out[i].count; j++)
			expected[j] =
				in[i].v[j + in[i].count - out[i].count] + (i % 3 ? 0 : out[i].v[j]);
		array_expect(&out[i], expected, 0, "copy %u of element %d to %d", i, from, to);
		free(expected);
		array_free(&in[i]);
		array_free(&out[i]);
	}
}

static void test_copies(void **state)
{
	struct elementwise_copies padded = {.count = 1,
					    .list = {{.from_columns = 3, .to_columns = 4}}};

	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int pair = 0; pair < ELEMENTS * ELEMENTS; pair++)
			for (int aligned = 0; aligned < 2; aligned++)
				check_copies((enum cuda_element)(pair / ELEMENTS),
					     (enum cuda_element)(pair % ELEMENTS), variation,
					     aligned);
	}
	assert_int_equal(elementwise_copies(&kernels_device, &padded), -EINVAL);
}

static void check_fold(enum cuda_element element, uint32_t k, uint32_t positions, uint32_t columns,
		       uint32_t to_columns)
{
	struct array w = array_coarse((uint64_t)k * positions * columns, CUDA_F32, 5),
		     gamma = array_coarse(k, CUDA_F32, 6);
	struct array beta = array_coarse(k, CUDA_F32, 7), mean = array_coarse(k, CUDA_F32, 8);
	struct array variance = array_uniform(k, CUDA_F32, 9, 0.1, 3);
	struct array to = array_blank((uint64_t)k * positions * to_columns, element),
		     bias = array_blank(k, k % 2 ? CUDA_F32 : element);
	double *expected = kernels_zeros(to.count * sizeof(*expected)),
	       *expected_bias = kernels_zeros(k * sizeof(*expected));
	struct elementwise_fold fold = {
		.w = array_reads(&w),
		.gamma = array_reads(&gamma),
		.beta = array_reads(&beta),
		.running_mean = array_reads(&mean),
		.running_var = array_reads(&variance),
		.epsilon = 1e-3f,
		.to = array_writes(&to),
		.bias = array_writes(&bias),
		.k = k,
		.positions = positions,
		.from_columns = columns,
		.to_columns = to_columns,
		.to_element = element,
		.bias_element = bias.element,
	};

	assert_int_equal(elementwise_fold(&kernels_device, &fold), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < to.count; i++) {
		uint64_t row = i / to_columns, column = i % to_columns, channel = row / positions;
		double scale = gamma.v[channel] / sqrt(variance.v[channel] + (double)1e-3f);

		expected[i] = column < columns ? w.v[row * columns + column] * scale : 0;
		expected_bias[channel] = beta.v[channel] - mean.v[channel] * scale;
	}
	array_expect(&to, expected, element_tolerance(element), "%u x %u x %u weights", k,
		     positions, columns);
	array_expect(&bias, expected_bias,
		     bias.element == CUDA_F32 ? 1e-6 : element_tolerance(bias.element),
		     "bias of %u x %u x %u", k, positions, columns);
	free(expected);
	free(expected_bias);
	array_free(&w);
	array_free(&gamma);
	array_free(&beta);
	array_free(&mean);
	array_free(&variance);
	array_free(&to);
	array_free(&bias);
}

static void test_fold(void **state)
{
	for (int element = 0; element < ELEMENTS; element++) {
		kernels_vary((unsigned)element % KERNELS_VARIATIONS);
		check_fold((enum cuda_element)element, 1, 1, 1, 1);
		check_fold((enum cuda_element)element, 5, 9, 3, 4);
		check_fold((enum cuda_element)element, 64, 1, 16, 16);
		check_fold((enum cuda_element)element, 300, 1, 1, 8);
	}
}

static uint64_t run_checks(struct array *arrays, unsigned count)
{
	uint64_t start = ELEMENTWISE_FINITE, got;
	struct array first = array_bytes(&start, sizeof(start));

	for (unsigned i = 0; i < count; i++) {
		struct elementwise_check check = {
			.x = array_reads(&arrays[i]),
			.count = arrays[i].count,
			.element = arrays[i].element,
			.tensor = 7 + i,
			.first = array_uses(&first),
		};

		assert_int_equal(elementwise_check(&kernels_device, &check), 0);
	}
	if (kernels_timing)
		return start;
	array_read_bytes(&first, &got);
	array_free(&first);
	return got;
}

/*
 * Finds the tensor with the lowest number, and in it the first bad element, whatever the order of
 * threads.
 */
static void test_check(void **state)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY};

	for (int element = 0; element < ELEMENTS; element++) {
		for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
			for (unsigned i = 0; i < COUNTS; i++) {
				struct array two[2] = {
					array_coarse(counts[i], (enum cuda_element)element, 10),
					array_coarse(counts[i], (enum cuda_element)element, 11)};
				uint64_t last = counts[i] - 1, middle = last / 2;

				kernels_vary(variation);
				assert_true(run_checks(two, 2) == ELEMENTWISE_FINITE);
				two[1].v[middle] = bad[i % 3];
				two[1].v[last] = bad[(i + 1) % 3];
				array_write(&two[1]);
				assert_true(run_checks(two, 2) == (8ull << 40 | middle));
				two[0].v[last] = bad[(i + 2) % 3];
				array_write(&two[0]);
				assert_true(run_checks(two, 2) == (7ull << 40 | last));
				array_free(&two[0]);
				array_free(&two[1]);
			}
		}
	}
}

/* ---- timed ---- */

static uint64_t elements_of(const struct kernel_case *k)
{
	return (uint64_t)k->n * k->h * k->w * k->c;
}

static void add(const struct kernel_case *k, enum cuda_element element)
{
	check_add(element, elements_of(k), false, 0);
}

static void check(const struct kernel_case *k, enum cuda_element element)
{
	struct array x = array_coarse(elements_of(k), element, 10);

	assert_true(run_checks(&x, 1) == ELEMENTWISE_FINITE);
	array_free(&x);
}

/* A weight's gradient: h x 9 c elements. */
static void gradient(const struct kernel_case *k, enum cuda_element element)
{
	check_copy(element, CUDA_F32, k->h * 9, k->c, k->c, k->how != NULL);
}

static void fold(const struct kernel_case *k, enum cuda_element element)
{
	check_fold(element, k->h, 9, k->c, k->c);
}

static const bool added = true;

static const struct kernel_case timed[] = {
	{"elementwise_add", "56x56x256", add, 56, 56, 256},
	{"elementwise_check", "56x56x256", check, 56, 56, 256},
	{"elementwise_copy", "gradient 512x3x3x512", gradient, 512, 0, 512},
	{"elementwise_copy", "gradient 512x3x3x512, added", gradient, 512, 0, 512, &added},
	{"elementwise_fold", "512x3x3x512", fold, 512, 0, 512},
};

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_widening), cmocka_unit_test(test_narrowing),
		cmocka_unit_test(test_add),      cmocka_unit_test(test_copy),
		cmocka_unit_test(test_copies),   cmocka_unit_test(test_fold),
		cmocka_unit_test(test_check),    cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: elementwise", tests, kernels_test_open,
					   kernels_test_close);
}
