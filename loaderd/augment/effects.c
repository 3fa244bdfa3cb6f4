#include "effects.h"
#include "effect_kernels.h"

#include <errno.h>
#include <stdlib.h>

struct effects {
	const struct effect_kernels *kernels;
	uint32_t *picture;   /* aligned to a line */
	size_t picture_size; /* pixels that fit */
	uint32_t width, height;
};

const struct effect_kernels *effect_kernels_get(enum augment_isa isa)
{
#ifdef AUGMENT_HAVE_AVX512
	if (isa >= AUGMENT_ISA_AVX512)
		return &effect_kernels_avx512;
#endif
#ifdef AUGMENT_HAVE_AVX2
	if (isa >= AUGMENT_ISA_AVX2)
		return &effect_kernels_avx2;
#endif
	return &effect_kernels_c;
}

int effects_new(enum augment_isa isa, struct effects **ret_effects)
{
	struct effects *effects = calloc(1, sizeof(*effects));

	if (!effects)
		return -ENOMEM;
	effects->kernels = effect_kernels_get(isa);
	*ret_effects = effects;
	return 0;
}

void effects_free(struct effects *effects)
{
	if (!effects)
		return;
	free(effects->picture);
	free(effects);
}

int effects_begin(struct effects *effects, uint32_t width, uint32_t height, uint8_t **ret_pixels)
{
	size_t count = (size_t)width * height;

	if (count > effects->picture_size) {
		size_t room = (count + count / 4 + 15) / 16 * 16;
		uint32_t *picture = aligned_alloc(64, room * sizeof(*picture));

		if (!picture)
			return -ENOMEM;
		free(effects->picture);
		effects->picture = picture;
		effects->picture_size = room;
	}
	effects->width = width;
	effects->height = height;
	*ret_pixels = (uint8_t *)effects->picture;
	return 0;
}

const uint8_t *effects_row(const struct effects *effects, uint32_t row)
{
	return (const uint8_t *)(effects->picture + (size_t)row * effects->width);
}

void effects_take_row(const struct effects *effects, uint32_t row, uint8_t *pixels)
{
	effects->kernels->pack(pixels, effects->picture + (size_t)row * effects->width,
			       effects->width);
}

/* Effects that are a function of each byte, once the picture has been looked at. */
static bool make_table(const struct effects *effects, const struct effect *effect,
		       struct effect_table *table)
{
	const struct effect_kernels *kernels = effects->kernels;
	size_t count = (size_t)effects->width * effects->height;
	uint32_t histogram[3][256];

	switch (effect->kind) {
	case EFFECT_BRIGHTNESS:
		effect_table_brightness(table, effect->factor);
		return true;
	case EFFECT_CONTRAST:
		effect_table_contrast(table, effect->factor,
				      (float)kernels->luma_sum(effects->picture, count) /
					      (float)count);
		return true;
	case EFFECT_INVERT:
		effect_table_invert(table);
		return true;
	case EFFECT_SOLARIZE:
		effect_table_solarize(table, effect->factor);
		return true;
	case EFFECT_POSTERIZE:
		effect_table_posterize(table, effect->bits);
		return true;
	case EFFECT_AUTOCONTRAST:
		kernels->histogram(effects->picture, count, histogram);
		effect_table_autocontrast(table, (const uint32_t(*)[256])histogram);
		return true;
	case EFFECT_EQUALIZE:
		kernels->histogram(effects->picture, count, histogram);
		effect_table_equalize(table, (const uint32_t(*)[256])histogram);
		return true;
	default:
		return false;
	}
}

static int run(struct effects *effects, const struct effect *effect)
{
	const struct effect_kernels *kernels = effects->kernels;
	size_t count = (size_t)effects->width * effects->height;
	struct effect_table table;
	float factor, rest;

	if (make_table(effects, effect, &table)) {
		kernels->table(effects->picture, count, &table);
		return 0;
	}
	switch (effect->kind) {
	case EFFECT_SATURATION:
		effect_blend(effect->factor, &factor, &rest);
		kernels->saturation(effects->picture, count, factor, rest);
		return 0;
	case EFFECT_HUE:
		kernels->hue(effects->picture, count, (float)effect->factor);
		return 0;
	case EFFECT_GRAYSCALE:
		kernels->grayscale(effects->picture, count);
		return 0;
	default:
		return -EINVAL;
	}
}

int effects_run(struct effects *effects, const struct effect *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int r = run(effects, &list[i]);

		if (r < 0)
			return r;
	}
	return 0;
}
