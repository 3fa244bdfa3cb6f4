#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define LANES		 2
#define VECTOR		 __m256i
#define ZERO		 _mm256_setzero_si256()
#define V(operation)	 V_##operation
#define V_xor		 _mm256_xor_si256
#define V_set1_epi8	 _mm256_set1_epi8
#define V_set1_epi16	 _mm256_set1_epi16
#define V_set1_epi32	 _mm256_set1_epi32
#define V_madd_epi16	 _mm256_madd_epi16
#define V_add_epi32	 _mm256_add_epi32
#define V_sub_epi32	 _mm256_sub_epi32
#define V_srai_epi32	 _mm256_srai_epi32
#define V_packs_epi32	 _mm256_packs_epi32
#define V_packs_epi16	 _mm256_packs_epi16
#define V_packus_epi16	 _mm256_packus_epi16
#define V_unpacklo_epi8	 _mm256_unpacklo_epi8
#define V_unpackhi_epi8	 _mm256_unpackhi_epi8
#define V_unpacklo_epi16 _mm256_unpacklo_epi16
#define V_unpackhi_epi16 _mm256_unpackhi_epi16
#define V_unpacklo_epi32 _mm256_unpacklo_epi32
#define V_unpackhi_epi32 _mm256_unpackhi_epi32
#define V_unpacklo_epi64 _mm256_unpacklo_epi64
#define V_unpackhi_epi64 _mm256_unpackhi_epi64
#define V_mulhrs_epi16	 _mm256_mulhrs_epi16
#define V_add_epi16	 _mm256_add_epi16
#define V_sub_epi16	 _mm256_sub_epi16
#define V_shuffle_epi8	 _mm256_shuffle_epi8
#define ZIGZAG		 false
#define QUANT_ORDER	 jpeg_natural_order
#define NAME		 "avx2"
#define KERNELS		 jpeg_kernels_avx2

/* Byte j of output vector o is channel (16 o + j) % 3 of pixel (16 o + j) / 3; 128 leaves a zero. */
static const uint8_t spread[3][3][16] = {
	{
		{0, 128, 128, 1, 128, 128, 2, 128, 128, 3, 128, 128, 4, 128, 128, 5},
		{128, 0, 128, 128, 1, 128, 128, 2, 128, 128, 3, 128, 128, 4, 128, 128},
		{128, 128, 0, 128, 128, 1, 128, 128, 2, 128, 128, 3, 128, 128, 4, 128},
	},
	{
		{128, 128, 6, 128, 128, 7, 128, 128, 8, 128, 128, 9, 128, 128, 10, 128},
		{5, 128, 128, 6, 128, 128, 7, 128, 128, 8, 128, 128, 9, 128, 128, 10},
		{128, 5, 128, 128, 6, 128, 128, 7, 128, 128, 8, 128, 128, 9, 128, 128},
	},
	{
		{128, 11, 128, 128, 12, 128, 128, 13, 128, 128, 14, 128, 128, 15, 128, 128},
		{128, 128, 11, 128, 128, 12, 128, 128, 13, 128, 128, 14, 128, 128, 15, 128},
		{10, 128, 128, 11, 128, 128, 12, 128, 128, 13, 128, 128, 14, 128, 128, 15},
	},
};

static inline __m256i load(const void *p)
{
	return _mm256_loadu_si256(p);
}

static inline void store(void *p, __m256i bytes)
{
	_mm256_storeu_si256(p, bytes);
}

/* A bit for every byte that is FF. */
static inline uint64_t find_ff(__m256i bytes)
{
	return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(-1)));
}

static inline __m256i multiply_add(__m256i sum, __m256i a, __m256i b)
{
	return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

static inline __m256i spread_bytes(char a, char b, char c, char d, char e, char f, char g, char h,
				   char i, char j, char k, char l, char m, char n, char o, char p)
{
	return _mm256_broadcastsi128_si256(
		_mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}

struct pairs;
static inline void load_pairs(const int16_t *const blocks[2], const int16_t quant[64],
			      struct pairs *low, struct pairs *high);

/* Each lane holds eight samples of one line and eight of the next. */
static inline void store_lines(__m256i lines, uint8_t *output, size_t stride)
{
	lines = _mm256_permute4x64_epi64(lines, 0xd8);
	_mm_storeu_si128((__m128i *)output, _mm256_castsi256_si128(lines));
	_mm_storeu_si128((__m128i *)(output + stride), _mm256_extracti128_si256(lines, 1));
}

static inline void interleave_lane(__m128i red, __m128i green, __m128i blue, uint8_t *output)
{
	for (int i = 0; i < 3; i++) {
		__m128i r = _mm_shuffle_epi8(red, _mm_loadu_si128((const __m128i *)spread[i][0]));
		__m128i g = _mm_shuffle_epi8(green, _mm_loadu_si128((const __m128i *)spread[i][1]));
		__m128i b = _mm_shuffle_epi8(blue, _mm_loadu_si128((const __m128i *)spread[i][2]));

		_mm_storeu_si128((__m128i *)(output + 16 * i), _mm_or_si128(_mm_or_si128(r, g), b));
	}
}

static inline void interleave(__m256i red, __m256i green, __m256i blue, uint8_t *output)
{
	interleave_lane(_mm256_castsi256_si128(red), _mm256_castsi256_si128(green),
			_mm256_castsi256_si128(blue), output);
	interleave_lane(_mm256_extracti128_si256(red, 1), _mm256_extracti128_si256(green, 1),
			_mm256_extracti128_si256(blue, 1), output + 48);
}

#include "jpeg_kernels_simd.h"

/* The same line of two blocks, dequantised. */
static inline __m256i load_line(const int16_t *const blocks[2], const int16_t quant[64], int line)
{
	__m256i both = _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm_load_si128((const __m128i *)(blocks[0] + 8 * line))),
		_mm_load_si128((const __m128i *)(blocks[1] + 8 * line)), 1);

	return _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(_mm_loadu_si128(
						(const __m128i *)(quant + 8 * line))));
}

static inline void load_pairs(const int16_t *const blocks[2], const int16_t quant[64],
			      struct pairs *low, struct pairs *high)
{
	__m256i x[8];

	for (int i = 0; i < 8; i++)
		x[i] = load_line(blocks, quant, i);
	*low = (struct pairs){
		_mm256_unpacklo_epi16(x[0], x[4]),
		_mm256_unpacklo_epi16(x[2], x[6]),
		_mm256_unpacklo_epi16(x[1], x[3]),
		_mm256_unpacklo_epi16(x[5], x[7]),
	};
	*high = (struct pairs){
		_mm256_unpackhi_epi16(x[0], x[4]),
		_mm256_unpackhi_epi16(x[2], x[6]),
		_mm256_unpackhi_epi16(x[1], x[3]),
		_mm256_unpackhi_epi16(x[5], x[7]),
	};
}
