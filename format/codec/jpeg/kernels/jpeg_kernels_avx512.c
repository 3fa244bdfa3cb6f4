/* Compiled twice: with AVX-512 F, BW, DQ and VL only, and with VBMI, VBMI2 and VNNI as well. */
#define LANES         4
#define VECTOR        __m512i
#define V(operation)  _mm512_##operation
#define SI(operation) _mm512_##operation##_si512
#define BROADCAST     _mm512_broadcast_i32x4
#define ZIGZAG        true
#define QUANT_ORDER   paired_order
#ifdef __AVX512VBMI__
#define NAME    "avx512"
#define KERNELS jpeg_kernels_avx512
#define OWN_SHUFFLES
#else
#define NAME    "avx512bw"
#define KERNELS jpeg_kernels_avx512bw
#endif

#include "format/codec/jpeg/kernels/jpeg_vectors.h"

/* Returns a mask with a bit for each byte that is FF. */
static inline uint64_t find_ff(__m512i bytes)
{
	return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-1));
}

#ifdef OWN_SHUFFLES
static size_t unstuff(const uint8_t *data, size_t size, uint8_t *output, size_t *ret_read)
{
	size_t at = 0, done = 0, read;
	uint64_t behind_ff = 0; /* 1 if the next byte is a stuffed zero */

	while (size - at > sizeof(__m512i)) {
		__m512i bytes = _mm512_loadu_si512(data + at);
		uint64_t ff = find_ff(bytes);
		uint64_t before_zero = _mm512_testn_epi8_mask(_mm512_loadu_si512(data + at + 1),
							      _mm512_set1_epi8(-1));
		uint64_t end = ff & ~before_zero, keep = ~(ff << 1 | behind_ff);

		if (__builtin_expect(end != 0, 0))
			keep &= (end & -end) - 1;
		_mm512_storeu_si512(output + done, _mm512_maskz_compress_epi8(keep, bytes));
		done += (size_t)__builtin_popcountll(keep);
		if (__builtin_expect(end != 0, 0)) {
			*ret_read = at + (size_t)__builtin_ctzll(end);
			return done;
		}
		behind_ff = ff >> 63;
		at += sizeof(__m512i);
	}
	at += behind_ff;
	done += jpeg_kernels_c.unstuff(data + at, size - at, output + done, &read);
	*ret_read = at + read;
	return done;
}
#endif

static inline void join_columns(__m512i x, __m512i y, __m512i out[2])
{
	/*
	 * Indexes of words: columns 0 to 3 and 4 to 7 of a block's line are eight words apart, and
	 * the words of y start at 32.
	 */
#define PAIR(a, b)  (a), (b), 32 + (a), 32 + (b)
#define EVEN(first) PAIR((first), (first) + 8), PAIR((first) + 2, (first) + 10)
#define ODD(first)  PAIR((first) + 1, (first) + 3), PAIR((first) + 9, (first) + 11)
	static const uint16_t index[2][32] = {{EVEN(0), EVEN(16), EVEN(4), EVEN(20)},
					      {ODD(0), ODD(16), ODD(4), ODD(20)}};
#undef PAIR
#undef EVEN
#undef ODD

	out[0] = _mm512_permutex2var_epi16(x, load(index[0]), y);
	out[1] = _mm512_permutex2var_epi16(x, load(index[1]), y);
}

/* Stores 4 x 4 blocks. Each lane holds a block, four lines of four samples. */
static inline void store_fours(__m512i lines, uint8_t *output, size_t stride)
{
	const __m512i order =
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

	lines = _mm512_permutexvar_epi32(order, lines);
	_mm_storeu_si128((__m128i *)output, _mm512_castsi512_si128(lines));
	_mm_storeu_si128((__m128i *)(output + stride), _mm512_extracti32x4_epi32(lines, 1));
	_mm_storeu_si128((__m128i *)(output + 2 * stride), _mm512_extracti32x4_epi32(lines, 2));
	_mm_storeu_si128((__m128i *)(output + 3 * stride), _mm512_extracti32x4_epi32(lines, 3));
}

/* Stores 2 x 2 blocks. Each lane holds a block, two lines of two samples less 128, 32 bits each. */
static inline void store_twos(__m512i samples, uint8_t *output, size_t stride)
{
	const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
	__m128i bytes = _mm_xor_si128(_mm512_cvtsepi32_epi8(samples), _mm_set1_epi8((char)0x80));

	bytes = _mm_shuffle_epi8(bytes, order);
	_mm_storel_epi64((__m128i *)output, bytes);
	_mm_storel_epi64((__m128i *)(output + stride), _mm_unpackhi_epi64(bytes, bytes));
}

/*
 * Stores two lines of four blocks. After lane-wise shuffles each lane holds one half of both lines.
 */
static inline void store_lines(__m512i lines, uint8_t *output, size_t stride)
{
#ifndef OWN_SHUFFLES
	lines = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), lines);
#endif
	_mm256_storeu_si256((__m256i *)output, _mm512_castsi512_si256(lines));
	_mm256_storeu_si256((__m256i *)(output + stride), _mm512_extracti64x4_epi64(lines, 1));
}

#ifdef OWN_SHUFFLES
/*
 * For byte n of 64 interleaved pixels: first permutation, its index in red or, from 64 on, in
 * green; second permutation, the same with blue inserted.
 */
#define PIXEL(p)         ((p) / 16 * 16 + (p) % 2 * 8 + (p) % 16 / 2)
#define FIRST(n)         PIXEL((n) / 3) + ((n) % 3 == 1 ? 64 : 0)
#define SECOND(n)        (n) % 3 == 2 ? 64 + PIXEL((n) / 3) : (n) % 64
#define FOUR(byte, n)    byte(n), byte(n + 1), byte(n + 2), byte(n + 3)
#define SIXTEEN(byte, n) FOUR(byte, n), FOUR(byte, n + 4), FOUR(byte, n + 8), FOUR(byte, n + 12)
#define ALL(byte, n)                                                                               \
	{                                                                                          \
		SIXTEEN(byte, n), SIXTEEN(byte, n + 16), SIXTEEN(byte, n + 32),                    \
			SIXTEEN(byte, n + 48)                                                      \
	}
static const uint8_t from_red_green[3][64] = {ALL(FIRST, 0), ALL(FIRST, 64), ALL(FIRST, 128)};
static const uint8_t from_blue[3][64] = {ALL(SECOND, 0), ALL(SECOND, 64), ALL(SECOND, 128)};
#undef PIXEL
#undef FIRST
#undef SECOND
#undef FOUR
#undef SIXTEEN
#undef ALL

static inline void interleave(__m512i red, __m512i green, __m512i blue, uint8_t *output)
{
	for (int i = 0; i < 3; i++) {
		__m512i mixed = _mm512_permutex2var_epi8(red, load(from_red_green[i]), green);

		store(output + 64 * i, _mm512_permutex2var_epi8(mixed, load(from_blue[i]), blue));
	}
}

static inline void interleave_grey(__m512i grey, uint8_t *output)
{
	interleave(grey, grey, grey, output);
}

/* Packs the upper halves of the 32-bit words in each lane of low and high. */
static inline __m512i high_words(__m512i low, __m512i high)
{
	static const uint16_t index[32] = {1,  3,  5,  7,  33, 35, 37, 39, 9,  11, 13,
					   15, 41, 43, 45, 47, 17, 19, 21, 23, 49, 51,
					   53, 55, 25, 27, 29, 31, 57, 59, 61, 63};

	return _mm512_permutex2var_epi16(low, load(index), high);
}

/* Shifts the 32-bit words in each lane of low and high right by 18 and packs them to 16 bits. */
static inline __m512i shift_18(__m512i low, __m512i high)
{
	return _mm512_srai_epi16(high_words(low, high), 2);
}

/*
 * Transposes four columns of four samples per vector, one block per lane, to four lines of eight
 * samples.
 */
static inline void columns_to_lines(const __m512i columns[2], __m512i lines[2])
{
#define COLUMN(line, block, x) (x) / 4 * 64 + (block)*16 + (x) % 4 * 4 + (line)
#define FOUR(line, block, x)                                                                       \
	COLUMN(line, block, x), COLUMN(line, block, x + 1), COLUMN(line, block, x + 2),            \
		COLUMN(line, block, x + 3)
#define LINE(line)                                                                                 \
	FOUR(line, 0, 0), FOUR(line, 0, 4), FOUR(line, 1, 0), FOUR(line, 1, 4), FOUR(line, 2, 0),  \
		FOUR(line, 2, 4), FOUR(line, 3, 0), FOUR(line, 3, 4)
	static const uint8_t index[2][64] = {{LINE(0), LINE(1)}, {LINE(2), LINE(3)}};
#undef COLUMN
#undef FOUR
#undef LINE

	lines[0] = _mm512_permutex2var_epi8(columns[0], load(index[0]), columns[1]);
	lines[1] = _mm512_permutex2var_epi8(columns[0], load(index[1]), columns[1]);
}
#else
/*
 * Without VBMI, shuffles are the bottleneck of rgb, and a 512-bit shuffle costs as much as a
 * 256-bit one. 64 pixels take 32 cycles, in which AVX2 converts 32 pixels, according to llvm-mca
 * for Skylake-SP. (On Zen 4, which has VBMI, this code would be a fifth slower than AVX2.)
 */
/* Stores the first lanes of the three vectors, then their second lanes, and so on. */
static inline void store_by_lane(const __m512i v[3], uint8_t *output)
{
	const __m512i two[3] = {_mm512_setr_epi64(0, 1, 8, 9, 0, 0, 2, 3),
				_mm512_setr_epi64(2, 3, 10, 11, 0, 0, 4, 5),
				_mm512_setr_epi64(4, 5, 14, 15, 0, 0, 6, 7)};
	const __m512i third[3] = {_mm512_setr_epi64(0, 1, 2, 3, 8, 9, 6, 7),
				  _mm512_setr_epi64(0, 1, 2, 3, 12, 13, 6, 7),
				  _mm512_setr_epi64(0, 1, 2, 3, 14, 15, 6, 7)};

#pragma GCC unroll 3
	for (int i = 0; i < 3; i++) {
		__m512i joined = _mm512_permutex2var_epi64(v[i], two[i], v[(i + 1) % 3]);

		store(output + 64 * i, _mm512_permutex2var_epi64(joined, third[i], v[(i + 2) % 3]));
	}
}

static inline __m512i load_words(const uint8_t *bytes)
{
	return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)bytes));
}
#endif

/*
 * Order of a block's words in struct pairs: lines 0 and 4 interleaved, then 2 and 6, 1 and 3, 5 and
 * 7. paired_order has natural-order indexes, paired_zigzag zigzag indexes.
 */
static const uint8_t paired_order[64] = {
	0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 16, 48, 17, 49, 18, 50,
	19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29,
	14, 30, 15, 31, 40, 56, 41, 57, 42, 58, 43, 59, 44, 60, 45, 61, 46, 62, 47, 63,
};
static const uint16_t paired_zigzag[64] = {
	0,  10, 1,  19, 5,  23, 6,  32, 14, 39, 15, 45, 27, 52, 28, 54, 3,  21, 8,  34, 12, 37,
	17, 47, 25, 50, 30, 56, 41, 59, 43, 61, 2,  9,  4,  11, 7,  18, 13, 24, 16, 31, 26, 40,
	29, 44, 42, 53, 20, 35, 22, 36, 33, 48, 38, 49, 46, 57, 51, 58, 55, 62, 60, 63,
};
/*
 * Zigzag indexes for one lane of each member of odd_pairs, and the indexes of its factors in
 * paired_order.
 */
static const uint16_t odd_zigzag[32] = {
	4, 11, 13, 24, 26, 40, 42, 53, 22, 36, 38, 49, 51, 58, 60, 63,
	1, 0,  6,  0,  15, 0,  28, 0,  2,  9,  20, 35, 2,  9,  20, 35,
};
static const uint16_t odd_quant[32] = {
	34, 35, 38, 39, 42, 43, 46, 47, 50, 51, 54, 55, 58, 59, 62, 63,
	2,  0,  6,  0,  10, 0,  14, 0,  32, 33, 48, 49, 32, 33, 48, 49,
};

#ifdef OWN_SHUFFLES
/* Interleaves 32 samples of near, starting at index `first`, with those of far. */
static inline __m512i pair_rows(__m512i near, __m512i far, const int first)
{
#define PAIR(i)    (i), 64 + (i)
#define PAIRS4(i)  PAIR(i), PAIR(i + 1), PAIR(i + 2), PAIR(i + 3)
#define PAIRS16(i) PAIRS4(i), PAIRS4(i + 4), PAIRS4(i + 8), PAIRS4(i + 12)
	static const uint8_t index[3][64] = {
		{PAIRS16(0), PAIRS16(16)}, {PAIRS16(1), PAIRS16(17)}, {PAIRS16(2), PAIRS16(18)}};
#undef PAIR
#undef PAIRS4
#undef PAIRS16

	return _mm512_permutex2var_epi8(near, load(index[first]), far);
}

static inline void load_sums(const uint8_t *near, const uint8_t *far, const unsigned rows,
			     struct column_sums sums[2])
{
	static const int16_t once[2] = {1 << 8 | 3, 3 << 8 | 1},
			     thrice[2] = {3 << 8 | 9, 9 << 8 | 3};
	__m512i a = load(near - 1), b = load(far - 1);

#pragma GCC unroll 3
	for (int i = 0; i < 3; i++) {
		__m512i pairs = pair_rows(a, b, i);

#pragma GCC unroll 2
		for (unsigned row = 0; row < rows; row++) {
			sums[row].once[i] =
				_mm512_maddubs_epi16(pairs, _mm512_set1_epi16(once[row]));
			if (i > 0)
				sums[row].thrice[i - 1] =
					_mm512_maddubs_epi16(pairs, _mm512_set1_epi16(thrice[row]));
		}
	}
}
#endif

/* Moves 128-bit lane i of vector j to lane j of vector i. */
static inline void transpose_lanes(const __m512i in[4], __m512i *a, __m512i *b, __m512i *c,
				   __m512i *d)
{
	__m512i even_low = _mm512_shuffle_i64x2(in[0], in[1], 0x88);
	__m512i odd_low = _mm512_shuffle_i64x2(in[0], in[1], 0xdd);
	__m512i even_high = _mm512_shuffle_i64x2(in[2], in[3], 0x88);
	__m512i odd_high = _mm512_shuffle_i64x2(in[2], in[3], 0xdd);

	*a = _mm512_shuffle_i64x2(even_low, even_high, 0x88);
	*b = _mm512_shuffle_i64x2(odd_low, odd_high, 0x88);
	*c = _mm512_shuffle_i64x2(even_low, even_high, 0xdd);
	*d = _mm512_shuffle_i64x2(odd_low, odd_high, 0xdd);
}

/* Loads and dequantises four blocks. in[0] and in[1] receive two blocks each. */
static inline void load_pairs(const int16_t *const blocks[4], const int16_t quant[64],
			      struct pairs *in)
{
	__m512i first[4], second[4];

	for (int i = 0; i < 4; i++) {
		__m512i a = _mm512_load_si512(blocks[i]), b = _mm512_load_si512(blocks[i] + 32);

		first[i] = _mm512_mullo_epi16(_mm512_permutex2var_epi16(a, load(paired_zigzag), b),
					      load(quant));
		second[i] = _mm512_mullo_epi16(
			_mm512_permutex2var_epi16(a, load(paired_zigzag + 32), b),
			load(quant + 32));
	}
	for (int i = 0; i < 2; i++)
		in[i] = (struct pairs){
			_mm512_shuffle_i64x2(first[2 * i], first[2 * i + 1], 0x44),
			_mm512_shuffle_i64x2(first[2 * i], first[2 * i + 1], 0xee),
			_mm512_shuffle_i64x2(second[2 * i], second[2 * i + 1], 0x44),
			_mm512_shuffle_i64x2(second[2 * i], second[2 * i + 1], 0xee),
		};
}

static inline struct odd_pairs load_odd_pairs(const int16_t *const blocks[4],
					      const int16_t quant[64])
{
	/* loop-invariant: compilers hoist it out of the loop over blocks */
	__m512i factors = _mm512_permutex2var_epi16(load(quant), load(odd_quant), load(quant + 32));
	struct odd_pairs pairs;
	__m512i x[4];

	for (int i = 0; i < 4; i++) {
		__m512i a = _mm512_load_si512(blocks[i]), b = _mm512_load_si512(blocks[i] + 32);

		x[i] = _mm512_mullo_epi16(_mm512_permutex2var_epi16(a, load(odd_zigzag), b),
					  factors);
	}
	transpose_lanes(x, &pairs.x13, &pairs.x57, &pairs.x0, &pairs.column);
	return pairs;
}

#include "format/codec/jpeg/kernels/jpeg_kernels_simd.h"
