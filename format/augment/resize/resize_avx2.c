/*
 * AVX2 kernels of resize: resize_avx512.c with half the vector width. Two methods for the
 * horizontal pass:
 *
 * By window: a vector is eight elements, four in each 128-bit lane. Each lane loads its own 16-byte
 * window of the row, and a byte shuffle takes two taps of each element from it. If one window
 * contains all taps of a lane, it is loaded once, otherwise once per pair of taps.
 *
 * By dot: a vector is four taps of one output. Used if four elements are too far apart for a
 * window.
 */
#include "format/augment/kernels/vectors.h"
#include "format/augment/resize/resize_cubic.h"
#include "format/augment/resize/resize_kernels.h"

#include <string.h>

#include "format/augment/resize/resize_cubic.inc"
#include "format/augment/resize/resize_float.inc"
#include "format/augment/resize/resize_table.inc"

enum {
	GROUP = 8,    /* elements per vector */
	LANE = 4,     /* elements per lane; each lane has its own window */
	WINDOW = 16,  /* bytes */
	ROWS = 4,     /* rows at a time: more do not fit into 16 registers */
	DOT_TAPS = 4, /* taps per vector */
};

enum mode { MODE_ONCE, MODE_PAIRS, MODE_DOT };

/* For each 16-bit word of a vector, the index of its byte in the lane's window. */
struct byte_index {
	__m256i bytes;
};

/* numbers: for each element, the byte indexes of its two words; only the low four bits count. */
INLINE struct byte_index byte_index(__m256i numbers, bool narrow)
{
	return (struct byte_index){(numbers & _mm256_set1_epi16(0x0f)) |
				   _mm256_set1_epi16((short)0x8000)};
}

/*
 * Joins the sums of an even and an odd row into one pair row. Takes bits 8 to 23 of each sum, in
 * 8.6 fixed point.
 */
INLINE __m256i join_rows(__m256i even, __m256i odd)
{
	return _mm256_blend_epi16(
		_mm256_srli_epi32(even, RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS),
		_mm256_slli_epi32(odd, 16 - (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS)), 0xaa);
}

/* Loads taps of a row, from byte `at` on. Does not read past the row. */
INLINE __m256i dot_taps(const uint8_t *row, size_t at, size_t row_size, struct byte_index index)
{
	uint8_t rest[WINDOW] = {0};

	if (at + WINDOW > row_size)
		row = memcpy(rest, row + at, row_size - at);
	else
		row += at;
	return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)row)),
				   index.bytes);
}

/* Loads two weights into each of the first elements; the other elements are zero. */
INLINE __m256i dot_weights(const int16_t *weights)
{
	return _mm256_zextsi128_si256(_mm_loadl_epi64((const void *)weights));
}

/* Adds up the lanes: the first lane then holds the sum of each channel. */
INLINE __m256i dot_fold(__m256i sum)
{
	return _mm256_add_epi32(sum, _mm256_permute2x128_si256(sum, sum, 0x01));
}

INLINE void dot_put(int32_t *out, __m128i elements, uint32_t skip, uint32_t keep)
{
	int32_t joined[LANE];

	_mm_storeu_si128((__m128i *)joined, elements);
	memcpy(out + skip, joined + skip, (keep - skip) * sizeof(*joined));
}

#include "format/augment/resize/resize_dot.inc"

/* Shuffle index and weights of one group and pair of taps. */
struct entry {
	__m256i index, weight;
};

static uint32_t group_count(const struct resize_pass *pass)
{
	return (pass->elements + RESIZE_BLOCK - 1) / RESIZE_BLOCK * (RESIZE_BLOCK / GROUP);
}

static size_t bases_size(const struct resize_pass *pass)
{
	return ((size_t)group_count(pass) * pair_count_of(pass->table) * 2 * sizeof(int32_t) + 63) &
	       ~(size_t)63;
}

static size_t resize_prepare(struct resize_pass *pass)
{
	const struct resize_table *table = pass->table;
	int32_t widest = 0, low, high;

	for (uint32_t element = 0; element < group_count(pass) * GROUP; element += LANE) {
		start_range(pass, element, LANE, &low, &high);
		widest = high - low > widest ? high - low : widest;
	}
	int32_t channels = (int32_t)pass->source_channels;

	if ((widest + (int32_t)table->taps) * channels <= WINDOW)
		pass->mode = MODE_ONCE;
	else if ((widest + 2) * channels <= WINDOW)
		pass->mode = MODE_PAIRS;
	else
		pass->mode = MODE_DOT;
	if (pass->mode == MODE_DOT) {
		pass->row_size_min = 0;
		return dot_size(table);
	}
	pass->row_size_min = WINDOW;
	return bases_size(pass) +
	       (size_t)group_count(pass) * pair_count_of(table) * sizeof(struct entry);
}

/*
 * Returns the start of a window. The window must end inside the row, so it starts earlier near the
 * row's end.
 */
static int32_t window_base(const struct resize_pass *pass, uint32_t element, uint32_t pair)
{
	int32_t base_max = (int32_t)pass->row_size - WINDOW, low, high;

	start_range(pass, element, LANE, &low, &high);
	low += pass->mode == MODE_PAIRS ? (int32_t)(2 * pair) : 0;
	low *= (int32_t)pass->source_channels;
	return low < base_max ? low : base_max;
}

static void pack_window(const struct resize_pass *pass)
{
	const struct resize_table *table = pass->table;
	uint32_t pairs = pair_count_of(table), groups = group_count(pass);
	int32_t channels = (int32_t)pass->source_channels;
	int32_t *bases = pass->packed;
	struct entry *entries = (struct entry *)((char *)pass->packed + bases_size(pass));
	struct elements elements[4];

	for (uint32_t r = 0; r < pass->target_channels; r++)
		elements_of(pass, r, &elements[r]);
	for (uint32_t group = 0; group < groups; group++) {
		const struct elements *own = &elements[group % pass->target_channels];
		uint32_t first = group / pass->target_channels * GROUP;
		bool padding = first >= table->padded;
		__m256i at = first_bytes(pass, padding ? 0 : first, own);

		for (uint32_t p = 0; p < pairs; p++, entries++, bases += 2) {
			bases[0] = window_base(pass, group * GROUP, p);
			bases[1] = window_base(pass, group * GROUP + LANE, p);
			__m256i base = _mm256_inserti128_si256(_mm256_set1_epi32(bases[0]),
							       _mm_set1_epi32(bases[1]), 1);
			__m256i even = _mm256_sub_epi32(
				_mm256_add_epi32(at,
						 _mm256_set1_epi32((int32_t)(2 * p) * channels)),
				base);

			/* Taps with zero weight may point anywhere in the window. */
			entries->index = byte_index(with_next(even, channels), true).bytes;
			entries->weight = padding ? _mm256_setzero_si256()
						  : pair_weight(table, p, first, own);
		}
	}
}

INLINE __m256i load_window(const uint8_t *row, const int32_t bases[2])
{
	return _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm_loadu_si128((const void *)(row + bases[0]))),
		_mm_loadu_si128((const void *)(row + bases[1])), 1);
}

INLINE void window_groups(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			  const uint8_t *const rows[], const unsigned row_count,
			  int32_t *const out[], const uint32_t pairs, const bool once)
{
	const uint32_t first = block * (RESIZE_BLOCK / GROUP),
		       count = block_count * (RESIZE_BLOCK / GROUP);
	const int32_t *bases = (const int32_t *)pass->packed + (size_t)first * pairs * 2;
	const struct entry *entries =
		(const struct entry *)((const char *)pass->packed + bases_size(pass)) +
		(size_t)first * pairs;

	for (uint32_t group = 0; group < count; group++, bases += 2 * pairs, entries += pairs) {
		__m256i sum[ROWS], taps[ROWS];

#pragma GCC unroll 4
		for (unsigned i = 0; i < row_count; i++) {
			sum[i] = HALF;
			taps[i] = load_window(rows[i], bases);
		}
		for (uint32_t p = 0; p < pairs; p++) {
			__m256i index = entries[p].index, weight = entries[p].weight;

#pragma GCC unroll 4
			for (unsigned i = 0; i < row_count; i++) {
				if (!once && p)
					taps[i] = load_window(rows[i], bases + (size_t)2 * p);
				sum[i] = multiply_add(sum[i], _mm256_shuffle_epi8(taps[i], index),
						      weight);
			}
		}
#pragma GCC unroll 2
		for (unsigned i = 0; i < row_count; i += 2)
			_mm256_store_si256((__m256i *)(out[i / 2] + (size_t)group * GROUP),
					   join_rows(sum[i], sum[i + 1]));
	}
}

INLINE void window_rows(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			const uint8_t *const rows[], const unsigned row_count, int32_t *const out[])
{
	uint32_t pairs = pair_count_of(pass->table);

	if (pass->mode == MODE_PAIRS)
		window_groups(pass, block, block_count, rows, row_count, out, pairs, false);
	else if (pairs == 1)
		window_groups(pass, block, block_count, rows, row_count, out, 1, true);
	else if (pairs == 2)
		window_groups(pass, block, block_count, rows, row_count, out, 2, true);
	else
		window_groups(pass, block, block_count, rows, row_count, out, pairs, true);
}

#include "format/augment/resize/resize_band.inc"

#define PACKED_ORDER _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)

/* Stores the first `count` bytes of a vector, at the end of a row. */
INLINE void put_part(uint8_t *output, __m256i bytes, uint32_t count, const bool stream)
{
	uint8_t rest[sizeof(bytes)];

	_mm256_storeu_si256((__m256i *)rest, bytes);
	memcpy(output, rest, count);
}

#include "format/augment/resize/resize_rgb.inc"
#include "format/augment/resize/resize_vertical.inc"
