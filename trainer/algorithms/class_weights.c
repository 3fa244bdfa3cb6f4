#include "trainer/algorithms/class_weights.h"

void class_weights_balanced(const double *counts, uint32_t classes, float *ret_weights)
{
	double samples = 0, some = 0;
	for (uint32_t i = 0; i < classes; i++) {
		samples += counts[i];
		some += counts[i] > 0;
	}
	for (uint32_t i = 0; i < classes; i++)
		ret_weights[i] = counts[i] > 0 ? (float)(samples / (some * counts[i])) : 1.0f;
}
