/*
 * AVX2 kernels of effects: what the compiler makes of the common loops, and by hand what it does
 * not see.
 */
#include "loaderd/augment/kernels/effect_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "loaderd/augment/kernels/effect_bytes.inc"
#include "loaderd/augment/kernels/effect_colour.inc"
#include "loaderd/augment/kernels/effect_place.inc"

static void effect_pack(uint8_t *output, const uint32_t *pixels, size_t count)
{
	const __m256i gather =
		_mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4,
				 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	const __m256i close = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
	size_t i = 0;

	for (; i + 8 <= count; i += 8, output += 24) {
		__m256i v = _mm256_loadu_si256((const void *)(pixels + i));

		v = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, gather), close);
		_mm_storeu_si128((__m128i *)output, _mm256_castsi256_si128(v));
		_mm_storel_epi64((__m128i *)(output + 16), _mm256_extracti128_si256(v, 1));
	}
	effect_pack_bytes(output, pixels + i, count - i);
}

static void effect_blur_line(const struct effect_blur *blur, size_t count, int16_t *out)
{
	size_t i = 0;

	for (; i + 16 <= count; i += 16) {
		__m256i middle = _mm256_loadu_si256((const void *)(blur->middle + i));
		__m256i twice = _mm256_slli_epi16(middle, 1), sum = middle;

		for (unsigned k = 0; k < blur->taps; k++) {
			__m256i before = _mm256_loadu_si256((const void *)(blur->before[k] + i));
			__m256i after = _mm256_loadu_si256((const void *)(blur->after[k] + i));
			__m256i bend = _mm256_sub_epi16(_mm256_add_epi16(before, after), twice);

			sum = _mm256_add_epi16(
				sum,
				_mm256_mulhrs_epi16(bend, _mm256_set1_epi16(blur->weights[k])));
		}
		_mm256_storeu_si256((__m256i *)(out + i), sum);
	}
	blur_plain(blur, i, count, out);
}

const struct effect_kernels effect_kernels_avx2 =
	EFFECT_KERNELS(effect_table_bytes, effect_blur_line, effect_pack);
