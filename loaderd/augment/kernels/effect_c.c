/* The reference kernels of effects: plain C for any processor. */
#include "loaderd/augment/kernels/effect_kernels.h"

#include <string.h>

#include "loaderd/augment/kernels/effect_bytes.inc"
#include "loaderd/augment/kernels/effect_colour.inc"
#include "loaderd/augment/kernels/effect_place.inc"

static void blur_line(const struct effect_blur *blur, size_t count, int16_t *out)
{
	blur_plain(blur, 0, count, out);
}

const struct effect_kernels effect_kernels_c = {
	.table = table_bytes,
	.histogram = histogram,
	.luma_sum = luma_sum,
	.grayscale = grayscale,
	.saturation = saturation,
	.hue = hue,
	.warp_nearest = warp_nearest,
	.warp_bilinear = warp_bilinear,
	.sharpen = sharpen,
	.widen = widen,
	.narrow = narrow,
	.blur = blur_line,
	.mix_begin = mix_begin,
	.mix_add = mix_add,
	.mix_end = mix_end,
	.pack = pack_bytes,
};
