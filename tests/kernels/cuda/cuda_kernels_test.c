#include "tests/kernels/cuda/cuda_kernels_bench.h"

#ifndef KERNELS_ON_DEVICE
#include "tests/gpu/emulation/launch.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256
#define GUARD       0xa5

struct kernel_device kernels_device;
bool kernels_timing;

int kernels_test_open(void **state)
{
	struct gpu_properties properties;

	if (gpu_select(0, &properties) < 0) {
		print_message("%s\n", gpu_error());
		exit(77);
	}
	kernels_device.multiprocessors = properties.multiprocessors;
	return gpu_stream_new(&kernels_device.stream);
}

int kernels_test_close(void **state)
{
	gpu_stream_free(kernels_device.stream);
	return 0;
}

void kernels_vary(unsigned variation)
{
	static const uint32_t multiprocessors[KERNELS_VARIATIONS] = {4, 1, 33};

	kernels_device.multiprocessors = multiprocessors[variation];
#ifndef KERNELS_ON_DEVICE
	emulation_order(variation);
#endif
}

void *kernels_zeros(uint64_t bytes)
{
	void *memory;

	if (kernels_timing)
		return NULL;
	memory = calloc(bytes ? bytes : 1, 1);
	assert_non_null(memory);
	return memory;
}

double kernels_uniform(uint64_t seed, uint64_t counter)
{
	uint64_t z = seed * 0x2545f4914f6cdd1d + (counter + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- elements ---- */

static int significant_bits(enum cuda_element element)
{
	return element == CUDA_F32 ? 24 : element == CUDA_F16 ? 11 : 8;
}

double element_round(double value, enum cuda_element element)
{
	int least = element == CUDA_F16 ? -14 : -126, exponent;
	double largest = element == CUDA_F16   ? 65504
			 : element == CUDA_F32 ? 0x1.fffffep127
					       : 0x1.fep127,
	       unit;

	if (!isfinite(value) || value == 0)
		return value;
	frexp(value, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	unit = ldexp(1, exponent - significant_bits(element) + 1);
	value = nearbyint(value / unit) * unit;
	return fabs(value) > largest ? copysign(INFINITY, value) : value;
}

uint32_t element_encode(double value, enum cuda_element element)
{
	double rounded = element_round(value, element);
	float f = (float)rounded;
	uint32_t bits, sign;
	int exponent;

	memcpy(&bits, &f, sizeof(bits));
	if (element == CUDA_F32)
		return bits;
	if (element == CUDA_BF16)
		return bits >> 16;
	sign = bits >> 16 & 0x8000;
	if (isnan(rounded))
		return sign | 0x7e00;
	if (isinf(rounded))
		return sign | 0x7c00;
	rounded = fabs(rounded);
	if (rounded < 0x1p-14)
		return sign | (uint32_t)(rounded * 0x1p24);
	frexp(rounded, &exponent);
	return sign |
	       ((uint32_t)(exponent + 14) << 10 | ((uint32_t)ldexp(rounded, 11 - exponent) - 1024));
}

double element_decode(uint32_t bits, enum cuda_element element)
{
	uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double value;
	float f;

	if (element != CUDA_F16) {
		bits <<= element == CUDA_BF16 ? 16 : 0;
		memcpy(&f, &bits, sizeof(f));
		return (double)f;
	}
	if (exponent == 31)
		value = mantissa ? NAN : INFINITY;
	else
		value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25)
				 : ldexp(mantissa, -24);
	return bits & 0x8000 ? -value : value;
}

double element_tolerance(enum cuda_element element)
{
	return element == CUDA_F32 ? 4e-6 : element == CUDA_F16 ? 0x1.1p-11 : 0x1.1p-8;
}

/* ---- arrays ---- */

static struct array array_new(uint64_t count, uint32_t size)
{
	struct array array = {.count = count, .size = size};
	void *memory;

	if (kernels_timing)
		return array;
	assert_int_equal(gpu_allocate(2 * GUARD_BYTES + count * size, &memory), 0);
	array.memory = memory;
	array.data = array.memory + GUARD_BYTES;
	assert_int_equal(
		gpu_fill(memory, GUARD, 2 * GUARD_BYTES + count * size, kernels_device.stream), 0);
	assert_int_equal(gpu_fill(array.data, 0xff, count * size, kernels_device.stream), 0);
	return array;
}

struct array array_blank(uint64_t count, enum cuda_element element)
{
	struct array array = array_new(count, cuda_element_size(element));

	array.element = element;
	array.v = kernels_zeros(count * sizeof(*array.v));
	for (uint64_t i = 0; array.v && i < count; i++)
		array.v[i] = NAN;
	return array;
}

struct array array_uniform(uint64_t count, enum cuda_element element, uint64_t seed, double low,
			   double high)
{
	struct array array = array_blank(count, element);

	for (uint64_t i = 0; array.v && i < count; i++)
		array.v[i] = element_round(low + (high - low) * kernels_uniform(seed, i), element);
	array_write(&array);
	return array;
}

struct array array_coarse(uint64_t count, enum cuda_element element, uint64_t seed)
{
	struct array array = array_blank(count, element);

	for (uint64_t i = 0; array.v && i < count; i++)
		array.v[i] = round(kernels_uniform(seed, i) * 32 - 16) / 8;
	array_write(&array);
	return array;
}

struct array array_bytes(const void *bytes, uint64_t count)
{
	struct array array = array_new(count, 1);

	if (bytes && kernels_timing) {
		array.data = bench_keep(bytes, count);
	} else if (bytes) {
		assert_int_equal(gpu_copy_in(array.data, bytes, count, kernels_device.stream), 0);
		assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	}
	return array;
}

void array_write(struct array *array)
{
	char *bytes;

	if (kernels_timing)
		return;
	bytes = kernels_zeros(array->count * array->size);
	for (uint64_t i = 0; i < array->count; i++) {
		uint32_t bits = element_encode(array->v[i], array->element);

		memcpy(bytes + i * array->size, &bits, array->size);
	}
	assert_int_equal(
		gpu_copy_in(array->data, bytes, array->count * array->size, kernels_device.stream),
		0);
	assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	free(bytes);
}

void array_read_bytes(const struct array *array, void *ret_bytes)
{
	uint64_t bytes = array->count * array->size;
	unsigned char *all = kernels_zeros(bytes + 2 * GUARD_BYTES);

	assert_int_equal(
		gpu_copy_out(all, array->memory, bytes + 2 * GUARD_BYTES, kernels_device.stream),
		0);
	assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	for (uint64_t i = 0; i < GUARD_BYTES; i++) {
		if (all[i] != GUARD)
			fail_msg("written %d bytes before an array", (int)(GUARD_BYTES - i));
		if (all[GUARD_BYTES + bytes + i] != GUARD)
			fail_msg("written %d bytes behind an array", (int)i);
	}
	memcpy(ret_bytes, all + GUARD_BYTES, bytes);
	free(all);
}

void array_read(struct array *array)
{
	unsigned char *bytes = kernels_zeros(array->count * array->size);

	array_read_bytes(array, bytes);
	for (uint64_t i = 0; i < array->count; i++) {
		uint32_t bits = 0;

		memcpy(&bits, bytes + i * array->size, array->size);
		array->v[i] = element_decode(bits, array->element);
	}
	free(bytes);
}

void array_free(struct array *array)
{
	if (kernels_timing)
		return;
	/* queued work may still use the memory */
	assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	gpu_free(array->memory);
	free(array->v);
	*array = (struct array){0};
}

static void *array_operand(struct array *array, unsigned times)
{
	if (kernels_timing)
		bench_operand(array, times);
	return array->data;
}

void *array_reads(struct array *array)
{
	return array_operand(array, 1);
}

void *array_writes(struct array *array)
{
	return array_operand(array, 1);
}

void *array_updates(struct array *array)
{
	return array_operand(array, 2);
}

void *array_uses(struct array *array)
{
	return array_operand(array, 0);
}

/* ---- arrays of a case ---- */

static struct {
	struct array *arrays;
	void *doubles[16];
	unsigned doubles_count;
	uint64_t seed;
	const struct kernel_case *running;
	unsigned how;
} current;

void kernels_release(void)
{
	while (current.arrays) {
		struct array *array = current.arrays;

		current.arrays = array->next;
		free(array->want);
		array_free(array);
		free(array);
	}
	while (current.doubles_count)
		free(current.doubles[--current.doubles_count]);
	current.seed = 0;
}

static struct array *keep(struct array array)
{
	struct array *kept = malloc(sizeof(*kept));

	assert_non_null(kept);
	*kept = array;
	kept->next = current.arrays;
	current.arrays = kept;
	return kept;
}

struct array *new_coarse(uint64_t count, enum cuda_element element)
{
	return keep(array_coarse(count, element, ++current.seed));
}

struct array *new_uniform(uint64_t count, enum cuda_element element, double low, double high)
{
	return keep(array_uniform(count, element, ++current.seed, low, high));
}

struct array *new_blank(uint64_t count, enum cuda_element element)
{
	return keep(array_blank(count, element));
}

struct array *new_bytes(const void *bytes, uint64_t count)
{
	return keep(array_bytes(bytes, count));
}

double *new_doubles(uint64_t count)
{
	double *doubles = kernels_zeros(count * sizeof(*doubles));

	assert_true(current.doubles_count < sizeof(current.doubles) / sizeof(*current.doubles));
	current.doubles[current.doubles_count++] = doubles;
	return doubles;
}

double *want(struct array *array)
{
	if (!array->want)
		array->want = kernels_zeros(array->count * sizeof(*array->want));
	return array->want;
}

bool queued(int r)
{
	assert_int_equal(r, 0);
	return kernels_timing;
}

/* ---- comparing ---- */

static void __attribute__((noreturn, format(printf, 1, 2))) differs(const char *format, ...)
{
	const struct kernel_case *k = current.running;
	char text[256];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (k)
		fail_msg("%s %s, case %u, %u x %u x %u x %u: %s", k->kernel, k->name ? k->name : "",
			 current.how, k->n, k->h, k->w, k->c, text);
	else
		fail_msg("%s", text);
	abort();
}

static bool agrees(double got, double expected, double tolerance)
{
	if (isnan(expected) || isinf(expected))
		return isnan(expected) ? isnan(got) : got == expected;
	return fabs(got - expected) <= tolerance * (1 + fabs(expected));
}

void array_expect(struct array *array, const double *expected, double tolerance, const char *what,
		  ...)
{
	char text[256];
	va_list list;

	array_read(array);
	for (uint64_t i = 0; i < array->count; i++) {
		if (agrees(array->v[i], expected[i], tolerance))
			continue;
		va_start(list, what);
		vsnprintf(text, sizeof(text), what, list);
		va_end(list);
		fail_msg("%s, element %d: %llu of %llu is %.9g, not %.9g", text, array->element,
			 (unsigned long long)i, (unsigned long long)array->count, array->v[i],
			 expected[i]);
	}
}

void expect(struct array *array, double tolerance, const char *name)
{
	double *before = array->v;
	const double *wanted = want(array);

	array->v = kernels_zeros(array->count * sizeof(*array->v));
	array_read(array);
	for (uint64_t i = 0; i < array->count; i++)
		if (!agrees(array->v[i], wanted[i], tolerance))
			differs("%s of element %d: %llu of %llu is %.9g, not %.9g", name,
				array->element, (unsigned long long)i,
				(unsigned long long)array->count, array->v[i], wanted[i]);
	free(array->v);
	array->v = before;
}

void expect_bytes(struct array *array, const void *bytes, const char *name)
{
	const uint8_t *wanted = bytes;
	uint8_t *got = kernels_zeros(array->count * array->size);

	array_read_bytes(array, got);
	for (uint64_t i = 0; i < array->count * array->size; i++)
		if (got[i] != wanted[i])
			differs("%s: byte %llu of %llu is %u, not %u", name, (unsigned long long)i,
				(unsigned long long)array->count, got[i], wanted[i]);
	free(got);
}

/* ---- a program ---- */

static void check_case(const struct kernel_case *k, enum cuda_element element, unsigned how)
{
	current.running = k;
	current.how = how;
	k->check(k, element);
	kernels_release();
	current.running = NULL;
}

static void check_row(const struct kernel_test *test, enum cuda_element element)
{
	for (unsigned i = 0; i < test->shape_count; i++) {
		const struct kernel_shape *shape = &test->shapes[i];
		struct kernel_case k = {
			.kernel = test->name,
			.check = test->check,
			.n = shape->n,
			.h = shape->h,
			.w = shape->w,
			.c = shape->c,
			.more = {shape->more[0], shape->more[1], shape->more[2]},
		};

		for (unsigned j = 0; j < test->how_count; j++) {
			k.how = (const char *)test->how + j * test->how_size;
			check_case(&k, element, j);
		}
	}
}

static void run_row(void **state)
{
	const struct kernel_test *test = *state;

	if (test->once) {
		kernels_vary(0);
		test->once();
		kernels_release();
		return;
	}
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++)
		for (int element = 0; element < ELEMENTS; element++) {
			kernels_vary(variation);
			check_row(test, (enum cuda_element)element);
		}
}

struct timed_cases {
	const struct kernel_case *cases;
	unsigned count;
};

static void run_timed(void **state)
{
	const struct timed_cases *timed = *state;

	kernels_check(timed->cases, timed->count);
}

int kernels_main(int argc, char **argv, const struct kernel_test *tests, unsigned test_count,
		 const struct kernel_case *timed, unsigned timed_count)
{
	struct timed_cases cases = {timed, timed_count};
	struct CMUnitTest *rows;
	int r;

	if (argc > 1)
		return kernels_bench(argc, argv, timed, timed_count);
	rows = calloc(test_count + 1, sizeof(*rows));
	if (!rows)
		return 1;
	for (unsigned i = 0; i < test_count; i++)
		rows[i] = (struct CMUnitTest){.name = tests[i].name,
					      .test_func = run_row,
					      .initial_state = (void *)(uintptr_t)&tests[i]};
	rows[test_count] = (struct CMUnitTest){
		.name = "timed cases", .test_func = run_timed, .initial_state = &cases};
	r = _cmocka_run_group_tests(argv[0], rows, test_count + 1, kernels_test_open,
				    kernels_test_close);
	free(rows);
	return r;
}
