#include "format/augment/grammar/draw.h"
#include "format/augment/grammar/warp.h"
#include "format/base/portable_math.h"

#include <math.h>
#include <string.h>

static double uniform(struct random_stream *random, const double range[2])
{
	return range[0] + (range[1] - range[0]) * (double)random_float(random);
}

static struct effect *draw_append(struct effect_list *list, enum effect_kind kind)
{
	struct effect *effect = effect_list_add(list);

	*effect = (struct effect){.kind = kind};
	return effect;
}

static bool jitter_acts(const struct transform *transform, unsigned which)
{
	double neutral = which == TRANSFORM_JITTER_HUE ? 0 : 1;

	return transform->jitter[which][0] != neutral || transform->jitter[which][1] != neutral;
}

static const enum effect_kind jitter_kinds[TRANSFORM_JITTERS] = {EFFECT_BRIGHTNESS, EFFECT_CONTRAST,
								 EFFECT_SATURATION, EFFECT_HUE};

/* Draws a permutation of the numbers below count. */
static void draw_order(struct random_stream *random, unsigned count, unsigned *ret_order)
{
	for (unsigned i = 0; i < count; i++)
		ret_order[i] = i;
	for (unsigned i = count - 1; i > 0; i--) {
		unsigned j = random_below(random, i + 1), kept = ret_order[i];

		ret_order[i] = ret_order[j];
		ret_order[j] = kept;
	}
}

/* torchvision's ColorJitter: draws an order, then a factor for each operation. */
static void draw_jitter(const struct transform *transform, const struct drawing *to)
{
	unsigned order[TRANSFORM_JITTERS];
	double factors[TRANSFORM_JITTERS];

	draw_order(to->random, TRANSFORM_JITTERS, order);
	for (unsigned i = 0; i < TRANSFORM_JITTERS; i++)
		factors[i] = uniform(to->random, transform->jitter[i]);
	for (unsigned i = 0; i < TRANSFORM_JITTERS; i++)
		if (jitter_acts(transform, order[i]))
			draw_append(to->list, jitter_kinds[order[i]])->factor = factors[order[i]];
}

/*
 * torchvision's RandomPhotometricDistort: whether each operation acts, and its factor; the place of
 * contrast, the second or the last; whether the channels change, and their order.
 */
static void draw_distortion(const struct transform *transform, const struct drawing *to)
{
	static const unsigned early[] = {TRANSFORM_JITTER_BRIGHTNESS, TRANSFORM_JITTER_CONTRAST,
					 TRANSFORM_JITTER_SATURATION, TRANSFORM_JITTER_HUE};
	static const unsigned late[] = {TRANSFORM_JITTER_BRIGHTNESS, TRANSFORM_JITTER_SATURATION,
					TRANSFORM_JITTER_HUE, TRANSFORM_JITTER_CONTRAST};
	double factors[TRANSFORM_JITTERS];
	bool acts[TRANSFORM_JITTERS];
	unsigned channels[3];

	for (unsigned i = 0; i < TRANSFORM_JITTERS; i++) {
		acts[i] = (double)random_float(to->random) < transform->each;
		if (acts[i])
			factors[i] = uniform(to->random, transform->jitter[i]);
	}
	const unsigned *order = random_float(to->random) < 0.5f ? early : late;

	for (unsigned i = 0; i < TRANSFORM_JITTERS; i++)
		if (acts[order[i]])
			draw_append(to->list, jitter_kinds[order[i]])->factor = factors[order[i]];
	if ((double)random_float(to->random) >= transform->each)
		return;
	draw_order(to->random, 3, channels);
	struct effect *effect = draw_append(to->list, EFFECT_PERMUTE);

	for (unsigned c = 0; c < 3; c++)
		effect->channels[c] = (uint8_t)channels[c];
}

static void draw_warp(const struct transform *transform, const struct drawing *to)
{
	const struct transform_warp *from = &transform->warp;
	struct warp warp = {.degrees = uniform(to->random, from->degrees)};

	if (transform->kind == TRANSFORM_ROTATION)
		warp.degrees = -warp.degrees;
	if (from->translate[0] > 0 || from->translate[1] > 0) {
		double x = from->translate[0] * to->width, y = from->translate[1] * to->height;

		warp.translate_x = rint(uniform(to->random, (const double[]){-x, x}));
		warp.translate_y = rint(uniform(to->random, (const double[]){-y, y}));
	}
	warp.scale = uniform(to->random, from->scale);
	double shear_x = uniform(to->random, from->shear_x) * (0x1.921fb54442d18p1 / 180);
	double shear_y = uniform(to->random, from->shear_y) * (0x1.921fb54442d18p1 / 180);

	warp.slope_x = portable_sin(shear_x) / portable_cos(shear_x);
	warp.slope_y = portable_sin(shear_y) / portable_cos(shear_y);
	struct effect *effect = draw_append(to->list, EFFECT_WARP);

	warp_matrix(&warp, effect->warp.matrix);
	warp_forward(&warp, effect->warp.forward);
	effect->warp.bilinear = from->bilinear;
	effect->warp.filled = from->filled;
	memcpy(effect->warp.fill, transform->fill, sizeof(transform->fill));
}

/*
 * torchvision's RandomErasing.make_params: tries up to ten times to find a rectangle smaller than
 * the picture in both directions.
 */
static bool draw_rectangle(const struct transform *transform, uint32_t width, uint32_t height,
			   struct random_stream *random, struct erase *erase)
{
	for (int try = 0; try < 10; try++) {
		double area = (double)width * height * uniform(random, transform->scale);
		double ratio = portable_exp(uniform(random, transform->ratio_log));
		double h = rint(sqrt(area * ratio)), w = rint(sqrt(area / ratio));

		if (w >= width || h >= height)
			continue;
		erase->width = (uint32_t)w;
		erase->height = (uint32_t)h;
		erase->y = random_below(random, height - erase->height + 1);
		erase->x = random_below(random, width - erase->width + 1);
		return true;
	}
	return false;
}

/*
 * Draws a range of `size` pixels centred on a random one of `count` pixels, clipped at both ends.
 */
static void draw_stretch(uint32_t count, uint32_t size, struct random_stream *random,
			 uint32_t *ret_at, uint32_t *ret_size)
{
	int64_t low = (int64_t)random_below(random, count) - size / 2, high = low + size;

	low = low < 0 ? 0 : low;
	high = high > count ? count : high;
	*ret_at = (uint32_t)low;
	*ret_size = (uint32_t)(high - low);
}

bool draw_erase(const struct transform *transform, uint32_t width, uint32_t height,
		struct random_stream *random, struct erase *ret_erase)
{
	*ret_erase = (struct erase){.noise = transform->noise};
	memcpy(ret_erase->value, transform->value, sizeof(transform->value));
	if ((double)random_float(random) >= transform->probability)
		return false;
	if (transform->kind == TRANSFORM_CUTOUT) {
		draw_stretch(height, transform->pad[1], random, &ret_erase->y, &ret_erase->height);
		draw_stretch(width, transform->pad[0], random, &ret_erase->x, &ret_erase->width);
	} else if (!draw_rectangle(transform, width, height, random, ret_erase)) {
		return false;
	}
	if (transform->noise) {
		ret_erase->key = (uint64_t)random_u32(random) << 32;
		ret_erase->key |= random_u32(random);
	}
	return true;
}

unsigned draw_effects_max(const struct transform *transform)
{
	if (transform->kind >= TRANSFORM_RAND_AUGMENT)
		return policy_effects_max(transform);
	if (transform->kind == TRANSFORM_PHOTOMETRIC_DISTORT)
		return TRANSFORM_JITTERS + 1;
	if (transform->kind != TRANSFORM_COLOR_JITTER)
		return 1;
	unsigned max = 0;

	for (unsigned i = 0; i < TRANSFORM_JITTERS; i++)
		max += jitter_acts(transform, i);
	return max;
}

static void draw_effect(const struct transform *transform, const struct drawing *to)
{
	draw_append(to->list, transform->effect)->factor = transform->amount;
}

static void draw_blur(const struct transform *transform, const struct drawing *to)
{
	draw_append(to->list, EFFECT_BLUR)->gauss = (struct effect_gauss){
		transform->kernel[0], transform->kernel[1], uniform(to->random, transform->sigma)};
}

static void (*const draws[TRANSFORM_PIXELS_COUNT])(const struct transform *transform,
						   const struct drawing *to) = {
#define TRANSFORM(constant, where, name, text, set, draw, ...) [TRANSFORM_##constant] = draw,
	TRANSFORMS_OF_PIXELS(TRANSFORM, TRANSFORM(EFFECT, , , , , draw_effect))
#undef TRANSFORM
};

void draw_effects(const struct transform *transform, const struct drawing *to)
{
	struct erase erase;

	if (transform->kind == TRANSFORM_ERASING || transform->kind == TRANSFORM_CUTOUT) {
		if (draw_erase(transform, to->width, to->height, to->random, &erase))
			draw_append(to->list, EFFECT_ERASE)->erase = erase;
	} else if ((double)random_float(to->random) < transform->probability) {
		draws[transform->kind](transform, to);
	}
}
