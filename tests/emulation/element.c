#include "tests/emulation/element.h"

#include <string.h>

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

float half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;

	if (exponent == 31)
		return of_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) /* fractions of 2^-24 */
		return (sign ? -1.f : 1.f) * (float)fraction * 0x1p-24f;
	return of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t float_to_half(float value)
{
	uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if (magnitude > 0x7f800000)
		return sign | 0x7e00;
	if (magnitude >= bits_of(65520.f)) /* half way to the first that is too large */
		return sign | 0x7c00;
	if (magnitude < bits_of(0x1p-14f)) /* the last bit of a float in [0.5, 1) is worth 2^-24 */
		return sign | (uint16_t)(bits_of(of_bits(magnitude) + 0.5f) - bits_of(0.5f));
	magnitude += 0xfff + (magnitude >> 13 & 1);
	return sign | (uint16_t)((magnitude >> 13) - ((127 - 15) << 10));
}

float bfloat_to_float(uint16_t bfloat)
{
	return of_bits((uint32_t)bfloat << 16);
}

uint16_t float_to_bfloat(float value)
{
	uint32_t bits = bits_of(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void elements_to_floats(enum cuda_element element, const void *elements, float *ret_floats,
			size_t count)
{
	const uint16_t *narrow = elements;

	if (element == CUDA_F32)
		memcpy(ret_floats, elements, count * sizeof(float));
	else if (element == CUDA_F16)
		for (size_t i = 0; i < count; i++)
			ret_floats[i] = half_to_float(narrow[i]);
	else
		for (size_t i = 0; i < count; i++)
			ret_floats[i] = bfloat_to_float(narrow[i]);
}

void floats_to_elements(enum cuda_element element, const float *floats, void *ret_elements,
			size_t count)
{
	uint16_t *narrow = ret_elements;

	if (element == CUDA_F32)
		memcpy(ret_elements, floats, count * sizeof(float));
	else if (element == CUDA_F16)
		for (size_t i = 0; i < count; i++)
			narrow[i] = float_to_half(floats[i]);
	else
		for (size_t i = 0; i < count; i++)
			narrow[i] = float_to_bfloat(floats[i]);
}

float element_round(enum cuda_element element, float value)
{
	if (element == CUDA_F16)
		return half_to_float(float_to_half(value));
	if (element == CUDA_BF16)
		return bfloat_to_float(float_to_bfloat(value));
	return value;
}
