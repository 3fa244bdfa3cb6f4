#include "tests/kernels/cuda/cuda_kernels_bench.h"

#ifndef KERNELS_ON_DEVICE
#include "tests/gpu/emulation/launch.h"
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256
#define GUARD       0xa5

struct kernel_device kernels_device;
bool kernels_timing;

static int open_device(void **state)
{
	struct gpu_properties properties;

	if (gpu_select(0, &properties) < 0) {
		print_message("%s\n", gpu_error());
		exit(77);
	}
	kernels_device.multiprocessors = properties.multiprocessors;
	return gpu_stream_new(&kernels_device.stream);
}

static int close_device(void **state)
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

bool queued(int r)
{
	assert_int_equal(r, 0);
	return kernels_timing;
}

/* ---- elements ---- */

static int significant_bits(enum cuda_element element)
{
	return element == CUDA_F32 ? 24 : element == CUDA_F16 ? 11 : 8;
}

double element_round(double value, enum cuda_element element)
{
	int min = element == CUDA_F16 ? -14 : -126, exponent;
	double largest = element == CUDA_F16   ? 65504
			 : element == CUDA_F32 ? 0x1.fffffep127
					       : 0x1.fep127;

	if (!isfinite(value) || value == 0)
		return value;
	frexp(value, &exponent);
	exponent = exponent - 1 < min ? min : exponent - 1;
	double unit = ldexp(1, exponent - significant_bits(element) + 1);
	value = nearbyint(value / unit) * unit;
	return fabs(value) > largest ? copysign(INFINITY, value) : value;
}

uint32_t element_encode(double value, enum cuda_element element)
{
	double rounded = element_round(value, element);
	float f = (float)rounded;
	uint32_t bits;
	int exponent;

	memcpy(&bits, &f, sizeof(bits));
	if (element == CUDA_F32)
		return bits;
	if (element == CUDA_BF16)
		return bits >> 16;
	uint32_t sign = bits >> 16 & 0x8000;
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

/* Arrays and host memory of the running test. */
static struct {
	struct array *arrays;
	double *doubles[16];
	unsigned doubles_count;
	uint64_t seed;
} made;

static struct array *new_array(uint64_t count, uint32_t size)
{
	struct array *array = calloc(1, sizeof(*array));
	void *memory;

	assert_non_null(array);
	array->count = count;
	array->size = size;
	array->next = made.arrays;
	made.arrays = array;
	if (kernels_timing)
		return array;
	assert_int_equal(gpu_allocate(2 * GUARD_BYTES + count * size, &memory), 0);
	array->memory = memory;
	array->data = array->memory + GUARD_BYTES;
	assert_int_equal(
		gpu_fill(memory, GUARD, 2 * GUARD_BYTES + count * size, kernels_device.stream), 0);
	assert_int_equal(gpu_fill(array->data, 0xff, count * size, kernels_device.stream), 0);
	return array;
}

struct array *new_blank(uint64_t count, enum cuda_element element)
{
	struct array *array = new_array(count, cuda_element_size(element));

	array->element = element;
	array->v = kernels_zeros(count * sizeof(*array->v));
	for (uint64_t i = 0; array->v && i < count; i++)
		array->v[i] = NAN;
	return array;
}

struct array *new_uniform(uint64_t count, enum cuda_element element, double low, double high)
{
	struct array *array = new_blank(count, element);
	uint64_t seed = ++made.seed;

	for (uint64_t i = 0; array->v && i < count; i++)
		array->v[i] = element_round(low + (high - low) * kernels_uniform(seed, i), element);
	array_write(array);
	return array;
}

struct array *new_coarse(uint64_t count, enum cuda_element element)
{
	struct array *array = new_blank(count, element);
	uint64_t seed = ++made.seed;

	for (uint64_t i = 0; array->v && i < count; i++)
		array->v[i] = round(kernels_uniform(seed, i) * 32 - 16) / 8;
	array_write(array);
	return array;
}

struct array *new_bytes(const void *bytes, uint64_t count)
{
	struct array *array = new_array(count, 1);

	if (bytes && kernels_timing) {
		array->data = bench_keep(bytes, count);
	} else if (bytes) {
		assert_int_equal(gpu_copy_in(array->data, bytes, count, kernels_device.stream), 0);
		assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	}
	return array;
}

double *new_doubles(uint64_t count)
{
	assert_true(made.doubles_count < COUNT_OF(made.doubles));
	return made.doubles[made.doubles_count++] = kernels_zeros(count * sizeof(double));
}

void kernels_release(void)
{
	/* queued work may still use the memory */
	if (made.arrays && !kernels_timing)
		assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
	while (made.arrays) {
		struct array *array = made.arrays;

		made.arrays = array->next;
		gpu_free(array->memory);
		free(array->v);
		free(array->want);
		free(array);
	}
	while (made.doubles_count)
		free(made.doubles[--made.doubles_count]);
	made.seed = 0;
}

void array_write(struct array *array)
{
	if (kernels_timing)
		return;
	char *bytes = kernels_zeros(array->count * array->size);
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

/* ---- comparing ---- */

double *want(struct array *array)
{
	if (!array->want)
		array->want = kernels_zeros(array->count * sizeof(*array->want));
	return array->want;
}

static bool agrees(double got, double expected, double tolerance)
{
	if (isnan(expected) || isinf(expected))
		return isnan(expected) ? isnan(got) : got == expected;
	return fabs(got - expected) <= tolerance * (1 + fabs(expected));
}

void expect(struct array *array, double tolerance, const char *name)
{
	double *before = array->v;
	const double *wanted = want(array);

	array->v = kernels_zeros(array->count * sizeof(*array->v));
	array_read(array);
	for (uint64_t i = 0; i < array->count; i++)
		if (!agrees(array->v[i], wanted[i], tolerance))
			kernels_fail("%s[%llu] of %llu, element %d, is %.9g, not %.9g", name,
				     (unsigned long long)i, (unsigned long long)array->count,
				     array->element, array->v[i], wanted[i]);
	free(array->v);
	array->v = before;
}

void expect_bytes(struct array *array, const void *bytes, const char *name)
{
	const uint8_t *wanted = bytes;
	uint64_t count = array->count * array->size;
	uint8_t *got = kernels_zeros(count);

	array_read_bytes(array, got);
	for (uint64_t i = 0; i < count; i++)
		if (got[i] != wanted[i])
			kernels_fail("%s: byte %llu of %llu is %u, not %u", name,
				     (unsigned long long)i, (unsigned long long)count, got[i],
				     wanted[i]);
	free(got);
}

/* ---- implementation of struct kernel_kind ---- */

static const char *const element_names[ELEMENTS] = {
	[CUDA_F32] = "f32", [CUDA_F16] = "f16", [CUDA_BF16] = "bf16"};

static void begin(const struct kernel_case *k, unsigned element)
{
	kernels_release();
}

static void shrink(struct kernel_case *k)
{
	enum { SAMPLES = 2, PART = 4 /* divides height and width */ };

	k->n = SAMPLES;
	k->h = (k->h + PART - 1) / PART;
	k->w = (k->w + PART - 1) / PART;
}

const struct kernel_kind cuda_kernels = {
	.variants = element_names,
	.variant_count = ELEMENTS,
	.rounds = KERNELS_VARIATIONS,
	.begin_round = kernels_vary,
	.begin = begin,
	.end = kernels_release,
	.shrink = shrink,
	.bench = kernels_bench,
	.setup = open_device,
	.teardown = close_device,
};
