/*
 * The GPU's elements on the host: arrays of fp32, fp16 and bf16 to float and back, rounded to
 * nearest even. Too large for fp16 is infinity; NaN stays NaN.
 */
#pragma once

#include "format/base/half.h"
#include "trainer/device/cuda/conv.h"

void elements_to_floats(enum cuda_element element, const void *elements, float *ret_floats,
			size_t count);
void floats_to_elements(enum cuda_element element, const float *floats, void *ret_elements,
			size_t count);
/* As the value is after it has been stored and loaded again. */
float element_round(enum cuda_element element, float value);
