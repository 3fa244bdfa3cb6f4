/*
 * Makes code that differs only in vector width common to the AVX2 and AVX-512 kernels: V(name) is
 * the intrinsic of the current width. AVX-512 sources are compiled twice: with F, BW, DQ and VL
 * only (names end in avx512bw), and with VBMI and VNNI too (avx512). Only kernel sources include
 * this header.
 */
#pragma once

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
#define VECTOR                   __m512i
#define V(name)                  _mm512_##name
#define LOAD(from)               _mm512_load_si512(from)
#define LOAD_ANY(from)           _mm512_loadu_si512(from)
#define LOAD_HALF(from)          _mm256_loadu_si256((const void *)(from))
#define STORE(to, vector)        _mm512_store_si512(to, vector)
#define STORE_ANY(to, vector)    _mm512_storeu_si512(to, vector)
#define STREAM(to, vector)       _mm512_stream_si512((void *)(to), vector)
#define PERMUTE(vector, numbers) _mm512_permutexvar_epi32(numbers, vector)
#define LANE_OF(vector, i)       _mm512_extracti32x4_epi32(vector, i)
#define LANES(X)                 X(0) X(1) X(2) X(3)
#else
#define VECTOR                   __m256i
#define V(name)                  _mm256_##name
#define LOAD(from)               _mm256_load_si256((const __m256i *)(from))
#define LOAD_ANY(from)           _mm256_loadu_si256((const void *)(from))
#define LOAD_HALF(from)          _mm_loadu_si128((const void *)(from))
#define STORE(to, vector)        _mm256_store_si256((__m256i *)(to), vector)
#define STORE_ANY(to, vector)    _mm256_storeu_si256((__m256i *)(to), vector)
#define STREAM(to, vector)       _mm256_stream_si256((__m256i *)(to), vector)
#define PERMUTE(vector, numbers) _mm256_permutevar8x32_epi32(vector, numbers)
#define LANE_OF(vector, i)       _mm256_extracti128_si256(vector, i)
#define LANES(X)                 X(0) X(1)
#endif

#ifdef __AVX512VBMI__
#define OF_SET(name) name##_avx512
#elif defined(__AVX512F__)
#define OF_SET(name) name##_avx512bw
#else
#define OF_SET(name) name##_avx2
#endif

/*
 * Multiplies pairs of 16-bit words, adds the two products of each 32-bit lane, and returns sum plus
 * the result.
 */
INLINE VECTOR multiply_add(VECTOR sum, VECTOR a, VECTOR b)
{
#ifdef __AVX512VNNI__
	return _mm512_dpwssd_epi32(sum, a, b);
#else
	return V(add_epi32)(sum, V(madd_epi16)(a, b));
#endif
}
