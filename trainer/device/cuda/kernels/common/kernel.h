/*
 * The subset of CUDA C++ that the kernels use: templates, but no library. nvcc compiles a .cu file
 * for the device. A C++ compiler compiles the same file for the host, where
 * tests/gpu/emulation/launch.c runs its grids under the sanitizers; that build includes
 * tests/gpu/emulation/kernel.h first, which defines CUDA's keywords and what this header defines
 * for nvcc only.
 *
 * A kernel takes one structure by value, as a __grid_constant__. KERNEL(kernel) initializes the
 * struct gpu_kernel for its launch. Blocks have KERNEL_THREADS threads, grids have two dimensions.
 * Launch bounds limit the registers so that at least the given number of blocks fit on a
 * multiprocessor.
 *
 * The emulation fills SHARED arrays with NaNs before every block. It ends the program and prints
 * the location if not all threads of a block reach the same barrier, not all lanes of a warp reach
 * the same shuffle, or a vector access is misaligned.
 *
 * Indices of register arrays must be compile-time constants after unrolling.
 */
#ifndef TRAINER_DEVICE_CUDA_KERNEL_H
#define TRAINER_DEVICE_CUDA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "trainer/device/cuda/conv.h"
#include "trainer/device/cuda/gpu.h"
#include "trainer/device/cuda/kernels/common/divide.h"
}

/*
 * Unrolled loop over i = 0 .. count - 1, so that i is a compile-time constant as register arrays
 * require. EACH_IF skips values for which the condition is false.
 */
#define EACH(i, count)                                                                             \
	UNROLL                                                                                     \
	for (uint32_t i = 0; i < (count); i++)
#define EACH_IF(i, count, condition)                                                               \
	EACH(i, count)                                                                             \
		if (condition)

#define KERNEL_THREADS 256
#define KERNEL_WARP    32
#define KERNEL_LANES   0xffffffff /* shuffle mask with all lanes of the warp */

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* clang-format off */
#define KERNEL(...) {#__VA_ARGS__, (const void *)(__VA_ARGS__)}
/* clang-format on */
#define DEVICE                    static __device__ __forceinline__
#define SHARED(type, name, count) __shared__ type name[count]
#define UNROLL                    _Pragma("unroll")

DEVICE void kernel_atomic_min(uint64_t *to, uint64_t value)
{
	atomicMin((unsigned long long *)to, (unsigned long long)value);
}

struct __align__(16) kernel_pack
{
	uint32_t word[4];
};

struct __align__(8) kernel_half_pack
{
	uint32_t word[2];
};

DEVICE struct kernel_pack kernel_load16(const void *from)
{
	return *(const struct kernel_pack *)from;
}

DEVICE void kernel_store16(void *to, struct kernel_pack pack)
{
	*(struct kernel_pack *)to = pack;
}

DEVICE struct kernel_half_pack kernel_load8(const void *from)
{
	return *(const struct kernel_half_pack *)from;
}

DEVICE void kernel_store8(void *to, struct kernel_half_pack pack)
{
	*(struct kernel_half_pack *)to = pack;
}

DEVICE uint32_t kernel_load4(const void *from)
{
	return *(const uint32_t *)from;
}

DEVICE void kernel_store4(void *to, uint32_t value)
{
	*(uint32_t *)to = value;
}

DEVICE float kernel_from_bits(uint32_t bits)
{
	return __uint_as_float(bits);
}

DEVICE uint32_t kernel_to_bits(float value)
{
	return __float_as_uint(value);
}

DEVICE float kernel_from_f16(uint16_t bits)
{
	return __half2float(__ushort_as_half(bits));
}

DEVICE uint16_t kernel_to_f16(float value)
{
	return __half_as_ushort(__float2half_rn(value));
}

DEVICE uint16_t kernel_to_bf16(float value)
{
	return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/*
 * 1 / value and 2^value, accurate to two units in the last place, in one instruction each.
 * Denormals are flushed to 0.
 */
DEVICE float kernel_reciprocal(float value)
{
	float result;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
	return result;
}

DEVICE float kernel_exp2(float value)
{
	float result;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
	return result;
}

/* Converts two values in one instruction; the first goes into the lower half. */
DEVICE uint32_t kernel_to_f16x2(float first, float second)
{
	__half2 pair = __floats2half2_rn(first, second);

	return *(const uint32_t *)&pair;
}

DEVICE uint32_t kernel_to_bf16x2(float first, float second)
{
	__nv_bfloat162 pair = __floats2bfloat162_rn(first, second);

	return *(const uint32_t *)&pair;
}

/*
 * Operations on one 32-bit float, or on the two 16-bit floats of a word (f16x2, bf16x2).
 * - larger: maximum; NaN if either is NaN
 * - greater: all bits of a float are set if a > b, else 0; false for NaN
 * - equal: as greater, for two 16-bit integers below 1024, which are compared as denormal halves
 */
DEVICE uint32_t kernel_larger(uint32_t a, uint32_t b)
{
	float larger;

	asm("max.NaN.f32 %0, %1, %2;"
	    : "=f"(larger)
	    : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
	return __float_as_uint(larger);
}

DEVICE uint32_t kernel_greater(uint32_t a, uint32_t b)
{
	return __uint_as_float(a) > __uint_as_float(b) ? 0xffffffff : 0;
}

DEVICE __half2 kernel_f16x2(uint32_t pair)
{
	return *(const __half2 *)&pair;
}

DEVICE uint32_t kernel_larger_f16x2(uint32_t a, uint32_t b)
{
	__half2 larger = __hmax2_nan(kernel_f16x2(a), kernel_f16x2(b));

	return *(const uint32_t *)&larger;
}

DEVICE uint32_t kernel_greater_f16x2(uint32_t a, uint32_t b)
{
	return __hgt2_mask(kernel_f16x2(a), kernel_f16x2(b));
}

DEVICE uint32_t kernel_equal_u16x2(uint32_t a, uint32_t b)
{
	return __heq2_mask(kernel_f16x2(a), kernel_f16x2(b));
}

DEVICE __nv_bfloat162 kernel_bf16x2(uint32_t pair)
{
	return *(const __nv_bfloat162 *)&pair;
}

DEVICE uint32_t kernel_larger_bf16x2(uint32_t a, uint32_t b)
{
	__nv_bfloat162 larger = __hmax2_nan(kernel_bf16x2(a), kernel_bf16x2(b));

	return *(const uint32_t *)&larger;
}

DEVICE uint32_t kernel_greater_bf16x2(uint32_t a, uint32_t b)
{
	return __hgt2_mask(kernel_bf16x2(a), kernel_bf16x2(b));
}

/*
 * Load four 8 x 8 matrices of 16-bit elements from shared memory. A row is 16 aligned bytes. Lanes
 * 8 i .. 8 i + 7 pass the addresses of the rows of matrix i. From each matrix a lane receives two
 * adjacent elements of row lane / 4; with kernel_load_turned(), which transposes, two vertically
 * adjacent elements of column lane / 4.
 */
DEVICE void kernel_load_matrices(uint32_t to[4], const struct kernel_pack *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

DEVICE void kernel_load_turned(uint32_t to[4], const struct kernel_pack *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

/*
 * sum [16][8] += left [16][16] right [16][8], over a warp. Fragments of a lane, in terms of 8 x 8
 * matrices:
 * - left: as kernel_load_matrices() loads those at (row, column) (0, 0), (8, 0), (0, 8), (8, 8)
 * - right: as kernel_load_turned() loads those at rows 0 and 8
 * - sum: two adjacent elements of row lane / 4, then two of row lane / 4 + 8
 */
DEVICE void kernel_multiply(float sum[4], const uint32_t left[4], const uint32_t right[2],
			    uint32_t element)
{
	if (element == CUDA_F16)
		asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		    : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
		    : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
		      "r"(right[1]));
	else
		asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		    : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
		    : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
		      "r"(right[1]));
}

#endif

DEVICE float kernel_from_bf16(uint16_t bits)
{
	return kernel_from_bits((uint32_t)bits << 16);
}

/* Loads one element of any type as fp32. */
DEVICE float kernel_load(const void *from, uint64_t at, uint32_t element)
{
	if (element == CUDA_F32)
		return ((const float *)from)[at];
	if (element == CUDA_F16)
		return kernel_from_f16(((const uint16_t *)from)[at]);
	return kernel_from_bf16(((const uint16_t *)from)[at]);
}

/* Converts the lower 16 bits of a word to fp32. */
DEVICE float kernel_low(uint32_t word, uint32_t element)
{
	return element == CUDA_F16 ? kernel_from_f16((uint16_t)word)
				   : kernel_from_bf16((uint16_t)word);
}

DEVICE void kernel_store(void *to, uint64_t at, uint32_t element, float value)
{
	if (element == CUDA_F32)
		((float *)to)[at] = value;
	else
		((uint16_t *)to)[at] =
			element == CUDA_F16 ? kernel_to_f16(value) : kernel_to_bf16(value);
}

/* Quotient n / divisor, for n below 2^31. */
DEVICE uint32_t kernel_divide(uint32_t n, struct divider by)
{
	return (uint32_t)((uint64_t)n * by.factor >> by.shift);
}

DEVICE int kernel_finite(float value)
{
	return (kernel_to_bits(value) & 0x7f800000) != 0x7f800000;
}

#endif
