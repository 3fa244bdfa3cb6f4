/*
 * AVX-512 kernels of resize.
 *
 * Horizontal pass by window: a vector is 16 elements whose taps come from a short range of the row.
 * One byte permutation (two without VBMI, see byte_index) moves two taps of each element into the
 * two halves of its 32-bit lane; one multiply-add weighs and sums them. The rows of a band share
 * index and weight vectors. An element is one channel of a pixel, so the result is interleaved like
 * the output, and a flip needs only another table.
 *
 * Horizontal pass by dot: a vector is 8 taps of one output. Used if the picture shrinks so much
 * that the taps of 16 elements do not fit the window.
 *
 * Vertical pass: one multiply-add per pair of rows, directly from memory.
 */
#include "format/augment/kernels/vectors.h"
#include "format/augment/resize/resize_cubic.h"
#include "format/augment/resize/resize_kernels.h"

#include <string.h>

#include "format/augment/resize/resize_cubic.inc"
#include "format/augment/resize/resize_float.inc"
#include "format/augment/resize/resize_table.inc"

enum {
	GROUP = 16,         /* elements per vector */
	DOT_TAPS = 8,       /* taps per vector */
	DOT_BYTES = 32,     /* bytes loaded for the taps, of which taps * channels are used */
	ROWS = RESIZE_BAND, /* rows at a time */
};

enum mode { MODE_32, MODE_64, MODE_128, MODE_DOT };

/*
 * For each 16-bit word of a vector, the byte of the window to move there: with VBMI, the byte's
 * index. Without VBMI, a permutation of 16-bit or 32-bit units first moves the units with these
 * bytes to the right 128-bit lanes, then a shuffle moves the bytes within the lanes. 32-bit units,
 * four per lane, are cheaper (Intel's VPERMW is two operations), but then the bytes of a lane must
 * be within 13 bytes of each other.
 */
struct byte_index {
	__m512i units, bytes;
};

enum {
#ifdef __AVX512VBMI__
	VECTORS = 2, /* table vectors per group and pair of taps: units, weights */
#else
	VECTORS = 3, /* table vectors per group and pair of taps: units, bytes, weights */
#endif
	LANE = 4,   /* elements per 128-bit lane */
	NARROW = 4, /* flag in pass->mode: permute 32-bit units */
};

/* numbers: for each element, the byte indexes of its two words; only the low seven bits count. */
INLINE struct byte_index byte_index(__m512i numbers, bool narrow)
{
#ifdef __AVX512VBMI__
	return (struct byte_index){numbers, numbers};
#else
	__m512i first, bytes;

	if (!narrow) {
		bytes = _mm512_and_si512(numbers, _mm512_set1_epi16(1));
		return (struct byte_index){
			_mm512_srli_epi16(numbers, 1),
			_mm512_or_si512(bytes, _mm512_set4_epi32((int)0x800e800c, (int)0x800a8008,
								 (int)0x80068004, (int)0x80028000)),
		};
	}
	first = _mm512_and_si512(numbers, _mm512_set1_epi32(0x7f));
	first = _mm512_min_epi32(first, _mm512_shuffle_epi32(first, 0xb1));
	first = _mm512_min_epi32(first, _mm512_shuffle_epi32(first, 0x4e));
	first = _mm512_srli_epi32(first, 2);
	bytes = _mm512_sub_epi8(numbers, _mm512_mullo_epi32(first, _mm512_set1_epi32(4 << 16 | 4)));
	return (struct byte_index){
		_mm512_add_epi32(first, _mm512_set4_epi32(3, 2, 1, 0)),
		_mm512_or_si512(_mm512_and_si512(bytes, _mm512_set1_epi16(0x0f)),
				_mm512_set1_epi16((short)0x8000)),
	};
#endif
}

/* Selects bytes from `a` and, if `twice` is set, from its continuation `b`. */
INLINE __m512i take_bytes(struct byte_index at, __m512i a, __m512i b, const bool twice,
			  const bool narrow)
{
#ifdef __AVX512VBMI__
	const __mmask64 low_bytes = 0x5555555555555555;

	return twice ? _mm512_maskz_permutex2var_epi8(low_bytes, a, at.units, b)
		     : _mm512_maskz_permutexvar_epi8(low_bytes, at.units, a);
#else
	__m512i units;

	if (narrow)
		units = twice ? _mm512_permutex2var_epi32(a, at.units, b)
			      : _mm512_permutexvar_epi32(at.units, a);
	else
		units = twice ? _mm512_permutex2var_epi16(a, at.units, b)
			      : _mm512_permutexvar_epi16(at.units, a);
	return _mm512_shuffle_epi8(units, at.bytes);
#endif
}

/*
 * Joins the sums of an even and an odd row into one pair row. Takes bits 8 to 23 of each sum, in
 * 8.6 fixed point.
 */
INLINE __m512i join_rows(__m512i even, __m512i odd)
{
#ifdef __AVX512VBMI__
	static const uint8_t index[64] __attribute__((aligned(64))) = {
#define LANE(i) 4 * (i) + 1, 4 * (i) + 2, 64 + 4 * (i) + 1, 64 + 4 * (i) + 2
		LANE(0), LANE(1), LANE(2),  LANE(3),  LANE(4),  LANE(5),  LANE(6),  LANE(7),
		LANE(8), LANE(9), LANE(10), LANE(11), LANE(12), LANE(13), LANE(14), LANE(15)};
#undef LANE
	return _mm512_permutex2var_epi8(even, _mm512_load_si512(index), odd);
#else
	const int shift = RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS;

	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even, shift),
				       _mm512_slli_epi32(odd, 16 - shift));
#endif
}

/* Loads taps of a row, from byte `at` on. Does not read past the row. */
INLINE __m512i dot_taps(const uint8_t *row, size_t at, size_t row_size, struct byte_index index)
{
	__m256i bytes = at + DOT_BYTES <= row_size
				? _mm256_loadu_si256((const void *)(row + at))
				: _mm256_maskz_loadu_epi8(
					  (__mmask32)((1ull << (row_size - at)) - 1), row + at);
	__m512i taps = _mm512_castsi256_si512(bytes);

	return take_bytes(index, taps, taps, false, true);
}

/* Loads two weights into each of the first elements; the other elements are zero. */
INLINE __m512i dot_weights(const int16_t *weights)
{
	return _mm512_zextsi128_si512(_mm_load_si128((const void *)weights));
}

/* Adds up the 128-bit lanes: the first lane then holds the sum of each channel. */
INLINE __m512i dot_fold(__m512i sum)
{
	__m256i half =
		_mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));

	return _mm512_castsi128_si512(
		_mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

INLINE void dot_put(int32_t *out, __m128i elements, uint32_t skip, uint32_t keep)
{
	_mm_mask_storeu_epi32(out, (__mmask8)((1u << keep) - (1u << skip)), elements);
}

#include "format/augment/resize/resize_dot.inc"

static bool is_narrow(const struct resize_pass *pass)
{
	return VECTORS == 3 && pass->mode & NARROW;
}

static uint32_t group_count(const struct resize_pass *pass)
{
	return (pass->elements + GROUP - 1) / GROUP;
}

/*
 * Returns the first byte that `count` elements from `element` on read. Sets *ret_size to the
 * distance from there to the end of the last tap.
 */
static int32_t reach(const struct resize_pass *pass, uint32_t element, uint32_t count,
		     uint32_t taps, int32_t *ret_size)
{
	int32_t low, high;

	start_range(pass, element, count, &low, &high);
	*ret_size = (high - low + (int32_t)taps) * (int32_t)pass->source_channels;
	return low * (int32_t)pass->source_channels;
}

static size_t base_size(const struct resize_pass *pass)
{
	return (group_count(pass) * sizeof(int32_t) + 63) & ~(size_t)63;
}

/* Returns true if the bytes of every lane fit into four 32-bit units at any alignment. */
static bool lanes_are_narrow(const struct resize_pass *pass)
{
	int32_t widest = 0, size;

	for (uint32_t element = 0; element < pass->elements; element += LANE) {
		reach(pass, element, LANE, 2, &size);
		widest = size > widest ? size : widest;
	}
	return widest <= 13;
}

static size_t resize_prepare(struct resize_pass *pass)
{
	int32_t widest = 0, size;

	for (uint32_t group = 0; group < group_count(pass); group++) {
		reach(pass, group * GROUP, GROUP, pass->table->taps, &size);
		widest = size > widest ? size : widest;
	}
	pass->mode = widest <= 32    ? MODE_32
		     : widest <= 64  ? MODE_64
		     : widest <= 128 ? MODE_128
				     : MODE_DOT;
	if (pass->mode == MODE_DOT) {
		pass->row_size_min = 0;
		return dot_size(pass->table);
	}
	pass->row_size_min = 32u << pass->mode;
	if (VECTORS == 3 && lanes_are_narrow(pass))
		pass->mode |= NARROW;
	return base_size(pass) +
	       (size_t)group_count(pass) * pair_count_of(pass->table) * VECTORS * sizeof(__m512i);
}

static void pack_window(const struct resize_pass *pass)
{
	const struct resize_table *table = pass->table;
	uint32_t pairs = pair_count_of(table), groups = group_count(pass);
	int32_t channels = (int32_t)pass->source_channels;
	int32_t base_max = (int32_t)(pass->row_size - pass->row_size_min), size;
	int32_t *bases = pass->packed;
	__m512i *vectors = (__m512i *)((char *)pass->packed + base_size(pass));
	struct elements elements[4];

	for (uint32_t r = 0; r < pass->target_channels; r++)
		elements_of(pass, r, &elements[r]);
	for (uint32_t group = 0; group < groups; group++) {
		const struct elements *own = &elements[group % pass->target_channels];
		uint32_t first = group / pass->target_channels * GROUP;
		int32_t base = reach(pass, group * GROUP, GROUP, table->taps, &size);

		/* The window must end inside the row, so it starts earlier near the row's end. */
		base = base < base_max ? base : base_max;
		bases[group] = base;
		/* Indexes of both taps of a pair. Indexes of taps with zero weight may wrap. */
		__m512i at = with_next(
			_mm512_sub_epi32(first_bytes(pass, first, own), _mm512_set1_epi32(base)),
			channels);

		for (uint32_t p = 0; p < pairs; p++, vectors += VECTORS) {
			const struct byte_index index = byte_index(at, is_narrow(pass));

			_mm512_store_si512(&vectors[VECTORS - 2], index.bytes);
			_mm512_store_si512(&vectors[0], index.units);
			_mm512_store_si512(&vectors[VECTORS - 1],
					   pair_weight(table, p, first, own));
			at = _mm512_add_epi8(at, _mm512_set1_epi8((char)(2 * channels)));
		}
	}
}

/* Adds one pair of taps of several rows. */
INLINE void window_pair(const __m512i *table, const __m512i a[], const __m512i b[], __m512i sum[],
			const unsigned row_count, const bool twice, const bool narrow)
{
	const struct byte_index index = {_mm512_load_si512(&table[0]),
					 _mm512_load_si512(&table[VECTORS - 2])};
	__m512i weight = _mm512_load_si512(&table[VECTORS - 1]);

#pragma GCC unroll 8
	for (unsigned i = 0; i < row_count; i++)
		sum[i] = multiply_add(sum[i], take_bytes(index, a[i], b[i], twice, narrow), weight);
}

/*
 * Computes one group of elements of several rows. All arguments except the pointers, base, narrow
 * and at are usually compile-time constants.
 */
INLINE void window_group(const uint8_t *const rows[], int32_t base, const __m512i *table,
			 const uint32_t pairs, const unsigned row_count, const enum mode mode,
			 bool narrow, int32_t *const out[], uint32_t at)
{
	__m512i sum[RESIZE_BAND], a[RESIZE_BAND], b[RESIZE_BAND];

#pragma GCC unroll 8
	for (unsigned i = 0; i < row_count; i++) {
		sum[i] = HALF;
		a[i] = mode == MODE_32 ? _mm512_castsi256_si512(
						 _mm256_loadu_si256((const void *)(rows[i] + base)))
				       : _mm512_loadu_si512(rows[i] + base);
		b[i] = mode == MODE_128 ? _mm512_loadu_si512(rows[i] + base + 64) : a[i];
	}
	if (narrow)
		for (uint32_t p = 0; p < pairs; p++)
			window_pair(table + VECTORS * p, a, b, sum, row_count, mode == MODE_128,
				    true);
	else
		for (uint32_t p = 0; p < pairs; p++)
			window_pair(table + VECTORS * p, a, b, sum, row_count, mode == MODE_128,
				    false);
#pragma GCC unroll 4
	for (unsigned i = 0; i < row_count; i += 2)
		_mm512_store_si512(out[i / 2] + at, join_rows(sum[i], sum[i + 1]));
}

INLINE void window_groups(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			  const uint8_t *const rows[], const unsigned row_count,
			  int32_t *const out[], const uint32_t pairs, const enum mode mode)
{
	const uint32_t first = block * (RESIZE_BLOCK / GROUP), left = group_count(pass) - first;
	const uint32_t max = block_count * (RESIZE_BLOCK / GROUP), count = max < left ? max : left;
	const int32_t *bases = (const int32_t *)pass->packed + first;
	const __m512i *vectors = (const __m512i *)((const char *)pass->packed + base_size(pass)) +
				 (size_t)first * pairs * VECTORS;
	const bool narrow = is_narrow(pass);

	for (uint32_t group = 0; group < count; group++, vectors += VECTORS * pairs)
		window_group(rows, bases[group], vectors, pairs, row_count, mode, narrow, out,
			     group * GROUP);
}

/* Has loops of their own for the filter lengths that are common for crops. */
INLINE void window_rows(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			const uint8_t *const rows[], const unsigned row_count, int32_t *const out[])
{
	uint32_t pairs = pair_count_of(pass->table), mode = pass->mode & ~(uint32_t)NARROW;

	switch (mode << 4 | (pairs < 4 ? pairs : 0)) {
	case MODE_32 << 4 | 1:
		window_groups(pass, block, block_count, rows, row_count, out, 1, MODE_32);
		break;
	case MODE_32 << 4 | 2:
		window_groups(pass, block, block_count, rows, row_count, out, 2, MODE_32);
		break;
	case MODE_64 << 4 | 1:
		window_groups(pass, block, block_count, rows, row_count, out, 1, MODE_64);
		break;
	case MODE_64 << 4 | 2:
		window_groups(pass, block, block_count, rows, row_count, out, 2, MODE_64);
		break;
	case MODE_64 << 4 | 3:
		window_groups(pass, block, block_count, rows, row_count, out, 3, MODE_64);
		break;
	default:
		if (mode == MODE_128)
			window_groups(pass, block, block_count, rows, row_count, out, pairs,
				      MODE_128);
		else if (mode == MODE_64)
			window_groups(pass, block, block_count, rows, row_count, out, pairs,
				      MODE_64);
		else
			window_groups(pass, block, block_count, rows, row_count, out, pairs,
				      MODE_32);
	}
}

#include "format/augment/resize/resize_band.inc"

/* Stores the first `count` bytes of a vector, at the start or end of a row. */
INLINE void put_part(uint8_t *output, __m512i bytes, uint32_t count, const bool stream)
{
	if (stream)
		_mm256_stream_si256((__m256i *)output, _mm512_castsi512_si256(bytes));
	else
		_mm512_mask_storeu_epi8(output, (1ull << count) - 1, bytes);
}

#ifdef __AVX512VBMI__
INLINE __m512i narrow_sums(const __m512i sum[4])
{
	static const uint16_t high_halves[32] __attribute__((aligned(64))) = {
		1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
		33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
	static const uint8_t low_bytes[64] __attribute__((aligned(64))) = {
#define FOUR(i) 2 * (i), 2 * (i) + 2, 2 * (i) + 4, 2 * (i) + 6
		FOUR(0),  FOUR(4),  FOUR(8),  FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28),
		FOUR(32), FOUR(36), FOUR(40), FOUR(44), FOUR(48), FOUR(52), FOUR(56), FOUR(60)};
#undef FOUR
	const __m512i halves = _mm512_load_si512(high_halves);
	__m512i a = _mm512_permutex2var_epi16(sum[0], halves, sum[1]);
	__m512i b = _mm512_permutex2var_epi16(sum[2], halves, sum[3]);

	return _mm512_permutex2var_epi8(_mm512_srli_epi16(a, VERTICAL_SHIFT - 16),
					_mm512_load_si512(low_bytes),
					_mm512_srli_epi16(b, VERTICAL_SHIFT - 16));
}

/*
 * Index of byte n of interleaved pixels in the colour's vector after two packings, plus 64 for
 * green.
 */
#define PLACE(p)          (p) % 16 / 4 * 16 + (p) / 16 * 4 + (p) % 4
#define BYTE(n, channels) PLACE((n) / (channels)) + ((n) % (channels) == 1 ? 64 : 0)
#define BYTES4(n, c)      BYTE(n, c), BYTE(n + 1, c), BYTE(n + 2, c), BYTE(n + 3, c)
#define BYTES16(n, c)     BYTES4(n, c), BYTES4(n + 4, c), BYTES4(n + 8, c), BYTES4(n + 12, c)
#define BYTES64(n, c)     BYTES16(n, c), BYTES16(n + 16, c), BYTES16(n + 32, c), BYTES16(n + 48, c)
static const uint8_t places_3[3][64]
	__attribute__((aligned(64))) = {{BYTES64(0, 3)}, {BYTES64(64, 3)}, {BYTES64(128, 3)}};
static const uint8_t places_4[4][64] __attribute__((aligned(64))) = {
	{BYTES64(0, 4)}, {BYTES64(64, 4)}, {BYTES64(128, 4)}, {BYTES64(192, 4)}};
#undef PLACE
#undef BYTE
#undef BYTES4
#undef BYTES16
#undef BYTES64

/* Makes vector i of 64 interleaved pixels. */
INLINE __m512i interleave_vector(const __m512i rgb[3], uint32_t i, const uint32_t channels)
{
	/* Masks of the blue bytes of each vector, and of the nonzero bytes. */
	static const __mmask64 blue_3[3] = {0x4924924924924924, 0x2492492492492492,
					    0x9249249249249249};
	const __mmask64 blue_4 = 0x4444444444444444, used_4 = 0x7777777777777777;
	__m512i index = _mm512_load_si512(channels == 3 ? places_3[i] : places_4[i]);

	if (channels == 3)
		return _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(rgb[0], index, rgb[1]),
						    blue_3[i], index, rgb[2]);
	return _mm512_mask_permutexvar_epi8(
		_mm512_maskz_permutex2var_epi8(used_4, rgb[0], index, rgb[1]), blue_4, index,
		rgb[2]);
}

/* Interleaves `count` pixels, at most 64. */
INLINE void interleave(const __m512i rgb[3], const uint32_t channels, uint32_t count,
		       uint8_t *output)
{
	uint32_t left = count * channels;

#pragma GCC unroll 4
	for (uint32_t i = 0; i < channels; i++, left -= 64, output += 64) {
		if (left < 64) {
			_mm512_mask_storeu_epi8(output, (1ull << left) - 1,
						interleave_vector(rgb, i, channels));
			return;
		}
		_mm512_storeu_si512(output, interleave_vector(rgb, i, channels));
	}
}
#else
#define PACKED_ORDER _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
#include "format/augment/resize/resize_rgb.inc"
#endif

#include "format/augment/resize/resize_vertical.inc"
