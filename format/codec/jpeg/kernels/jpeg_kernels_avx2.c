#include <string.h>

#define LANES         2
#define VECTOR        __m256i
#define V(operation)  _mm256_##operation
#define SI(operation) _mm256_##operation##_si256
#define BROADCAST     _mm256_broadcastsi128_si256
#define ZIGZAG        false
#define QUANT_ORDER   NULL
#define NAME          "avx2"
#define KERNELS       jpeg_kernels_avx2

#include "format/codec/jpeg/kernels/jpeg_vectors.h"

/* Returns a mask with a bit for each byte that is FF. */
static inline uint64_t find_ff(__m256i bytes)
{
	return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(-1)));
}

static inline __m256i load_words(const uint8_t *bytes)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)bytes));
}

static inline void join_columns(__m256i x, __m256i y, __m256i out[2])
{
	const __m256i order = spread_bytes(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);

	x = _mm256_shuffle_epi8(x, order);
	y = _mm256_shuffle_epi8(y, order);
	out[0] = _mm256_unpacklo_epi32(x, y);
	out[1] = _mm256_unpackhi_epi32(x, y);
}

/* Stores two lines of samples. Each lane holds eight samples of one line and eight of the next. */
static inline void store_lines(__m256i lines, uint8_t *output, size_t stride)
{
	lines = _mm256_permute4x64_epi64(lines, 0xd8);
	_mm_storeu_si128((__m128i *)output, _mm256_castsi256_si128(lines));
	_mm_storeu_si128((__m128i *)(output + stride), _mm256_extracti128_si256(lines, 1));
}

/* Stores 4 x 4 blocks. Each lane holds a block, four lines of four samples. */
static inline void store_fours(__m256i lines, uint8_t *output, size_t stride)
{
	lines = _mm256_permutevar8x32_epi32(lines, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	__m128i low = _mm256_castsi256_si128(lines);
	__m128i high = _mm256_extracti128_si256(lines, 1);
	_mm_storel_epi64((__m128i *)output, low);
	_mm_storel_epi64((__m128i *)(output + stride), _mm_unpackhi_epi64(low, low));
	_mm_storel_epi64((__m128i *)(output + 2 * stride), high);
	_mm_storel_epi64((__m128i *)(output + 3 * stride), _mm_unpackhi_epi64(high, high));
}

/* Stores 2 x 2 blocks. Each lane holds a block, two lines of two samples less 128, 32 bits each. */
static inline void store_twos(__m256i samples, uint8_t *output, size_t stride)
{
	const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1);
	__m128i bytes = _mm_packs_epi32(_mm256_castsi256_si128(samples),
					_mm256_extracti128_si256(samples, 1));

	bytes = _mm_xor_si128(_mm_packs_epi16(bytes, bytes), _mm_set1_epi8((char)0x80));
	uint64_t lines = (uint64_t)_mm_cvtsi128_si64(_mm_shuffle_epi8(bytes, order));
	uint32_t line = (uint32_t)lines;
	memcpy(output, &line, sizeof(line));
	line = (uint32_t)(lines >> 32);
	memcpy(output + stride, &line, sizeof(line));
}

/* Stores the first lanes of the three vectors, then their second lanes. */
static inline void store_by_lane(const __m256i v[3], uint8_t *output)
{
	store(output, _mm256_permute2x128_si256(v[0], v[1], 0x20));
	store(output + 32, _mm256_permute2x128_si256(v[2], v[0], 0x30));
	store(output + 64, _mm256_permute2x128_si256(v[1], v[2], 0x31));
}

/* Loads the same line of two blocks and dequantises it. */
static inline __m256i load_line(const int16_t *const blocks[2], const int16_t quant[64], int line)
{
	__m256i both = _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm_load_si128((const __m128i *)(blocks[0] + 8 * line))),
		_mm_load_si128((const __m128i *)(blocks[1] + 8 * line)), 1);

	return _mm256_mullo_epi16(both, load_for_each_lane(quant + 8 * line));
}

/* Loads and dequantises two blocks. in[0] receives columns 0 to 3, in[1] columns 4 to 7. */
static inline void load_pairs(const int16_t *const blocks[2], const int16_t quant[64],
			      struct pairs *in)
{
	__m256i x[8];

	for (int i = 0; i < 8; i++)
		x[i] = load_line(blocks, quant, i);
	in[0] = (struct pairs){
		_mm256_unpacklo_epi16(x[0], x[4]),
		_mm256_unpacklo_epi16(x[2], x[6]),
		_mm256_unpacklo_epi16(x[1], x[3]),
		_mm256_unpacklo_epi16(x[5], x[7]),
	};
	in[1] = (struct pairs){
		_mm256_unpackhi_epi16(x[0], x[4]),
		_mm256_unpackhi_epi16(x[2], x[6]),
		_mm256_unpackhi_epi16(x[1], x[3]),
		_mm256_unpackhi_epi16(x[5], x[7]),
	};
}

/* Returns the odd ones (1, 3, 5, 7) of the eight 32-bit words in each lane of the two vectors. */
static inline __m256i odd_words(__m256i low, __m256i high)
{
	return _mm256_castps_si256(
		_mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0xdd));
}

static inline struct odd_pairs load_odd_pairs(const int16_t *const blocks[2],
					      const int16_t quant[64])
{
	const __m256i order = spread_bytes(2, 3, 0, 1, 6, 7, 0, 1, 10, 11, 0, 1, 14, 15, 0, 1);
	__m256i x1 = load_line(blocks, quant, 1), x3 = load_line(blocks, quant, 3);
	__m256i x5 = load_line(blocks, quant, 5), x7 = load_line(blocks, quant, 7);
	__m256i low13 = _mm256_unpacklo_epi16(x1, x3), high13 = _mm256_unpackhi_epi16(x1, x3);
	__m256i low57 = _mm256_unpacklo_epi16(x5, x7), high57 = _mm256_unpackhi_epi16(x5, x7);

	return (struct odd_pairs){
		odd_words(low13, high13),
		odd_words(low57, high57),
		_mm256_shuffle_epi8(load_line(blocks, quant, 0), order),
		_mm256_shuffle_epi32(_mm256_unpacklo_epi32(low13, low57), 0x44),
	};
}

#include "format/codec/jpeg/kernels/jpeg_kernels_simd.h"
