/*
 * AVX2 kernels of resize: the plan of resize_avx512.c with half the width.
 *
 * Horizontal, by window: a vector is eight elements, four in each 128-bit lane, and each lane has
 * its own 16 bytes of the row from which a byte shuffle takes two taps of each element. Where all
 * taps of a lane lie within one such window it is loaded once, otherwise once per pair of taps. By
 * dot: when four elements lie further apart than that, a vector is four taps of one output.
 */
#include "loaderd/augment/resize/resize_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "loaderd/augment/resize/resize_table.inc"

enum {
	GROUP = 8,    /* elements of a vector */
	LANE = 4,     /* of its half, which has a window of its own */
	WINDOW = 16,  /* bytes */
	ROWS = 4,     /* at once: more do not fit into 16 registers */
	DOT_TAPS = 4, /* taps of a vector */
};

enum mode { MODE_ONCE, MODE_PAIRS, MODE_DOT };

#define INLINE static inline __attribute__((always_inline))

/* What a window method needs per group and pair of taps. */
struct entry {
	__m256i index, weight;
};

#include "loaderd/augment/resize/resize_dot.inc"

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

/* Weights of one pair of taps for the lanes' outputs. */
static __m256i pair_weight(const struct resize_table *table, uint32_t tap, uint32_t first,
			   __m256i output, __m256i used)
{
	const int16_t *even = table->weight + (size_t)tap * table->padded + first;
	__m256i weight = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)even));

	if (tap + 1 < table->taps) {
		__m128i odd = _mm_loadu_si128((const void *)(even + table->padded));

		weight = _mm256_or_si256(weight, _mm256_slli_epi32(_mm256_cvtepu16_epi32(odd), 16));
	}
	return _mm256_and_si256(_mm256_permutevar8x32_epi32(weight, output), used);
}

static void pack_window(const struct resize_pass *pass)
{
	const struct resize_table *table = pass->table;
	uint32_t pairs = pair_count_of(table), groups = group_count(pass);
	int32_t channels = (int32_t)pass->source_channels,
		base_max = (int32_t)pass->row_size - WINDOW, low, high;
	int32_t *bases = pass->packed;
	struct entry *entries = (struct entry *)((char *)pass->packed + bases_size(pass));
	__m256i output[4], channel[4], used[4];

	for (uint32_t r = 0; r < pass->target_channels; r++) {
		int32_t lane_output[GROUP], lane_channel[GROUP];

		for (uint32_t i = 0; i < GROUP; i++) {
			uint32_t element = r * GROUP + i;

			lane_output[i] = (int32_t)(element / pass->target_channels);
			lane_channel[i] = resize_channel(pass->source_channels,
							 element % pass->target_channels);
		}
		output[r] = _mm256_loadu_si256((const void *)lane_output);
		channel[r] = _mm256_loadu_si256((const void *)lane_channel);
		used[r] = _mm256_cmpgt_epi32(channel[r], _mm256_set1_epi32(-1));
	}
	for (uint32_t group = 0; group < groups; group++) {
		uint32_t r = group % pass->target_channels,
			 first = group / pass->target_channels * GROUP;
		bool padding = first >= table->padded;
		const int32_t *start = table->start + (padding ? 0 : first);
		__m256i at = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const void *)start),
							 output[r]);

		at = _mm256_add_epi32(_mm256_mullo_epi32(at, _mm256_set1_epi32(channels)),
				      channel[r]);
		for (uint32_t p = 0; p < pairs; p++, entries++) {
			for (uint32_t half = 0; half < 2; half++) {
				start_range(pass, group * GROUP + half * LANE, LANE, &low, &high);
				int32_t base =
					low * channels + (pass->mode == MODE_PAIRS
								  ? (int32_t)(2 * p) * channels
								  : 0);
				/*
				 * A window must end inside the row: near its end it starts earlier.
				 */
				*bases++ = base < base_max ? base : base_max;
			}
			__m256i base = _mm256_inserti128_si256(_mm256_set1_epi32(bases[-2]),
							       _mm_set1_epi32(bases[-1]), 1);
			__m256i even = _mm256_sub_epi32(
				_mm256_add_epi32(at,
						 _mm256_set1_epi32((int32_t)(2 * p) * channels)),
				base);
			__m256i odd = _mm256_add_epi32(even, _mm256_set1_epi32(channels));

			/*
			 * Taps without weight may point anywhere in the window; the odd bytes
			 * become zero.
			 */
			even = _mm256_and_si256(even, _mm256_set1_epi32(0x0f));
			odd = _mm256_slli_epi32(_mm256_and_si256(odd, _mm256_set1_epi32(0x0f)), 16);
			entries->index = _mm256_or_si256(_mm256_or_si256(even, odd),
							 _mm256_set1_epi32((int32_t)0x80008000));
			entries->weight =
				padding ? _mm256_setzero_si256()
					: pair_weight(table, 2 * p, first, output[r], used[r]);
		}
	}
}

/*
 * The even row's sums and the odd row's to one pair row: bits 8 to 23 of each, which are 8.6 fixed
 * point.
 */
INLINE __m256i join_rows(__m256i even, __m256i odd)
{
	return _mm256_blend_epi16(
		_mm256_srli_epi32(even, RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS),
		_mm256_slli_epi32(odd, 16 - (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS)), 0xaa);
}

#define HALF (1 << (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS - 1))

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
			sum[i] = _mm256_set1_epi32(HALF);
			taps[i] = load_window(rows[i], bases);
		}
		for (uint32_t p = 0; p < pairs; p++) {
			__m256i index = entries[p].index, weight = entries[p].weight;

#pragma GCC unroll 4
			for (unsigned i = 0; i < row_count; i++) {
				if (!once && p)
					taps[i] = load_window(rows[i], bases + (size_t)2 * p);
				__m256i product = _mm256_madd_epi16(
					_mm256_shuffle_epi8(taps[i], index), weight);

				sum[i] = _mm256_add_epi32(sum[i], product);
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

/* 16 bytes of a row in both halves, of which only those inside it are touched. */
INLINE __m256i load_dot(const uint8_t *row, size_t at, size_t row_size)
{
	if (at + WINDOW <= row_size)
		return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(row + at)));
	uint8_t rest[WINDOW] = {0};

	memcpy(rest, row + at, row_size - at);
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)rest));
}

INLINE __m256i fold_dot(__m256i sum)
{
	__m128i channels =
		_mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));

	return _mm256_castsi128_si256(_mm_add_epi32(channels, _mm_set1_epi32(HALF)));
}

INLINE void dot_rows(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
		     const uint8_t *const rows[], const unsigned row_count, int32_t *const out[])
{
	const struct resize_table *table = pass->table;
	const uint32_t chunks = dot_chunks(table), channels = pass->target_channels;
	const uint32_t first = block * RESIZE_BLOCK, end = first + block_count * RESIZE_BLOCK;
	const size_t step = (size_t)DOT_TAPS * pass->source_channels;
	const __m256i spread = _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0);
	uint8_t bytes[32];

	for (uint32_t i = 0; i < 32; i++) {
		uint32_t lane = i / 4 % 4, tap = 2 * (i / 16) + i / 2 % 2;
		int channel = lane < channels ? resize_channel(pass->source_channels, lane) : -1;

		bytes[i] = i % 2 || channel < 0
				   ? 0x80
				   : (uint8_t)(tap * pass->source_channels + (uint32_t)channel);
	}
	const __m256i index = _mm256_loadu_si256((const void *)bytes);

	for (uint32_t j = first / channels; j < table->count && j * channels < end; j++) {
		const int16_t *weights =
			(const int16_t *)pass->packed + (size_t)j * chunks * DOT_TAPS;
		size_t at = (size_t)table->start[j] * pass->source_channels;
		__m256i sum[ROWS];

#pragma GCC unroll 4
		for (unsigned i = 0; i < row_count; i++)
			sum[i] = _mm256_setzero_si256();
		for (uint32_t k = 0; k < chunks; k++, at += step, weights += DOT_TAPS) {
			__m256i weight = _mm256_permutevar8x32_epi32(
				_mm256_castsi128_si256(_mm_loadl_epi64((const void *)weights)),
				spread);

#pragma GCC unroll 4
			for (unsigned i = 0; i < row_count; i++) {
				__m256i taps = _mm256_shuffle_epi8(
					load_dot(rows[i], at, pass->row_size), index);

				sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(taps, weight));
			}
		}
		/* Where a tile cuts through a pixel, only its own elements are stored. */
		uint32_t skip = j * channels < first ? first - j * channels : 0;
		uint32_t keep = end - j * channels < channels ? end - j * channels : channels;

#pragma GCC unroll 2
		for (unsigned i = 0; i < row_count; i += 2) {
			int32_t joined[GROUP];

			_mm256_storeu_si256((__m256i *)joined,
					    join_rows(fold_dot(sum[i]), fold_dot(sum[i + 1])));
			memcpy(out[i / 2] + (j * channels + skip - first), joined + skip,
			       (keep - skip) * sizeof(*joined));
		}
	}
}

#include "loaderd/augment/resize/resize_band.inc"

/* 32 elements from element at on. */
INLINE __m256i vertical_block(const int32_t *const pairs[], const int32_t weights[],
			      const uint32_t pair_count, uint32_t at)
{
	const int shift = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS;
	__m256i sum[4];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		sum[i] = _mm256_set1_epi32(1 << (shift - 1));
	for (uint32_t k = 0; k < pair_count; k++) {
		__m256i weight = _mm256_set1_epi32(weights[k]);

#pragma GCC unroll 4
		for (unsigned i = 0; i < 4; i++) {
			const __m256i *pair = (const __m256i *)(pairs[k] + at + i * GROUP);

			sum[i] = _mm256_add_epi32(
				sum[i], _mm256_madd_epi16(_mm256_load_si256(pair), weight));
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		sum[i] = _mm256_srli_epi32(sum[i], shift);
	__m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(sum[0], sum[1]),
					    _mm256_packus_epi32(sum[2], sum[3]));

	return _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

INLINE void vertical_row(const int32_t *const pairs[], const int32_t weights[],
			 const uint32_t pair_count, uint32_t size, uint8_t *restrict output,
			 const bool stream)
{
	uint32_t at = 0;

	for (; at + 32 <= size; at += 32) {
		__m256i bytes = vertical_block(pairs, weights, pair_count, at);

		if (stream)
			_mm256_stream_si256((__m256i *)(output + at), bytes);
		else
			_mm256_storeu_si256((__m256i *)(output + at), bytes);
	}
	if (at < size) {
		uint8_t rest[32];

		_mm256_storeu_si256((__m256i *)rest,
				    vertical_block(pairs, weights, pair_count, at));
		memcpy(output + at, rest, size - at);
	}
}

#include "loaderd/augment/resize/resize_vertical.inc"

#include "loaderd/augment/resize/resize_rgb.inc"

/*
 * 16 elements of a plane to words of 8.7 fixed point, plus bias: in each 128-bit lane four of the
 * first 8 and four of the others.
 */
INLINE __m256i plane_words(const struct resize_terms *plane, uint32_t at, int bias)
{
	const int shift = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS - RESIZE_COLOUR_BITS;
	__m256i low = _mm256_set1_epi32((1 << (shift - 1)) + bias * (1 << shift)), high = low;

	for (uint32_t k = 0; k < plane->count; k++) {
		__m256i weight = _mm256_set1_epi32(plane->weights[k]);
		const __m256i *pairs = (const __m256i *)(plane->pairs[k] + at);

		low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_load_si256(pairs), weight));
		high = _mm256_add_epi32(high,
					_mm256_madd_epi16(_mm256_load_si256(pairs + 1), weight));
	}
	return _mm256_packs_epi32(_mm256_srai_epi32(low, shift), _mm256_srai_epi32(high, shift));
}

/* Red, green and blue of 16 pixels, as words. */
INLINE void colour_words(const struct resize_terms planes[3], uint32_t at, __m256i out[3])
{
	const int middle = 128 << RESIZE_COLOUR_BITS;
	__m256i y = plane_words(&planes[0], at, 1 << (RESIZE_COLOUR_BITS - 1));
	__m256i cb = plane_words(&planes[1], at, -middle);
	__m256i cr = plane_words(&planes[2], at, -middle);
	__m256i green = _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(RESIZE_GREEN_CB));

	out[0] = _mm256_add_epi16(cr, _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(RESIZE_RED_CR)));
	out[1] = _mm256_add_epi16(
		green,
		_mm256_sub_epi16(_mm256_mulhrs_epi16(cr, _mm256_set1_epi16(RESIZE_GREEN_CR)), cr));
	out[2] = _mm256_add_epi16(_mm256_add_epi16(cb, cb),
				  _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(RESIZE_BLUE_CB)));
	for (int i = 0; i < 3; i++)
		out[i] = _mm256_srai_epi16(_mm256_adds_epi16(y, out[i]), RESIZE_COLOUR_BITS);
}

INLINE void colour_row(const struct resize_terms planes[3], uint32_t count, const uint32_t channels,
		       uint8_t *output)
{
	/* Two packings leave four pixels of every eight in one lane and four in the other. */
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	uint8_t last[32 * 4];

	for (uint32_t at = 0; at < count; at += 32, output += (size_t)32 * channels) {
		__m256i low[3], high[3], rgb[3];
		bool whole = count - at >= 32;
		uint8_t *out = whole ? output : last;

		colour_words(planes, at, low);
		colour_words(planes, at + 16, high);
		for (int i = 0; i < 3; i++)
			rgb[i] = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low[i], high[i]),
							     order);
		interleave_lane(_mm256_castsi256_si128(rgb[0]), _mm256_castsi256_si128(rgb[1]),
				_mm256_castsi256_si128(rgb[2]), channels, out);
		interleave_lane(_mm256_extracti128_si256(rgb[0], 1),
				_mm256_extracti128_si256(rgb[1], 1),
				_mm256_extracti128_si256(rgb[2], 1), channels, out + 16 * channels);
		if (!whole)
			memcpy(output, last, (size_t)(count - at) * channels);
	}
}

static void resize_colour(const struct resize_terms planes[3], uint32_t count, uint32_t channels,
			  uint8_t *output)
{
	if (channels == 3)
		colour_row(planes, count, 3, output);
	else
		colour_row(planes, count, 4, output);
}

const struct resize_kernels resize_kernels_avx2 = RESIZE_KERNELS;
