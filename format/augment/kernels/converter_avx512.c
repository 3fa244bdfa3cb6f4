/* AVX-512 kernels of the converter: sixteen floats or 64 bytes at a time. */
#include "format/augment/kernels/converter.h"
#include "format/augment/kernels/vectors.h"

#include <immintrin.h>
#include <string.h>

/* Stores sixteen elements, or those in `mask` if `whole` is false. */
INLINE void converter_put(uint8_t *output, size_t at, __m128i pixels, __m512 scale, __m512 bias,
			  const enum pipeline_element element, const bool whole, __mmask16 mask)
{
	if (element == PIPELINE_U8) {
		if (whole)
			_mm_storeu_si128((__m128i *)(output + at), pixels);
		else
			_mm_mask_storeu_epi8(output + at, mask, pixels);
		return;
	}
	__m512 value = _mm512_add_ps(
		_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(pixels)), scale), bias);

	if (element == PIPELINE_F32) {
		if (whole)
			_mm512_storeu_ps(output + 4 * at, value);
		else
			_mm512_mask_storeu_ps(output + 4 * at, mask, value);
		return;
	}
	__m256i half;

	if (element == PIPELINE_F16) {
		half = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	} else {
		__m512i bits = _mm512_castps_si512(value);
		__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

		bits = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
		half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
	}
	if (whole)
		_mm256_storeu_si256((__m256i *)(output + 2 * at), half);
	else
		_mm256_mask_storeu_epi16(output + 2 * at, mask, half);
}

INLINE void row_interleaved(const struct converter *converter, const uint8_t *pixels,
			    uint8_t *output, const enum pipeline_element element)
{
	size_t size = (size_t)converter->shape.width * converter->shape.channels, i = 0;
	__m512 scale[3], bias[3];

	for (int k = 0; k < 3; k++) {
		scale[k] = _mm512_load_ps(converter->scale + 16 * k);
		bias[k] = _mm512_load_ps(converter->bias + 16 * k);
	}
	for (; i + CONVERTER_PERIOD <= size; i += CONVERTER_PERIOD)
#pragma GCC unroll 3
		for (unsigned k = 0; k < 3; k++)
			converter_put(output, i + 16 * k,
				      _mm_loadu_si128((const void *)(pixels + i + 16 * k)),
				      scale[k], bias[k], element, true, 0);
#pragma GCC unroll 3
	for (unsigned k = 0; k < 3; k++, i += 16) {
		if (i >= size)
			return;
		__mmask16 mask = (__mmask16)(size - i < 16 ? (1u << (size - i)) - 1 : 0xffff);

		converter_put(output, i, _mm_maskz_loadu_epi8(mask, pixels + i), scale[k], bias[k],
			      element, false, mask);
	}
}

/*
 * Spreads sixteen pixels over the 128-bit lanes, four in each; the last four bytes of a lane are
 * undefined.
 */
INLINE __m512i spread_pixels(__m512i bytes)
{
	return _mm512_permutexvar_epi32(
		_mm512_setr_epi32(0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15), bytes);
}

/* Splits up to sixteen pixels into their channels. */
INLINE void take_channels(const uint8_t *pixels, uint32_t count, __m128i ret_channels[3])
{
	const __m512i by_channel = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
	__m512i bytes = spread_pixels(_mm512_maskz_loadu_epi8((1ull << 3 * count) - 1, pixels));

	bytes = _mm512_permutexvar_epi32(
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
		_mm512_shuffle_epi8(bytes, by_channel));
	ret_channels[0] = _mm512_castsi512_si128(bytes);
	ret_channels[1] = _mm512_extracti32x4_epi32(bytes, 1);
	ret_channels[2] = _mm512_extracti32x4_epi32(bytes, 2);
}

INLINE void row_planar(const struct converter *converter, const uint8_t *pixels,
		       uint8_t *const planes[4], const enum pipeline_element element)
{
	uint32_t width = converter->shape.width;

	for (uint32_t x = 0; x < width; x += 16) {
		bool whole = x + 16 <= width;
		uint32_t count = whole ? 16 : width - x;
		__mmask16 mask = (__mmask16)((1u << count) - 1);
		__m128i channels[3];

		take_channels(pixels + (size_t)3 * x, count, channels);
#pragma GCC unroll 3
		for (unsigned c = 0; c < 3; c++) {
			__m512 scale = _mm512_set1_ps(converter->scale[c]),
			       bias = _mm512_set1_ps(converter->bias[c]);

			if (whole)
				converter_put(planes[c], x, channels[c], scale, bias, element, true,
					      0);
			else
				converter_put(planes[c], x, channels[c], scale, bias, element,
					      false, mask);
		}
	}
}

#include "format/augment/kernels/converter.inc"

INLINE void copy_pixels(uint8_t *output, const uint8_t *pixels, uint32_t count,
			const uint32_t channels, const bool reverse)
{
	/*
	 * Shuffles within lanes of four pixels: `widen` adds a zero channel, `turn_wide` adds one
	 * and reverses, `turn` only reverses. With three channels, `close` then joins the pixels of
	 * all lanes, the last lane first.
	 */
	const __m512i widen = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
	const __m512i turn_wide = _mm512_broadcast_i32x4(
		_mm_setr_epi8(9, 10, 11, -1, 6, 7, 8, -1, 3, 4, 5, -1, 0, 1, 2, -1));
	const __m512i turn = _mm512_broadcast_i32x4(
		_mm_setr_epi8(9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, -1, -1, -1, -1));
	const __m512i close =
		_mm512_setr_epi32(12, 13, 14, 8, 9, 10, 4, 5, 6, 0, 1, 2, 15, 15, 15, 15);
	uint32_t x = 0;

	for (; x + 16 <= count; x += 16, output += 16 * channels) {
		const uint8_t *from = pixels + (size_t)3 * (reverse ? count - x - 16 : x);
		__m512i bytes = spread_pixels(_mm512_maskz_loadu_epi32(0xfff, from));

		if (channels == 4 && reverse) {
			bytes = _mm512_shuffle_epi8(bytes, turn_wide);
			_mm512_storeu_si512(output, _mm512_shuffle_i64x2(bytes, bytes, 0x1b));
		} else if (channels == 4) {
			_mm512_storeu_si512(output, _mm512_shuffle_epi8(bytes, widen));
		} else {
			bytes = _mm512_permutexvar_epi32(close, _mm512_shuffle_epi8(bytes, turn));
			_mm256_storeu_si256((__m256i *)output, _mm512_castsi512_si256(bytes));
			_mm_storeu_si128((__m128i *)(output + 32),
					 _mm512_extracti32x4_epi32(bytes, 2));
		}
	}
	if (x < count)
		converter_kernels_c.copy(output, pixels + (size_t)3 * (reverse ? 0 : x), count - x,
					 channels, reverse);
}

static void converter_copy(uint8_t *output, const uint8_t *pixels, uint32_t count,
			   uint32_t channels, bool reverse)
{
	if (channels == 4 && reverse)
		copy_pixels(output, pixels, count, 4, true);
	else if (channels == 4)
		copy_pixels(output, pixels, count, 4, false);
	else if (reverse)
		copy_pixels(output, pixels, count, 3, true);
	else
		memcpy(output, pixels, (size_t)3 * count);
}

static void converter_stream_lines(uint8_t *output, const uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at < size; at += CONVERTER_LINE)
		_mm512_stream_si512((void *)(output + at), _mm512_loadu_si512(bytes + at));
}

const struct converter_kernels OF_SET(converter_kernels) = {.row = converter_convert,
							    .copy = converter_copy,
							    .stream = converter_stream_lines,
							    .fence = converter_fence};
