/*
 * Converts 16-bit floats (IEEE half precision and bfloat16) to float, exactly, and float to 16-bit
 * floats, rounded to nearest even. Values too large for a half become infinity; NaN stays NaN. Pure
 * functions, inline so that kernels compile them for each instruction set.
 */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float bfloat_to_float(uint16_t bfloat)
{
	return float_of_bits((uint32_t)bfloat << 16);
}

static inline uint16_t float_to_bfloat(float value)
{
	uint32_t bits = float_bits(value);
	uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	uint32_t nan = (bits >> 16) | 0x40;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static inline float half_to_float(uint16_t half)
{
	uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;

	if ((half & 0x7c00) == 0x7c00)
		return float_of_bits(bits | 0x7f800000 | sign);
	/* Multiplication rebiases the exponent and handles denormals. */
	return float_of_bits(float_bits(float_of_bits(bits) * 0x1p112f) | sign);
}

static inline uint16_t float_to_half(float value)
{
	uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000;
	uint32_t magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00);
	/*
	 * Below 2^-14 a half is a multiple of 2^-24, the ulp of a float at 0.5: adding 0.5 rounds.
	 */
	if (magnitude < 0x38800000)
		return (uint16_t)(sign |
				  (float_bits(float_of_bits(magnitude) + 0.5f) - 0x3f000000));
	magnitude += 0xfff + (magnitude >> 13 & 1);
	return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}
