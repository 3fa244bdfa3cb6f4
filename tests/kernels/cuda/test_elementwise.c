/* Conversions, sums, copies, folding and checks against plain loops in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/elementwise.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const uint32_t counts[] = {1, 3, 8, 17, 255, 1024, 5001};
static const struct kernel_shape lengths[] = {{1, 1, 1, 1},   {1, 1, 1, 3},   {1, 1, 1, 8},
					      {1, 1, 1, 17},  {1, 1, 1, 255}, {1, 1, 1, 1024},
					      {1, 1, 1, 5001}};

static uint64_t count_of(const struct kernel_case *k)
{
	return (uint64_t)k->n * k->h * k->w * k->c;
}

/* ---- conversions ---- */

/* Converts `count` values; both sides are raw bits. */
static void copy_bits(enum cuda_element from_element, const void *from,
		      enum cuda_element to_element, void *ret_to, uint32_t count)
{
	struct array *in = new_bytes(from, (uint64_t)count * cuda_element_size(from_element)),
		     *out = new_bytes(NULL, (uint64_t)count * cuda_element_size(to_element));
	const struct elementwise_copy copy = {
		.from = in->data,
		.to = out->data,
		.rows = count,
		.from_columns = 1,
		.to_columns = 1,
		.from_element = from_element,
		.to_element = to_element,
	};

	queued(elementwise_copy(&kernels_device, &copy));
	array_read_bytes(out, ret_to);
}

/* Every 16-bit value converts to the right fp32 value and back. */
static void widening(void)
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
static void narrowing(void)
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

/* ---- sums ---- */

struct add_case {
	bool in_place;
	uint32_t offset; /* offset of all operands in elements, so that they are misaligned */
};

static const struct add_case add_cases[] = {{false, 0}, {true, 0}, {false, 3}, {true, 3}};

static void add(const struct kernel_case *k, enum cuda_element element)
{
	const struct add_case *settings = k->settings;
	uint64_t count = count_of(k) + settings->offset,
		 skip = (uint64_t)settings->offset * cuda_element_size(element);
	struct array *a = new_coarse(count, element), *b = new_coarse(count, element),
		     *y = settings->in_place ? a : new_blank(count, element);
	const struct elementwise_add sum = {
		.a = (char *)array_reads(a) + skip,
		.b = (char *)array_reads(b) + skip,
		.y = (char *)array_writes(y) + skip,
		.count = count_of(k),
		.element = element,
	};

	if (queued(elementwise_add(&kernels_device, &sum)))
		return;
	for (uint64_t i = 0; i < count; i++)
		want(y)[i] = i < settings->offset ? y->v[i] : a->v[i] + b->v[i];
	expect(y, 0, "y");
}

/* ---- copies ---- */

struct copy_case {
	enum cuda_element to;
	bool add;
};

static const struct copy_case copy_cases[] = {{CUDA_F32, false},  {CUDA_F16, false},
					      {CUDA_BF16, false}, {CUDA_F32, true},
					      {CUDA_F16, true},   {CUDA_BF16, true}};

/* rows, -, -, columns; columns of the copy, 0 if the same */
static const struct kernel_shape padded[] = {
	{50, 1, 1, 3, {4}}, {50, 1, 1, 4, {3}}, {9, 1, 1, 16}, {1, 1, 1, 1, {8}}};

static void copy(const struct kernel_case *k, enum cuda_element element)
{
	const struct copy_case *settings = k->settings;
	uint64_t rows = (uint64_t)k->n * k->h * k->w;
	uint32_t columns = k->more[0] ? k->more[0] : k->c;
	struct array *from = new_coarse(rows * k->c, element),
		     *to = settings->add ? new_coarse(rows * columns, settings->to)
					 : new_blank(rows * columns, settings->to);
	const struct elementwise_copy copied = {
		.from = array_reads(from),
		.to = settings->add ? array_updates(to) : array_writes(to),
		.rows = rows,
		.from_columns = k->c,
		.to_columns = columns,
		.from_element = element,
		.to_element = settings->to,
		.add = settings->add,
	};

	if (queued(elementwise_copy(&kernels_device, &copied)))
		return;
	for (uint64_t i = 0; i < to->count; i++) {
		uint64_t row = i / columns, column = i % columns;

		want(to)[i] = (column < k->c ? from->v[row * k->c + column] : 0) +
			      (settings->add ? to->v[i] : 0);
	}
	expect(to, 0, "to");
}

struct copies_case {
	enum cuda_element to;
	bool aligned;
};

static const struct copies_case copies_cases[] = {
	{CUDA_F32, false}, {CUDA_F16, false}, {CUDA_BF16, false},
	{CUDA_F32, true},  {CUDA_F16, true},  {CUDA_BF16, true},
};

/*
 * Copies of all counts in one launch; every third one is added to its destination. One is so much
 * larger that some of its blocks have only whole packs.
 */
static void check_copies(const struct copies_case *settings, enum cuda_element element,
			 unsigned long_one)
{
	struct elementwise_copies all = {.count = COUNT_OF(counts)};
	struct array *from[COUNT_OF(counts)], *to[COUNT_OF(counts)];

	for (unsigned i = 0; i < all.count; i++) {
		uint64_t count = counts[i] + (i == long_one ? 3 * 8192 : 0),
			 odd = !settings->aligned && i == 4;

		from[i] = new_coarse(count + odd, element);
		to[i] = i % 3 ? new_blank(count, settings->to) : new_coarse(count, settings->to);
		all.list[i] = (struct elementwise_copy){
			.from = (char *)from[i]->data + odd * cuda_element_size(element),
			.to = to[i]->data,
			.rows = 1,
			.from_columns = (uint32_t)count,
			.to_columns = (uint32_t)count,
			.from_element = element,
			.to_element = settings->to,
			.add = i % 3 == 0,
		};
	}
	queued(elementwise_copies(&kernels_device, &all));
	for (unsigned i = 0; i < all.count; i++) {
		uint64_t odd = from[i]->count - to[i]->count;

		for (uint64_t j = 0; j < to[i]->count; j++)
			want(to[i])[j] = from[i]->v[j + odd] + (i % 3 ? 0 : to[i]->v[j]);
		expect(to[i], 0, "to");
	}
}

static void copies(const struct kernel_case *k, enum cuda_element element)
{
	for (unsigned long_one = 0; long_one < 3; long_one++)
		check_copies(k->settings, element, long_one);
}

static void padded_copies_are_refused(void)
{
	struct elementwise_copies one = {.count = 1,
					 .list = {{.from_columns = 3, .to_columns = 4}}};

	assert_int_equal(elementwise_copies(&kernels_device, &one), -EINVAL);
}

/* ---- folding ---- */

/* k, positions, -, columns; columns of the copy, 0 if the same */
static const struct kernel_shape weights[] = {
	{1, 1, 1, 1}, {5, 9, 1, 3, {4}}, {64, 1, 1, 16}, {300, 1, 1, 1, {8}}};

static void check_fold(uint32_t k, uint32_t positions, uint32_t columns, uint32_t to_columns,
		       enum cuda_element element)
{
	struct array *w = new_coarse((uint64_t)k * positions * columns, CUDA_F32);
	struct array *gamma = new_coarse(k, CUDA_F32), *beta = new_coarse(k, CUDA_F32);
	struct array *mean = new_coarse(k, CUDA_F32), *variance = new_uniform(k, CUDA_F32, 0.1, 3);
	struct array *to = new_blank((uint64_t)k * positions * to_columns, element),
		     *bias = new_blank(k, k % 2 ? CUDA_F32 : element);
	const struct elementwise_fold fold = {
		.w = array_reads(w),
		.gamma = array_reads(gamma),
		.beta = array_reads(beta),
		.running_mean = array_reads(mean),
		.running_var = array_reads(variance),
		.epsilon = 1e-3f,
		.to = array_writes(to),
		.bias = array_writes(bias),
		.k = k,
		.positions = positions,
		.from_columns = columns,
		.to_columns = to_columns,
		.to_element = element,
		.bias_element = bias->element,
	};

	if (queued(elementwise_fold(&kernels_device, &fold)))
		return;
	for (uint64_t i = 0; i < to->count; i++) {
		uint64_t row = i / to_columns, column = i % to_columns, channel = row / positions;
		double scale = gamma->v[channel] / sqrt(variance->v[channel] + (double)1e-3f);

		want(to)[i] = column < columns ? w->v[row * columns + column] * scale : 0;
		want(bias)[channel] = beta->v[channel] - mean->v[channel] * scale;
	}
	expect(to, element_tolerance(element), "weights");
	expect(bias, bias->element == CUDA_F32 ? 1e-6 : element_tolerance(bias->element), "bias");
}

static void fold(const struct kernel_case *k, enum cuda_element element)
{
	check_fold(k->n, k->h, k->c, k->more[0] ? k->more[0] : k->c, element);
}

/* ---- elements that are not finite ---- */

static uint64_t first_bad(struct array *const *arrays, unsigned count)
{
	uint64_t first = ELEMENTWISE_FINITE;
	struct array *result = new_bytes(&first, sizeof(first));

	for (unsigned i = 0; i < count; i++) {
		const struct elementwise_check check = {
			.x = array_reads(arrays[i]),
			.count = arrays[i]->count,
			.element = arrays[i]->element,
			.tensor = 7 + i,
			.first = array_uses(result),
		};

		if (queued(elementwise_check(&kernels_device, &check)))
			return first;
	}
	array_read_bytes(result, &first);
	return first;
}

/*
 * Finds the tensor with the lowest number, and in it the first bad element, whatever the order of
 * threads.
 */
static void check(const struct kernel_case *k, enum cuda_element element)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY};
	uint64_t count = count_of(k), last = count - 1, middle = last / 2;
	struct array *two[2] = {new_coarse(count, element), new_coarse(count, element)};

	assert_true(first_bad(two, kernels_timing ? 1 : 2) == ELEMENTWISE_FINITE);
	if (kernels_timing)
		return;
	two[1]->v[middle] = bad[count % 3];
	two[1]->v[last] = bad[(count + 1) % 3];
	array_write(two[1]);
	assert_true(first_bad(two, 2) == (8ull << 40 | middle));
	two[0]->v[last] = bad[(count + 2) % 3];
	array_write(two[0]);
	assert_true(first_bad(two, 2) == (7ull << 40 | last));
}

static const struct kernel_shape any[] = {{1, 1, 1, 1}};

static const struct kernel_test tests[] = {
	ONCE(widening),
	ONCE(narrowing),
	CHECK_EACH(add, lengths, add_cases),
	CHECK_EACH(copy, lengths, copy_cases),
	CHECK_EACH(copy, padded, copy_cases),
	CHECK_EACH(copies, any, copies_cases),
	ONCE(padded_copies_are_refused),
	CHECK(fold, weights),
	CHECK(check, lengths),
};

/* A weight's gradient: h x 9 c elements. */
static void gradient(const struct kernel_case *k, enum cuda_element element)
{
	const struct kernel_case rows = {
		.settings = k->settings, .n = k->h, .h = 9, .w = 1, .c = k->c};

	copy(&rows, element);
}

static void timed_fold(const struct kernel_case *k, enum cuda_element element)
{
	check_fold(k->h, 9, k->c, k->c, element);
}

static const struct kernel_case timed[] = {
	{"elementwise_add", "56x56x256", add, 56, 56, 256, &add_cases[0]},
	{"elementwise_check", "56x56x256", check, 56, 56, 256},
	{"elementwise_copy", "gradient 512x3x3x512", gradient, 512, 0, 512, &copy_cases[0]},
	{"elementwise_copy", "gradient 512x3x3x512, added", gradient, 512, 0, 512, &copy_cases[3]},
	{"elementwise_fold", "512x3x3x512", timed_fold, 512, 0, 512},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
