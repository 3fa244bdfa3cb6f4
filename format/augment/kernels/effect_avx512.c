/*
 * AVX-512 kernels of effects: the common loops, vectorised by the compiler, and hand-written code
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

#ifdef __AVX512VBMI__
struct vector_table {
	__m512i part[4];
};

static inline struct vector_table vector_table(const uint8_t table[256])
{
	struct vector_table t;

	for (int i = 0; i < 4; i++)
		t.part[i] = _mm512_load_si512(table + 64 * i);
	return t;
}

/*
 * Each permutation looks up seven bits of the index; the eighth bit selects one of the two results.
 */
static inline __m512i vector_look_up(const struct vector_table *t, __m512i v)
{
	__m512i low = _mm512_permutex2var_epi8(t->part[0], v, t->part[1]);
	__m512i high = _mm512_permutex2var_epi8(t->part[2], v, t->part[3]);

	return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v), high);
}

static void effect_table_vbmi(uint32_t *pixels, size_t count, const struct effect_table *table)
{
	const __mmask64 red = 0x1111111111111111, green = red << 1, blue = red << 2;
	const struct vector_table r = vector_table(table->of[0]), g = vector_table(table->of[1]),
				  b = vector_table(table->of[2]);

	for (size_t i = 0; i < count; i += 16) {
		__mmask16 mask = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
		__m512i v = _mm512_maskz_loadu_epi32(mask, pixels + i);
		__m512i result = _mm512_maskz_mov_epi8(red, vector_look_up(&r, v));

		result = _mm512_mask_mov_epi8(result, green, vector_look_up(&g, v));
		result = _mm512_mask_mov_epi8(result, blue, vector_look_up(&b, v));
		_mm512_mask_storeu_epi32(pixels + i, mask, result);
	}
}
#define EFFECT_TABLE effect_table_vbmi
#else
/* Gathers, or a shuffle for each sixteen table entries, are not faster. */
#define EFFECT_TABLE effect_table_bytes
#endif

static void effect_pack(uint8_t *output, const uint32_t *pixels, size_t count)
{
	const __m512i gather = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	const __m512i close =
		_mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
	size_t i = 0;

	for (; i + 16 <= count; i += 16, output += 48) {
		__m512i v = _mm512_shuffle_epi8(_mm512_loadu_si512(pixels + i), gather);

		_mm512_mask_storeu_epi32(output, 0xfff, _mm512_permutexvar_epi32(close, v));
	}
	effect_pack_bytes(output, pixels + i, count - i);
}

const struct effect_kernels OF_SET(effect_kernels) = EFFECT_KERNELS(EFFECT_TABLE, effect_blur_line,
								    effect_arrange, effect_pack);
