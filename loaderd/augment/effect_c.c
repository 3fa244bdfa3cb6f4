/* The reference kernels of effects: plain C for any processor. */
#include "effect_kernels.h"

#include <string.h>

#include "effect_bytes.inc"
#include "effect_colour.inc"

const struct effect_kernels effect_kernels_c = {
	.table = table_bytes,
	.histogram = histogram,
	.luma_sum = luma_sum,
	.grayscale = grayscale,
	.saturation = saturation,
	.hue = hue,
	.pack = pack_bytes,
};
