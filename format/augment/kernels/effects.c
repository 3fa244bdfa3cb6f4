#include "format/augment/kernels/effects.h"
#include "format/augment/kernels/block.h"
#include "format/augment/kernels/effect_kernels.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct effects {
	const struct effect_kernels *kernels;
	/*
	 * pictures[current] is the current picture; some effects write to the other one. kept and
	 * sum are for mixing, lines for blurring.
	 */
	struct block pictures[2], kept, sum, lines;
	unsigned current;
	uint32_t width, height;
};

const struct effect_kernels *effect_kernels_get(enum cpu_isa isa)
{
	static const struct effect_kernels *const sets[CPU_ISA_COUNT] =
		CPU_ISA_EACH(effect_kernels);

	return sets[isa];
}

struct effect *effect_list_add(struct effect_list *list)
{
	assert(list->count < EFFECTS_MAX);
	return &list->effects[list->count++];
}

int effects_new(enum cpu_isa isa, struct effects **ret_effects)
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
	free(effects->pictures[0].data);
	free(effects->pictures[1].data);
	free(effects->kept.data);
	free(effects->sum.data);
	free(effects->lines.data);
	free(effects);
}

static uint32_t *effects_picture(const struct effects *effects)
{
	return effects->pictures[effects->current].data;
}

static size_t pixel_count(const struct effects *effects)
{
	return (size_t)effects->width * effects->height;
}

/* Reserves one pixel more than the picture has, which warping needs. */
static int reserve_picture(struct effects *effects, unsigned which)
{
	return block_reserve(&effects->pictures[which],
			     (pixel_count(effects) + 1) * sizeof(uint32_t));
}

int effects_begin(struct effects *effects, uint32_t width, uint32_t height, uint8_t **ret_pixels)
{
	effects->width = width;
	effects->height = height;
	effects->current = 0;
	int r = reserve_picture(effects, 0);

	if (r < 0)
		return r;
	*ret_pixels = effects->pictures[0].data;
	return 0;
}

const uint8_t *effects_row(const struct effects *effects, uint32_t row)
{
	return (const uint8_t *)(effects_picture(effects) + (size_t)row * effects->width);
}

void effects_take_row(const struct effects *effects, uint32_t row, uint8_t *pixels)
{
	effects->kernels->pack(pixels, effects_picture(effects) + (size_t)row * effects->width,
			       effects->width);
}

/* Makes the other picture current: it is the output, the previous one the input. */
static int swap_pictures(struct effects *effects, uint32_t **ret_in, uint32_t **ret_out)
{
	int r = reserve_picture(effects, !effects->current);

	if (r < 0)
		return r;
	*ret_in = effects_picture(effects);
	effects->current = !effects->current;
	*ret_out = effects_picture(effects);
	return 0;
}

void effect_map_init(const struct effect_warp *warp, uint32_t width, uint32_t height,
		     struct effect_map *ret_map)
{
	struct effect_map map = {.width = width, .height = height, .masked = warp->filled};

	for (int i = 0; i < 3; i++) {
		map.x[i] = warp->matrix[i] / (0.5f * (float)width);
		map.y[i] = warp->matrix[3 + i] / (0.5f * (float)height);
		if (warp->filled)
			map.fill |= (uint32_t)warp->fill[i] << 8 * i;
	}
	*ret_map = map;
}

static int effects_warp(struct effects *effects, const struct effect *effect)
{
	const struct effect_warp *warp = &effect->warp;
	struct effect_map map;
	uint32_t *in, *out;
	int r = swap_pictures(effects, &in, &out);

	if (r < 0)
		return r;
	effect_map_init(warp, effects->width, effects->height, &map);
	in[pixel_count(effects)] = warp->bilinear ? 0 : map.fill;
	(warp->bilinear ? effects->kernels->warp_bilinear
			: effects->kernels->warp_nearest)(&map, in, out);
	return 0;
}

/* Leaves the pixels at the picture's edges unchanged. */
static int effects_sharpness(struct effects *effects, const struct effect *effect)
{
	size_t stride = (size_t)effects->width * 4;
	float own, rest;
	uint32_t *in, *out;

	if (effects->width <= 2 || effects->height <= 2)
		return 0;
	int r = swap_pictures(effects, &in, &out);
	if (r < 0)
		return r;
	effect_blend(effect->factor, &own, &rest);
	memcpy(out, in, stride);
	for (size_t y = 1; y + 1 < effects->height; y++) {
		const uint32_t *from = in + y * effects->width;
		uint32_t *to = out + y * effects->width;

		to[0] = from[0];
		effects->kernels->sharpen((const uint8_t *)(from + 1), (uint8_t *)(to + 1), stride,
					  stride - 8, rest);
		to[effects->width - 1] = from[effects->width - 1];
	}
	memcpy(out + stride / 4 * (effects->height - 1), in + stride / 4 * (effects->height - 1),
	       stride);
	return 0;
}

/* Maps `at` into 0 .. count - 1, mirrored at both ends as often as necessary. */
static uint32_t effects_mirror(int64_t at, uint32_t count)
{
	int64_t period = 2 * ((int64_t)count - 1);

	if (period == 0)
		return 0;
	at %= period;
	at = at < 0 ? at + period : at;
	return (uint32_t)(at < count ? at : period - at);
}

/* Blurs along rows, from the picture to 16-bit lines. */
static void blur_rows(struct effects *effects, const struct effect_gauss *gauss, int16_t *padded,
		      int16_t *lines)
{
	size_t size = (size_t)effects->width * 4;
	struct effect_blur blur = {.taps = gauss->width / 2};
	int16_t *middle = padded + 4 * blur.taps;

	effect_gauss_weights(gauss->sigma, blur.taps, blur.weights);
	blur.middle = middle;
	for (unsigned k = 0; k < blur.taps; k++) {
		blur.before[k] = middle - 4 * (k + 1);
		blur.after[k] = middle + 4 * (k + 1);
	}
	for (uint32_t y = 0; y < effects->height; y++) {
		effects->kernels->widen(effects_row(effects, y), middle, size);
		for (int64_t k = 1; k <= blur.taps; k++) {
			memcpy(middle - 4 * k, middle + 4 * effects_mirror(-k, effects->width), 8);
			memcpy(middle + size + 4 * (k - 1),
			       middle + 4 * effects_mirror(effects->width - 1 + k, effects->width),
			       8);
		}
		effects->kernels->blur(&blur, size, lines + y * size);
	}
}

/* Blurs along columns, from 16-bit lines to the picture. */
static void blur_columns(struct effects *effects, const struct effect_gauss *gauss,
			 const int16_t *lines, int16_t *row)
{
	size_t size = (size_t)effects->width * 4;
	struct effect_blur blur = {.taps = gauss->height / 2};
	uint8_t *out = (uint8_t *)effects_picture(effects);

	effect_gauss_weights(gauss->sigma, blur.taps, blur.weights);
	for (uint32_t y = 0; y < effects->height; y++) {
		blur.middle = lines + y * size;
		for (unsigned k = 0; k < blur.taps; k++) {
			int64_t distance = k + 1;

			blur.before[k] =
				lines + effects_mirror(y - distance, effects->height) * size;
			blur.after[k] =
				lines + effects_mirror(y + distance, effects->height) * size;
		}
		effects->kernels->blur(&blur, size, row);
		effects->kernels->narrow(row, out + y * size, size);
	}
}

static int effects_blur(struct effects *effects, const struct effect *effect)
{
	size_t row_size = ((size_t)effects->width + EFFECT_BLUR_SIDE_MAX) * 4;
	int r = block_reserve(&effects->lines,
			      (row_size + 4 * pixel_count(effects)) * sizeof(int16_t));
	int16_t *row = effects->lines.data;

	if (r < 0)
		return r;
	blur_rows(effects, &effect->gauss, row, row + row_size);
	blur_columns(effects, &effect->gauss, row + row_size, row);
	return 0;
}

static int effects_mix_begin(struct effects *effects, const struct effect *effect)
{
	size_t count = pixel_count(effects);
	int r = block_reserve(&effects->kept, count * sizeof(uint32_t));

	if (r < 0)
		return r;
	r = block_reserve(&effects->sum, 4 * count * sizeof(float));
	if (r < 0)
		return r;
	memcpy(effects->kept.data, effects_picture(effects), count * sizeof(uint32_t));
	effects->kernels->mix_begin(effects->sum.data, effects->kept.data, count, effect->weight);
	return 0;
}

static int effects_mix_add(struct effects *effects, const struct effect *effect)
{
	uint32_t *picture = effects_picture(effects);
	size_t count = pixel_count(effects);

	effects->kernels->mix_add(effects->sum.data, picture, count, effect->weight);
	memcpy(picture, effects->kept.data, count * sizeof(uint32_t));
	return 0;
}

static int effects_mix_end(struct effects *effects, const struct effect *effect)
{
	effects->kernels->mix_end(effects_picture(effects), effects->sum.data,
				  pixel_count(effects));
	return 0;
}

static int effects_saturation(struct effects *effects, const struct effect *effect)
{
	float factor, rest;

	effect_blend(effect->factor, &factor, &rest);
	effects->kernels->saturation(effects_picture(effects), pixel_count(effects), factor, rest);
	return 0;
}

static int effects_hue(struct effects *effects, const struct effect *effect)
{
	effects->kernels->hue(effects_picture(effects), pixel_count(effects),
			      (float)effect->factor);
	return 0;
}

static int effects_permute(struct effects *effects, const struct effect *effect)
{
	const unsigned red = 8 * effect->channels[0], green = 8 * effect->channels[1];
	const unsigned blue = 8 * effect->channels[2];
	uint32_t *pixels = effects_picture(effects);
	size_t count = pixel_count(effects);

	for (size_t i = 0; i < count; i++) {
		uint32_t pixel = pixels[i];

		pixels[i] = (pixel >> red & 0xff) | (pixel >> green & 0xff) << 8 |
			    (pixel >> blue & 0xff) << 16;
	}
	return 0;
}

static int effects_grayscale(struct effects *effects, const struct effect *effect)
{
	effects->kernels->grayscale(effects_picture(effects), pixel_count(effects));
	return 0;
}

static int effects_erase(struct effects *effects, const struct effect *effect)
{
	erase_pixels(&effect->erase, effects_picture(effects), effects->width);
	return 0;
}

/* How an effect changes pixels: through a table or with a function. */
struct effect_row {
	effect_table_make table;
	int (*pixels)(struct effects *effects, const struct effect *effect);
};

static const struct effect_row effect_rows[EFFECT_KINDS] = {
#define TABLE(name)                .table = effect_table_##name
#define PIXELS(name)               .pixels = effects_##name
#define EFFECT(constant, how, ...) [EFFECT_##constant] = {how},
	EFFECTS(EFFECT)
#undef EFFECT
#undef PIXELS
#undef TABLE
};

static int effects_run_one(struct effects *effects, const struct effect *effect)
{
	const struct effect_row *row = &effect_rows[effect->kind];
	const struct effect_picture picture = {.kernels = effects->kernels,
					       .pixels = effects_picture(effects),
					       .count = pixel_count(effects)};
	struct effect_table table;

	if (!row->table)
		return row->pixels(effects, effect);
	row->table(&picture, effect->factor, &table);
	effects->kernels->table(picture.pixels, picture.count, &table);
	return 0;
}

int effects_run(struct effects *effects, const struct effect *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int r = effects_run_one(effects, &list[i]);

		if (r < 0)
			return r;
	}
	return 0;
}
