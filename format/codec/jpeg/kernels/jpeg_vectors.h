/*
 * Building blocks of the vector kernels, independent of the vector width. jpeg_kernels_avx2.c and
 * jpeg_kernels_avx512.c include this file before their own code and jpeg_kernels_simd.h. They
 * define the vector type (VECTOR, with LANES lanes), the intrinsic names (V and SI), the broadcast
 * of 128 bits to every lane (BROADCAST), and OWN_SHUFFLES if they have better shuffles.
 */
#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <immintrin.h>

static inline VECTOR load(const void *p)
{
	return SI(loadu)(p);
}

static inline void store(void *p, VECTOR bytes)
{
	SI(storeu)(p, bytes);
}

static inline VECTOR load_for_each_lane(const void *p)
{
	return BROADCAST(_mm_loadu_si128(p));
}

static inline VECTOR spread_bytes(char a, char b, char c, char d, char e, char f, char g, char h,
				  char i, char j, char k, char l, char m, char n, char o, char p)
{
	return BROADCAST(_mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}

static inline VECTOR spread_words(int a, int b, int c, int d)
{
	return BROADCAST(_mm_setr_epi32(a, b, c, d));
}

static inline VECTOR multiply_add(VECTOR sum, VECTOR a, VECTOR b)
{
#ifdef __AVX512VNNI__
	return V(dpwssd_epi32)(sum, a, b);
#else
	return V(add_epi32)(sum, V(madd_epi16)(a, b));
#endif
}

/*
 * Words of dequantised lines. xAB interleaves words of lines A and B; a lane holds four words of
 * each line.
 */
struct pairs {
	VECTOR x04, x26, x13, x57;
};

/*
 * Inputs of two outputs per line, as words. x13, x57: lines 1 and 3, and 5 and 7, interleaved, in
 * columns 1, 3, 5, 7. x0: line 0 in these columns, each followed by column 0. column: lines 1, 3,
 * 5, 7 of column 0, twice.
 */
struct odd_pairs {
	VECTOR x13, x57, x0, column;
};

/*
 * Column sums s[i] = 3 * near[i] + far[i] as words, for half as many samples as a vector has bytes:
 * starting at i = -1, 0 and 1, and three times the sums starting at i = 0 and 1.
 */
struct column_sums {
	VECTOR once[3], thrice[2];
};

#ifndef OWN_SHUFFLES
/* Packs the upper halves of the 32-bit words in each lane of low and high. */
static inline VECTOR high_words(VECTOR low, VECTOR high)
{
	return V(packs_epi32)(V(srai_epi32)(low, 16), V(srai_epi32)(high, 16));
}

/* Shifts the 32-bit words in each lane of low and high right by 18 and packs them to 16 bits. */
static inline VECTOR shift_18(VECTOR low, VECTOR high)
{
	return V(packs_epi32)(V(srai_epi32)(low, 18), V(srai_epi32)(high, 18));
}

/*
 * Transposes four columns of four samples per vector, one block per lane, to four lines of eight
 * samples in the order of store_lines().
 */
static inline void columns_to_lines(const VECTOR columns[2], VECTOR lines[2])
{
	const VECTOR order = spread_bytes(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	VECTOR a = V(shuffle_epi8)(columns[0], order), b = V(shuffle_epi8)(columns[1], order);

	lines[0] = V(unpacklo_epi32)(a, b);
	lines[1] = V(unpackhi_epi32)(a, b);
}
#endif
