/*
 * Converts arrays of GPU elements (fp32, fp16, bf16) to and from float on the host. Rounds to
 * nearest even. Values too large for fp16 become infinite; NaN stays NaN.
 */
#pragma once

#include "format/base/half.h"
#include "trainer/device/cuda/conv.h"

void elements_to_floats(enum cuda_element element, const void *elements, float *ret_floats,
			size_t count);
void floats_to_elements(enum cuda_element element, const float *floats, void *ret_elements,
			size_t count);
/* Returns the value after a store and a load as this element type. */
float element_round(enum cuda_element element, float value);
