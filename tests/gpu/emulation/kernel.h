/*
 * CUDA C++ for the host, as far as kernels use it. Defines CUDA's words, and what the nvcc branch
 * of trainer/device/cuda/kernels/common/kernel.h defines for a device, as calls to the emulation
 * (launch.h) and as arithmetic that is bit-exact with a GPU. Include it before that header.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "tests/gpu/emulation/launch.h"
}

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
/* clang-format off */
#define KERNEL(...) {#__VA_ARGS__, (const void *)emulation_kernel<__VA_ARGS__>::run}
/* clang-format on */
#define kernel_load_matrices(to, row) emulation_load_matrices(to, row, false, __FILE__, __LINE__)
#define kernel_load_turned(to, row)   emulation_load_matrices(to, row, true, __FILE__, __LINE__)
#define kernel_multiply(sum, left, right, element)                                                 \
	emulation_multiply(sum, left, right, (element) == CUDA_F16, __FILE__, __LINE__)
#define DEVICE static inline __attribute__((unused))
#define SHARED(type, name, count)                                                                  \
	static type name[count] __attribute__((aligned(16)));                                      \
	emulation_shared(name, sizeof(name))
#define UNROLL
#define __syncthreads()                     emulation_barrier(__FILE__, __LINE__)
#define __shfl_xor_sync(lanes, value, mask) emulation_shuffle(value, mask, __FILE__, __LINE__)

/* Calls a kernel with the arguments of a launch. */
template <auto kernel> struct emulation_kernel;
template <typename arguments, void (*kernel)(arguments)> struct emulation_kernel<kernel> {
	static void run(const void *copy)
	{
		kernel(*(const arguments *)copy);
	}
};

DEVICE float emulation_shuffle(float value, uint32_t mask, const char *file, int line)
{
	return emulation_shuffle_f32(value, mask, file, line);
}

DEVICE double emulation_shuffle(double value, uint32_t mask, const char *file, int line)
{
	return emulation_shuffle_f64(value, mask, file, line);
}

DEVICE uint32_t emulation_shuffle(uint32_t value, uint32_t mask, const char *file, int line)
{
	return emulation_shuffle_u32(value, mask, file, line);
}

DEVICE void kernel_atomic_min(uint64_t *to, uint64_t value)
{
	*to = value < *to ? value : *to;
}

struct kernel_pack {
	uint32_t word[4];
};

struct kernel_half_pack {
	uint32_t word[2];
};

DEVICE struct kernel_pack kernel_load16(const void *from)
{
	struct kernel_pack pack;

	emulation_aligned(from, sizeof(pack));
	memcpy(&pack, from, sizeof(pack));
	return pack;
}

DEVICE void kernel_store16(void *to, struct kernel_pack pack)
{
	emulation_aligned(to, sizeof(pack));
	memcpy(to, &pack, sizeof(pack));
}

DEVICE struct kernel_half_pack kernel_load8(const void *from)
{
	struct kernel_half_pack pack;

	emulation_aligned(from, sizeof(pack));
	memcpy(&pack, from, sizeof(pack));
	return pack;
}

DEVICE void kernel_store8(void *to, struct kernel_half_pack pack)
{
	emulation_aligned(to, sizeof(pack));
	memcpy(to, &pack, sizeof(pack));
}

DEVICE uint32_t kernel_load4(const void *from)
{
	uint32_t value;

	emulation_aligned(from, sizeof(value));
	memcpy(&value, from, sizeof(value));
	return value;
}

DEVICE void kernel_store4(void *to, uint32_t value)
{
	emulation_aligned(to, sizeof(value));
	memcpy(to, &value, sizeof(value));
}

DEVICE float kernel_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

DEVICE uint32_t kernel_to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Rebias the exponent by a multiplication, which also handles denormals. */
DEVICE float kernel_from_f16(uint16_t half)
{
	uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;

	if ((half & 0x7c00) == 0x7c00)
		return kernel_from_bits(bits | 0x7f800000 | sign);
	return kernel_from_bits(kernel_to_bits(kernel_from_bits(bits) * 0x1p112f) | sign);
}

/* Rounds to nearest even. NaN stays NaN; magnitudes of 65520 and above become infinite. */
DEVICE uint16_t kernel_to_f16(float value)
{
	uint32_t bits = kernel_to_bits(value), sign = bits >> 16 & 0x8000;
	uint32_t magnitude = bits & 0x7fffffff, half;

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00);
	/*
	 * Below the smallest normal half, adding 0.5 aligns the half's last place with the float's,
	 * so the addition does the rounding.
	 */
	if (magnitude < 0x38800000)
		half = kernel_to_bits(kernel_from_bits(magnitude) + 0.5f) - 0x3f000000;
	else
		half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
	return (uint16_t)(sign | half);
}

/* Rounds to nearest even. NaN stays NaN. */
DEVICE uint16_t kernel_to_bf16(float value)
{
	uint32_t bits = kernel_to_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

DEVICE float kernel_reciprocal(float value)
{
	return 1 / value;
}

DEVICE float kernel_exp2(float value)
{
	return exp2f(value);
}

DEVICE uint32_t kernel_to_f16x2(float first, float second)
{
	return kernel_to_f16(first) | (uint32_t)kernel_to_f16(second) << 16;
}

DEVICE uint32_t kernel_to_bf16x2(float first, float second)
{
	return kernel_to_bf16(first) | (uint32_t)kernel_to_bf16(second) << 16;
}

DEVICE uint32_t kernel_greater(uint32_t a, uint32_t b)
{
	return kernel_from_bits(a) > kernel_from_bits(b) ? 0xffffffff : 0;
}

DEVICE uint32_t kernel_larger(uint32_t a, uint32_t b)
{
	float x = kernel_from_bits(a), y = kernel_from_bits(b);

	return x > y || x != x ? a : b;
}

DEVICE uint32_t kernel_greater_f16x2(uint32_t a, uint32_t b)
{
	bool low = kernel_from_f16((uint16_t)a) > kernel_from_f16((uint16_t)b);
	bool high = kernel_from_f16((uint16_t)(a >> 16)) > kernel_from_f16((uint16_t)(b >> 16));

	return (low ? 0xffff : 0) | (high ? 0xffff0000 : 0);
}

DEVICE uint32_t kernel_larger_f16x2(uint32_t a, uint32_t b)
{
	uint32_t low = kernel_larger(kernel_to_bits(kernel_from_f16((uint16_t)a)),
				     kernel_to_bits(kernel_from_f16((uint16_t)b)));
	uint32_t high = kernel_larger(kernel_to_bits(kernel_from_f16((uint16_t)(a >> 16))),
				      kernel_to_bits(kernel_from_f16((uint16_t)(b >> 16))));

	return kernel_to_f16x2(kernel_from_bits(low), kernel_from_bits(high));
}

DEVICE uint32_t kernel_equal_u16x2(uint32_t a, uint32_t b)
{
	uint32_t differ = a ^ b;

	return (differ & 0xffff ? 0 : 0xffff) | (differ >> 16 ? 0 : 0xffff0000);
}

DEVICE uint32_t kernel_greater_bf16x2(uint32_t a, uint32_t b)
{
	return (kernel_greater(a << 16, b << 16) & 0xffff) |
	       (kernel_greater(a & 0xffff0000, b & 0xffff0000) & 0xffff0000);
}

DEVICE uint32_t kernel_larger_bf16x2(uint32_t a, uint32_t b)
{
	return kernel_larger(a << 16, b << 16) >> 16 |
	       (kernel_larger(a & 0xffff0000, b & 0xffff0000) & 0xffff0000);
}

/* ---- warp-wide operations ---- */

DEVICE void emulation_load_matrices(uint32_t to[4], const void *row, bool turned, const char *file,
				    int line)
{
	struct emulation_fragment own = {.row = row};
	uint32_t lane = threadIdx.x % 32, y = lane / 4, x = lane % 4 * 2;

	emulation_aligned(row, 16);
	const struct emulation_fragment *all = emulation_exchange(&own, file, line);
	for (uint32_t i = 0; i < 4; i++) {
		const struct emulation_fragment *rows = all + (size_t)8 * i;
		uint16_t pair[2];

		for (uint32_t j = 0; j < 2; j++)
			pair[j] = turned ? ((const uint16_t *)rows[x + j].row)[y]
					 : ((const uint16_t *)rows[y].row)[x + j];
		to[i] = pair[0] | (uint32_t)pair[1] << 16;
	}
}

DEVICE float emulation_element(uint32_t word, uint32_t odd, bool f16)
{
	uint16_t bits = (uint16_t)(word >> 16 * odd);

	return f16 ? kernel_from_f16(bits) : kernel_from_bits((uint32_t)bits << 16);
}

/* Fragment layout: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". */
DEVICE void emulation_multiply(float sum[4], const uint32_t left[4], const uint32_t right[2],
			       bool f16, const char *file, int line)
{
	struct emulation_fragment own = {
		.word = {left[0], left[1], left[2], left[3], right[0], right[1]}};
	const struct emulation_fragment *all = emulation_exchange(&own, file, line);
	uint32_t lane = threadIdx.x % 32;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t row = lane / 4, column = lane % 4 * 2 + i % 2;

		for (uint32_t k = 0; k < 16; k++) {
			uint32_t pair = k % 8 / 2, high = k / 8;

			sum[i] += emulation_element(all[row * 4 + pair].word[i / 2 + 2 * high],
						    k % 2, f16) *
				  emulation_element(all[column * 4 + pair].word[4 + high], k % 2,
						    f16);
		}
	}
}
