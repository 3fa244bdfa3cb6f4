/* AVX2 kernels of the converter: eight floats or 16 bytes at a time. */
#include "format/augment/kernels/converter.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Stores eight elements, converted from the low half of `pixels`. */
INLINE void converter_put(uint8_t *output, size_t at, __m128i pixels, __m256 scale, __m256 bias,
			  const enum pipeline_element element)
{
	__m256 value = _mm256_add_ps(
		_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(pixels)), scale), bias);

	if (element == PIPELINE_F32) {
		_mm256_storeu_ps((float *)(void *)(output + 4 * at), value);
		return;
	}
	__m128i half;

	if (element == PIPELINE_F16) {
		half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
	} else {
		__m256i bits = _mm256_castps_si256(value);
		__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

		bits = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
		bits = _mm256_srli_epi32(bits, 16);
		bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
		half = _mm256_castsi256_si128(bits);
	}
	_mm_storeu_si128((__m128i *)(output + 2 * at), half);
}

static size_t element_size(enum pipeline_element element)
{
	return element == PIPELINE_F32 ? 4 : 2;
}

/* Stores the last elements of a row, at most one vector, through a temporary vector. */
INLINE void put_rest(uint8_t *output, size_t at, const uint8_t *pixels, size_t count, __m256 scale,
		     __m256 bias, const enum pipeline_element element)
{
	uint8_t bytes[16] = {0}, finished[32];

	memcpy(bytes, pixels, count);
	converter_put(finished, 0, _mm_loadu_si128((const void *)bytes), scale, bias, element);
	memcpy(output + at * element_size(element), finished, count * element_size(element));
}

INLINE void row_interleaved(const struct converter *converter, const uint8_t *pixels,
			    uint8_t *output, const enum pipeline_element element)
{
	size_t size = (size_t)converter->shape.width * converter->shape.channels, i = 0;
	const uint32_t period = 24; /* a multiple of whole pixels and of whole vectors */
	__m256 scale[3], bias[3];

	for (int k = 0; k < 3; k++) {
		scale[k] = _mm256_load_ps(converter->scale + 8 * k);
		bias[k] = _mm256_load_ps(converter->bias + 8 * k);
	}
	for (; i + period <= size; i += period)
#pragma GCC unroll 3
		for (unsigned k = 0; k < 3; k++)
			converter_put(output, i + 8 * k,
				      _mm_loadl_epi64((const void *)(pixels + i + 8 * k)), scale[k],
				      bias[k], element);
#pragma GCC unroll 3
	for (unsigned k = 0; k < 3; k++, i += 8) {
		if (i >= size)
			return;
		put_rest(output, i, pixels + i, size - i < 8 ? size - i : 8, scale[k], bias[k],
			 element);
	}
}

/* Returns one channel of sixteen pixels; the pixels fill three vectors. */
INLINE __m128i take_channel(const __m128i bytes[3], const unsigned channel)
{
	__m128i taken = _mm_setzero_si128();

#pragma GCC unroll 3
	for (int k = 0; k < 3; k++) {
		uint8_t index[16];

		for (int i = 0; i < 16; i++) {
			int from = 3 * i + (int)channel - 16 * k;

			index[i] = from >= 0 && from < 16 ? (uint8_t)from : 0x80;
		}
		taken = _mm_or_si128(
			taken, _mm_shuffle_epi8(bytes[k], _mm_loadu_si128((const void *)index)));
	}
	return taken;
}

INLINE void put_channel(const struct converter *converter, uint8_t *output, size_t at,
			__m128i channel, unsigned c, const enum pipeline_element element)
{
	if (element == PIPELINE_U8) {
		_mm_storeu_si128((__m128i *)(output + at), channel);
		return;
	}
	__m256 scale = _mm256_set1_ps(converter->scale[c]),
	       bias = _mm256_set1_ps(converter->bias[c]);

	converter_put(output, at, channel, scale, bias, element);
	converter_put(output, at + 8, _mm_srli_si128(channel, 8), scale, bias, element);
}

INLINE void row_planar(const struct converter *converter, const uint8_t *pixels,
		       uint8_t *const planes[4], const enum pipeline_element element)
{
	uint32_t width = converter->shape.width, x = 0;

	for (; x + 16 <= width; x += 16) {
		__m128i bytes[3];

		for (int k = 0; k < 3; k++)
			bytes[k] = _mm_loadu_si128((const void *)(pixels + (size_t)3 * x + 16 * k));
#pragma GCC unroll 3
		for (unsigned c = 0; c < 3; c++)
			put_channel(converter, planes[c], x, take_channel(bytes, c), c, element);
	}
	for (unsigned c = 0; c < 3 && x < width; c++) {
		uint8_t rest[16] = {0};

		for (uint32_t i = 0; x + i < width; i++)
			rest[i] = pixels[3 * (x + i) + c];
		for (uint32_t i = 0; x + i < width; i += 8) {
			uint32_t count = width - x - i < 8 ? width - x - i : 8;

			if (element == PIPELINE_U8)
				memcpy(planes[c] + x + i, rest + i, count);
			else
				put_rest(planes[c], x + i, rest + i, count,
					 _mm256_set1_ps(converter->scale[c]),
					 _mm256_set1_ps(converter->bias[c]), element);
		}
	}
}

#include "format/augment/kernels/converter.inc"

/*
 * Reversal takes five pixels from 16 bytes. The first of these bytes belongs to the preceding
 * pixel, so that no byte past the last pixel is read. Each store writes one byte too many, which
 * the next store overwrites.
 */
static void converter_copy(uint8_t *output, const uint8_t *pixels, uint32_t count,
			   uint32_t channels, bool reverse)
{
	const __m128i turn = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -128);
	const __m128i widen =
		_mm_setr_epi8(0, 1, 2, -128, 3, 4, 5, -128, 6, 7, 8, -128, 9, 10, 11, -128);

	if (!reverse && channels == 3) {
		memcpy(output, pixels, (size_t)3 * count);
	} else if (reverse && channels == 3) {
		for (; count > 5; count -= 5, output += 15) {
			const uint8_t *from = pixels + (size_t)3 * (count - 5) - 1;
			__m128i bytes = _mm_loadu_si128((const void *)from);

			_mm_storeu_si128((__m128i *)output, _mm_shuffle_epi8(bytes, turn));
		}
		converter_kernels_c.copy(output, pixels, count, 3, true);
	} else if (!reverse) {
		for (; count > 5; count -= 4, output += 16, pixels += 12) {
			__m128i bytes = _mm_loadu_si128((const void *)pixels);

			_mm_storeu_si128((__m128i *)output, _mm_shuffle_epi8(bytes, widen));
		}
		converter_kernels_c.copy(output, pixels, count, 4, false);
	} else {
		converter_kernels_c.copy(output, pixels, count, 4, true);
	}
}

static void converter_stream_lines(uint8_t *output, const uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at < size; at += CONVERTER_LINE) {
		__m256i low = _mm256_loadu_si256((const void *)(bytes + at));
		__m256i high = _mm256_loadu_si256((const void *)(bytes + at + 32));

		_mm256_stream_si256((__m256i *)(output + at), low);
		_mm256_stream_si256((__m256i *)(output + at + 32), high);
	}
}

const struct converter_kernels converter_kernels_avx2 = {.row = converter_convert,
							 .copy = converter_copy,
							 .stream = converter_stream_lines,
							 .fence = converter_fence};
