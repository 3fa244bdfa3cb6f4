/* AVX2 kernels of the blending of two images: eight elements at a time. */
#include "format/augment/kernels/blend.h"
#include "format/augment/kernels/vectors.h"

enum { BLEND_LANES = 8 };
#define FLOATS __m256

INLINE FLOATS blend_load(const uint8_t *from, const enum pipeline_element element)
{
	__m128i half;

	switch (element) {
	case PIPELINE_U8:
		return _mm256_cvtepi32_ps(
			_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from)));
	case PIPELINE_F32:
		return _mm256_loadu_ps((const float *)(const void *)from);
	default:
		half = _mm_loadu_si128((const void *)from);
		if (element == PIPELINE_F16)
			return _mm256_cvtph_ps(half);
		return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
	}
}

/* Returns the low halves of eight 32-bit numbers below 65536. */
INLINE __m128i blend_narrow(__m256i words)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

INLINE __m128i blend_bfloat(__m256 value)
{
	__m256i bits = _mm256_castps_si256(value), top = _mm256_srli_epi32(bits, 16);
	__m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
	__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));

	return blend_narrow(_mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16),
					       _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan));
}

INLINE void blend_store(uint8_t *to, FLOATS value, const enum pipeline_element element)
{
	__m128i words;

	switch (element) {
	case PIPELINE_U8:
		words = blend_narrow(_mm256_cvtps_epi32(value));
		_mm_storel_epi64((void *)to, _mm_packus_epi16(words, words));
		break;
	case PIPELINE_F32:
		_mm256_storeu_ps((float *)(void *)to, value);
		break;
	default:
		words = element == PIPELINE_F16 ? _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)
						: blend_bfloat(value);
		_mm_storeu_si128((void *)to, words);
	}
}

#include "format/augment/kernels/blend.inc"
