/*
 * AVX-512 kernels of resize.
 *
 * Horizontal, by window: a vector is 16 elements, which come from a short stretch of the row. One
 * byte permutation (without VBMI two permutations, see byte_index) brings two taps of each element
 * into the halves of its lane, a multiplication weighs and adds them; index and weight vectors are
 * shared by the rows of a band. Because an element is a channel of a pixel, the result is
 * interleaved as the output is, and a flip is only another table.
 *
 * Horizontal, by dot: when shrinking so much that 16 elements lie further apart than the window, a
 * vector is instead 8 taps of one output.
 *
 * Vertical: one multiplication per pair of rows, straight from memory.
 */
#include "loaderd/augment/kernels/avx512.h"
#include "loaderd/augment/resize/resize_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "loaderd/augment/resize/resize_table.inc"

enum {
	GROUP = 16,         /* elements of a vector */
	DOT_TAPS = 8,       /* taps of a vector */
	DOT_BYTES = 32,     /* loaded for them, of which taps * channels count */
	ROWS = RESIZE_BAND, /* at once */
};

enum mode { MODE_32, MODE_64, MODE_128, MODE_DOT };

#include "loaderd/augment/resize/resize_dot.inc"

/*
 * How the words of a vector get each a byte of a window: with VBMI by that byte's number. Without,
 * the 16-bit or 32-bit units that hold the bytes go to the right 128-bit lanes first, then the
 * bytes go to the right places in them. Units of 32 bits, four to a lane, are cheaper (Intel's
 * VPERMW is two operations), but what a lane takes must lie within 13 bytes.
 */
struct byte_index {
	__m512i units, bytes;
};

enum {
#ifdef __AVX512VBMI__
	VECTORS = 2, /* of a table per group and pair of taps: units, weights */
#else
	VECTORS = 3, /* units, bytes, weights */
#endif
	LANE = 4,   /* elements of a lane */
	NARROW = 4, /* in a pass's mode: units of 32 bits */
};

/* numbers: of two words' bytes in each element, of which the low seven bits count. */
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

/* From a, and b, its continuation, if twice. */
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

static bool is_narrow(const struct resize_pass *pass)
{
	return VECTORS == 3 && pass->mode & NARROW;
}

static uint32_t group_count(const struct resize_pass *pass)
{
	return (pass->elements + GROUP - 1) / GROUP;
}

/*
 * First byte of the pixels of which so many elements read taps; the bytes from there to the last
 * tap's end in *ret_size.
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

/*
 * At any distance to where a unit of 32 bits begins, the bytes of a lane must fit into four of
 * these.
 */
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

/*
 * Lane i of vector r (of target_channels vectors per 16 outputs): which output, and which source
 * channel or -1.
 */
static void lane_sources(const struct resize_pass *pass, uint32_t r, int32_t output[GROUP],
			 int32_t channel[GROUP])
{
	for (uint32_t i = 0; i < GROUP; i++) {
		output[i] = (int32_t)((r * GROUP + i) / pass->target_channels);
		channel[i] = resize_channel(pass->source_channels,
					    (r * GROUP + i) % pass->target_channels);
	}
}

static void pack_window(const struct resize_pass *pass)
{
	const struct resize_table *table = pass->table;
	uint32_t pairs = pair_count_of(table), groups = group_count(pass);
	int32_t channels = (int32_t)pass->source_channels;
	int32_t base_max = (int32_t)(pass->row_size - pass->row_size_min), size;
	int32_t *bases = pass->packed;
	__m512i *vectors = (__m512i *)((char *)pass->packed + base_size(pass));
	__m512i output[4], channel[4];
	__mmask16 used[4];
	__m512i none = _mm512_setzero_si512();

	for (uint32_t r = 0; r < pass->target_channels; r++) {
		int32_t lane_output[GROUP], lane_channel[GROUP];

		lane_sources(pass, r, lane_output, lane_channel);
		output[r] = _mm512_loadu_si512(lane_output);
		channel[r] = _mm512_loadu_si512(lane_channel);
		used[r] = _mm512_cmpge_epi32_mask(channel[r], none);
		channel[r] = _mm512_max_epi32(channel[r], none);
	}
	for (uint32_t group = 0; group < groups; group++) {
		uint32_t r = group % pass->target_channels;
		uint32_t first = group / pass->target_channels * GROUP;
		int32_t base = reach(pass, group * GROUP, GROUP, table->taps, &size);

		/* The window must end inside the row: near its end it starts earlier. */
		base = base < base_max ? base : base_max;
		bases[group] = base;
		__m512i at = _mm512_permutexvar_epi32(output[r],
						      _mm512_loadu_si512(table->start + first));

		at = _mm512_mullo_epi32(at, _mm512_set1_epi32(channels));
		at = _mm512_sub_epi32(_mm512_add_epi32(at, channel[r]), _mm512_set1_epi32(base));
		/* Both taps of a pair; indices of taps without weight may wrap. */
		at = _mm512_or_si512(
			at,
			_mm512_slli_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(channels)), 16));
		for (uint32_t p = 0; p < pairs; p++) {
			const int16_t *even = table->weight + (size_t)2 * p * table->padded + first;
			__m512i weight =
				_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)even));

			if (2 * p + 1 < table->taps)
				weight = _mm512_or_si512(
					weight,
					_mm512_slli_epi32(
						_mm512_cvtepu16_epi32(_mm256_loadu_si256(
							(const void *)(even + table->padded))),
						16));
			const struct byte_index index = byte_index(at, is_narrow(pass));

			_mm512_store_si512(&vectors[VECTORS - 2], index.bytes);
			_mm512_store_si512(&vectors[0], index.units);
			_mm512_store_si512(
				&vectors[VECTORS - 1],
				_mm512_maskz_permutexvar_epi32(used[r], output[r], weight));
			vectors += VECTORS;
			at = _mm512_add_epi8(at, _mm512_set1_epi8((char)(2 * channels)));
		}
	}
}

/*
 * The even row's sums and the odd row's to one pair row: bits 8 to 23 of each, which are 8.6 fixed
 * point.
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

#define HALF _mm512_set1_epi32(1 << (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS - 1))

/* One pair of taps of several rows. */
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
 * One group of elements of several rows. All but the pointers and narrow is constant where it is
 * called.
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
	const uint32_t most = block_count * (RESIZE_BLOCK / GROUP),
		       count = most < left ? most : left;
	const int32_t *bases = (const int32_t *)pass->packed + first;
	const __m512i *vectors = (const __m512i *)((const char *)pass->packed + base_size(pass)) +
				 (size_t)first * pairs * VECTORS;
	const bool narrow = is_narrow(pass);

	for (uint32_t group = 0; group < count; group++, vectors += VECTORS * pairs)
		window_group(rows, bases[group], vectors, pairs, row_count, mode, narrow, out,
			     group * GROUP);
}

/* The filter lengths that crops meet get loops of their own. */
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

/* 32 bytes of a row, of which only those inside it are touched. */
INLINE __m512i load_dot(const uint8_t *row, size_t at, size_t row_size)
{
	if (at + DOT_BYTES <= row_size)
		return _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(row + at)));
	return _mm512_castsi256_si512(
		_mm256_maskz_loadu_epi8((__mmask32)((1ull << (row_size - at)) - 1), row + at));
}

/* Sums of the channels in lanes 0 to 3. */
INLINE __m128i fold_dot(__m512i sum)
{
	__m256i half =
		_mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));

	return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

INLINE void dot_rows(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
		     const uint8_t *const rows[], const unsigned row_count, int32_t *const out[])
{
	const struct resize_table *table = pass->table;
	const uint32_t chunks = dot_chunks(table), channels = pass->target_channels;
	const uint32_t first = block * RESIZE_BLOCK, end = first + block_count * RESIZE_BLOCK;
	const size_t step = (size_t)DOT_TAPS * pass->source_channels;
	uint8_t bytes[64] = {0};
	__mmask32 used = 0;

	for (uint32_t i = 0; i < 64; i += 2) {
		int channel = i / 4 % 4 < channels
				      ? resize_channel(pass->source_channels, i / 4 % 4)
				      : -1;

		bytes[i] = (uint8_t)((2 * (i / 16) + i / 2 % 2) * pass->source_channels);
		if (channel >= 0) {
			bytes[i] = (uint8_t)(bytes[i] + channel);
			used |= 1u << i / 2;
		}
	}
	const struct byte_index index = byte_index(_mm512_loadu_si512(bytes), true);
	const __m512i spread = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);

	for (uint32_t j = first / channels; j < table->count && j * channels < end; j++) {
		const int16_t *weights =
			(const int16_t *)pass->packed + (size_t)j * chunks * DOT_TAPS;
		size_t at = (size_t)table->start[j] * pass->source_channels;
		__m512i sum[RESIZE_BAND];

#pragma GCC unroll 8
		for (unsigned i = 0; i < row_count; i++)
			sum[i] = _mm512_setzero_si512();
		for (uint32_t k = 0; k < chunks; k++, at += step, weights += DOT_TAPS) {
			__m512i weight = _mm512_permutexvar_epi32(
				spread,
				_mm512_castsi128_si512(_mm_load_si128((const void *)weights)));

#pragma GCC unroll 8
			for (unsigned i = 0; i < row_count; i++) {
				__m512i taps = load_dot(rows[i], at, pass->row_size);

				taps = _mm512_maskz_mov_epi16(
					used, take_bytes(index, taps, taps, false, true));
				sum[i] = multiply_add(sum[i], taps, weight);
			}
		}
		/* Where a tile cuts through a pixel, only its own elements are stored. */
		uint32_t skip = j * channels < first ? first - j * channels : 0;
		uint32_t keep = end - j * channels < channels ? end - j * channels : channels;
		__mmask8 mask = (__mmask8)((1u << keep) - (1u << skip));
		__m128i half = _mm512_castsi512_si128(HALF);

#pragma GCC unroll 4
		for (unsigned i = 0; i < row_count; i += 2) {
			__m512i even =
				_mm512_castsi128_si512(_mm_add_epi32(fold_dot(sum[i]), half));
			__m512i odd =
				_mm512_castsi128_si512(_mm_add_epi32(fold_dot(sum[i + 1]), half));

			_mm_mask_storeu_epi32(out[i / 2] + ((ptrdiff_t)j * channels - first), mask,
					      _mm512_castsi512_si128(join_rows(even, odd)));
		}
	}
}

#include "loaderd/augment/resize/resize_band.inc"

/* 64 elements from element at on. */
INLINE __m512i vertical_block(const int32_t *const pairs[], const int32_t weights[],
			      const uint32_t pair_count, uint32_t at)
{
	const int shift = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS;
#ifdef __AVX512VBMI__
	static const uint16_t high_halves[32] __attribute__((aligned(64))) = {
		1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
		33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
	static const uint8_t low_bytes[64] __attribute__((aligned(64))) = {
#define FOUR(i) 2 * (i), 2 * (i) + 2, 2 * (i) + 4, 2 * (i) + 6
		FOUR(0),  FOUR(4),  FOUR(8),  FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28),
		FOUR(32), FOUR(36), FOUR(40), FOUR(44), FOUR(48), FOUR(52), FOUR(56), FOUR(60)};
#undef FOUR
	const __m512i halves = _mm512_load_si512(high_halves);
#endif
	__m512i sum[4];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		sum[i] = _mm512_set1_epi32(1 << (shift - 1));
	for (uint32_t k = 0; k < pair_count; k++) {
		__m512i weight = _mm512_set1_epi32(weights[k]);

#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			sum[i] = multiply_add(
				sum[i], _mm512_load_si512(pairs[k] + at + (unsigned)i * GROUP),
				weight);
	}
#ifdef __AVX512VBMI__
	__m512i a =
		_mm512_srli_epi16(_mm512_permutex2var_epi16(sum[0], halves, sum[1]), shift - 16);
	__m512i b =
		_mm512_srli_epi16(_mm512_permutex2var_epi16(sum[2], halves, sum[3]), shift - 16);

	return _mm512_permutex2var_epi8(a, _mm512_load_si512(low_bytes), b);
#else
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		sum[i] = _mm512_srli_epi32(sum[i], shift);
	__m512i bytes = _mm512_packus_epi16(_mm512_packus_epi32(sum[0], sum[1]),
					    _mm512_packus_epi32(sum[2], sum[3]));

	return _mm512_permutexvar_epi32(
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
#endif
}

INLINE void vertical_row(const int32_t *const pairs[], const int32_t weights[],
			 const uint32_t pair_count, uint32_t size, uint8_t *restrict output,
			 const bool stream)
{
	uint32_t at = 0;

	/* Half a line first, so that what follows are whole ones. */
	if (stream && (uintptr_t)output % 64) {
		__m512i bytes = vertical_block(pairs, weights, pair_count, 0);

		_mm256_stream_si256((__m256i *)output, _mm512_castsi512_si256(bytes));
		at = 32;
	}
	for (; at + RESIZE_BLOCK <= size; at += RESIZE_BLOCK) {
		__m512i bytes = vertical_block(pairs, weights, pair_count, at);

		if (stream)
			_mm512_stream_si512((void *)(output + at), bytes);
		else
			_mm512_storeu_si512(output + at, bytes);
	}
	if (at < size) {
		__m512i bytes = vertical_block(pairs, weights, pair_count, at);

		if (stream)
			_mm256_stream_si256((__m256i *)(output + at),
					    _mm512_castsi512_si256(bytes));
		else
			_mm512_mask_storeu_epi8(output + at, (1ull << (size - at)) - 1, bytes);
	}
}

#include "loaderd/augment/resize/resize_vertical.inc"

/*
 * 32 elements of a plane to words of 8.7 fixed point, plus bias: in each 128-bit lane four of the
 * first 16 and four of the others.
 */
INLINE __m512i plane_words(const struct resize_terms *plane, const uint32_t pair_count, uint32_t at,
			   int bias)
{
	const int shift = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS - RESIZE_COLOUR_BITS;
	__m512i low = _mm512_set1_epi32((1 << (shift - 1)) + bias * (1 << shift)), high = low;

	for (uint32_t k = 0; k < pair_count; k++) {
		__m512i weight = _mm512_set1_epi32(plane->weights[k]);

		low = multiply_add(low, _mm512_load_si512(plane->pairs[k] + at), weight);
		high = multiply_add(high, _mm512_load_si512(plane->pairs[k] + at + GROUP), weight);
	}
	return _mm512_packs_epi32(_mm512_srai_epi32(low, shift), _mm512_srai_epi32(high, shift));
}

/* Red, green and blue of 32 pixels, as words. */
INLINE void colour_words(const struct resize_terms planes[3], const uint32_t luma_pairs,
			 const uint32_t chroma_pairs, uint32_t at, __m512i out[3])
{
	const int middle = 128 << RESIZE_COLOUR_BITS;
	__m512i y = plane_words(&planes[0], luma_pairs, at, 1 << (RESIZE_COLOUR_BITS - 1));
	__m512i cb = plane_words(&planes[1], chroma_pairs, at, -middle);
	__m512i cr = plane_words(&planes[2], chroma_pairs, at, -middle);
	__m512i green = _mm512_mulhrs_epi16(cb, _mm512_set1_epi16(RESIZE_GREEN_CB));

	out[0] = _mm512_add_epi16(cr, _mm512_mulhrs_epi16(cr, _mm512_set1_epi16(RESIZE_RED_CR)));
	out[1] = _mm512_add_epi16(
		green,
		_mm512_sub_epi16(_mm512_mulhrs_epi16(cr, _mm512_set1_epi16(RESIZE_GREEN_CR)), cr));
	out[2] = _mm512_add_epi16(_mm512_add_epi16(cb, cb),
				  _mm512_mulhrs_epi16(cb, _mm512_set1_epi16(RESIZE_BLUE_CB)));
	for (int i = 0; i < 3; i++)
		out[i] = _mm512_srai_epi16(_mm512_adds_epi16(y, out[i]), RESIZE_COLOUR_BITS);
}

#ifdef __AVX512VBMI__
/*
 * Byte n of pixels of so many channels: where it is among those of a colour after two packings, and
 * 64 where it is green.
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

/* Vector i of 64 pixels. */
INLINE __m512i interleave_vector(const __m512i rgb[3], uint32_t i, const uint32_t channels)
{
	/* Bytes of blue by vector, and those that are not zero. */
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

/* 64 pixels, or fewer. */
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
#include "loaderd/augment/resize/resize_rgb.inc"

/* 64 pixels, or fewer. */
INLINE void interleave(const __m512i rgb[3], const uint32_t channels, uint32_t count,
		       uint8_t *output)
{
	/* Two packings leave four pixels of every sixteen in each lane. */
	const __m512i order =
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m512i r = _mm512_permutexvar_epi32(order, rgb[0]);
	__m512i g = _mm512_permutexvar_epi32(order, rgb[1]);
	__m512i b = _mm512_permutexvar_epi32(order, rgb[2]);

	uint8_t last[RESIZE_BLOCK * 4], *out = count < RESIZE_BLOCK ? last : output;

	interleave_lane(_mm512_castsi512_si128(r), _mm512_castsi512_si128(g),
			_mm512_castsi512_si128(b), channels, out);
	interleave_lane(_mm512_extracti32x4_epi32(r, 1), _mm512_extracti32x4_epi32(g, 1),
			_mm512_extracti32x4_epi32(b, 1), channels, out + 16 * channels);
	interleave_lane(_mm512_extracti32x4_epi32(r, 2), _mm512_extracti32x4_epi32(g, 2),
			_mm512_extracti32x4_epi32(b, 2), channels, out + 32 * channels);
	interleave_lane(_mm512_extracti32x4_epi32(r, 3), _mm512_extracti32x4_epi32(g, 3),
			_mm512_extracti32x4_epi32(b, 3), channels, out + 48 * channels);
	if (count < RESIZE_BLOCK)
		memcpy(output, last, (size_t)count * channels);
}
#endif

INLINE void colour_row(const struct resize_terms planes[3], const uint32_t luma_pairs,
		       const uint32_t chroma_pairs, uint32_t count, const uint32_t channels,
		       uint8_t *output)
{
	for (uint32_t at = 0; at < count;
	     at += RESIZE_BLOCK, output += (size_t)RESIZE_BLOCK * channels) {
		__m512i low[3], high[3], rgb[3];

		colour_words(planes, luma_pairs, chroma_pairs, at, low);
		colour_words(planes, luma_pairs, chroma_pairs, at + 32, high);
		for (int i = 0; i < 3; i++)
			rgb[i] = _mm512_packus_epi16(low[i], high[i]);
		interleave(rgb, channels, count - at < RESIZE_BLOCK ? count - at : RESIZE_BLOCK,
			   output);
	}
}

INLINE void colour_rows(const struct resize_terms planes[3], uint32_t count,
			const uint32_t channels, uint8_t *output)
{
	uint32_t luma = planes[0].count, chroma = planes[1].count;

	switch (luma << 4 | chroma) {
	case 1 << 4 | 1:
		colour_row(planes, 1, 1, count, channels, output);
		break;
	case 1 << 4 | 2:
		colour_row(planes, 1, 2, count, channels, output);
		break;
	case 2 << 4 | 1:
		colour_row(planes, 2, 1, count, channels, output);
		break;
	case 2 << 4 | 2:
		colour_row(planes, 2, 2, count, channels, output);
		break;
	default:
		colour_row(planes, luma, chroma, count, channels, output);
	}
}

static void resize_colour(const struct resize_terms planes[3], uint32_t count, uint32_t channels,
			  uint8_t *output)
{
	if (channels == 3)
		colour_rows(planes, count, 3, output);
	else
		colour_rows(planes, count, 4, output);
}

const struct resize_kernels AVX512(resize_kernels) = RESIZE_KERNELS;
