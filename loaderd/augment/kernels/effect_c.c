/* The reference kernels of effects: plain C for any processor. */
#include "loaderd/augment/kernels/effect_kernels.h"

#include <string.h>

#include "loaderd/augment/kernels/effect_bytes.inc"
#include "loaderd/augment/kernels/effect_colour.inc"
#include "loaderd/augment/kernels/effect_place.inc"

static void effect_blur_line(const struct effect_blur *blur, size_t count, int16_t *out)
{
	blur_plain(blur, 0, count, out);
}

const struct effect_kernels effect_kernels_c = {
	.table = effect_table_bytes,
	.histogram = effect_histogram,
	.luma_sum = effect_luma_sum,
	.grayscale = effect_grayscale,
	.saturation = effect_saturation,
	.hue = effect_hue,
	.warp_nearest = effect_warp_nearest,
	.warp_bilinear = effect_warp_bilinear,
	.sharpen = effect_sharpen,
	.widen = effect_widen,
	.narrow = effect_narrow,
	.blur = effect_blur_line,
	.mix_begin = effect_mix_begin,
	.mix_add = effect_mix_add,
	.mix_end = effect_mix_end,
	.pack = effect_pack_bytes,
};
