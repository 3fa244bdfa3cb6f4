/* Reference kernels of effects: plain C for any CPU. */
#include "format/augment/colour.h"
#include "format/augment/kernels/effect_kernels.h"

#include <string.h>

#include "format/augment/kernels/effect_bytes.inc"
#include "format/augment/kernels/effect_colour.inc"
#include "format/augment/kernels/effect_neighbours.inc"

static void effect_blur_line(const struct effect_blur *blur, size_t count, int16_t *out)
{
	blur_plain(blur, 0, count, out);
}

const struct effect_kernels effect_kernels_c = EFFECT_KERNELS(
	effect_table_bytes, effect_blur_line, effect_arrange_bytes, effect_pack_bytes);
