/*
 * AVX2 kernels of effects: the common loops, vectorised by the compiler, and hand-written code
 * where it cannot vectorise them.
 */
#include "format/augment/colour.h"
#include "format/augment/kernels/effect_kernels.h"
#include "format/augment/kernels/vectors.h"

#include <string.h>

#include "format/augment/kernels/effect_bytes.inc"
#include "format/augment/kernels/effect_colour.inc"
#include "format/augment/kernels/effect_neighbours.inc"

#include "format/augment/kernels/effect_arrange.inc"
#include "format/augment/kernels/effect_blur.inc"

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

const struct effect_kernels OF_SET(effect_kernels) = EFFECT_KERNELS(effect_table_bytes,
								    effect_blur_line,
								    effect_arrange, effect_pack);
