#include "tests/gpu/emulation/element.h"

#include <string.h>

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
