/* AVX-512 kernels of the blending of two images: sixteen elements at a time. */
#include "format/augment/kernels/blend.h"
#include "format/augment/kernels/vectors.h"

enum { BLEND_LANES = 16 };
#define FLOATS __m512

INLINE FLOATS blend_load(const uint8_t *from, const enum pipeline_element element)
{
	__m256i half;

	switch (element) {
	case PIPELINE_U8:
		return _mm512_cvtepi32_ps(
			_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)from)));
	case PIPELINE_F32:
		return _mm512_loadu_ps(from);
	default:
		half = _mm256_loadu_si256((const void *)from);
		if (element == PIPELINE_F16)
			return _mm512_cvtph_ps(half);
		return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
	}
}

INLINE __m256i blend_bfloat(__m512 value)
{
	__m512i bits = _mm512_castps_si512(value), top = _mm512_srli_epi32(bits, 16);
	__m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
	__mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);

	rounded = _mm512_mask_or_epi32(_mm512_srli_epi32(rounded, 16), nan, top,
				       _mm512_set1_epi32(0x40));
	return _mm512_cvtepi32_epi16(rounded);
}

INLINE void blend_store(uint8_t *to, FLOATS value, const enum pipeline_element element)
{
	__m256i halves;

	switch (element) {
	case PIPELINE_U8:
		_mm_storeu_si128((void *)to, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(value)));
		break;
	case PIPELINE_F32:
		_mm512_storeu_ps(to, value);
		break;
	default:
		halves = element == PIPELINE_F16 ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)
						 : blend_bfloat(value);
		_mm256_storeu_si256((void *)to, halves);
	}
}

#include "format/augment/kernels/blend.inc"
