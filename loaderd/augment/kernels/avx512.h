/*
 * What the AVX-512 kernels share. Their sources are compiled twice: with F, BW, DQ and VL only
 * (names end in avx512bw), and with VBMI and VNNI also (avx512). Included by files of those
 * libraries and by nothing else.
 */
#pragma once

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512VBMI__
#define AVX512(name) name##_avx512
#else
#define AVX512(name) name##_avx512bw
#endif

/* sum + the sum of the two products of each pair of words */
INLINE __m512i multiply_add(__m512i sum, __m512i a, __m512i b)
{
#ifdef __AVX512VNNI__
	return _mm512_dpwssd_epi32(sum, a, b);
#else
	return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}
