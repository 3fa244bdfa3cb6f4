/*
 * One block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1,
 * 2, 3", SC 2011) for code that cannot call random.h: loops that the compiler should vectorise, and
 * GPU code. For C and CUDA C.
 */
#ifndef FORMAT_BASE_PHILOX_H
#define FORMAT_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_INLINE static __device__ __forceinline__
#else
#define PHILOX_INLINE static inline __attribute__((always_inline))
#endif

struct philox_block {
	uint32_t a, b, c, d;
};

/* Constants from table 2 of the paper: two multipliers and the two key increments. */
PHILOX_INLINE struct philox_block philox(uint32_t key0, uint32_t key1, struct philox_block counter)
{
	for (int round = 0; round < 10; round++) {
		uint64_t product0 = (uint64_t)0xD2511F53 * counter.a;
		uint64_t product1 = (uint64_t)0xCD9E8D57 * counter.c;

		counter.a = (uint32_t)(product1 >> 32) ^ counter.b ^ key0;
		counter.b = (uint32_t)product1;
		counter.c = (uint32_t)(product0 >> 32) ^ counter.d ^ key1;
		counter.d = (uint32_t)product0;
		key0 += 0x9E3779B9;
		key1 += 0xBB67AE85;
	}
	return counter;
}

#endif
