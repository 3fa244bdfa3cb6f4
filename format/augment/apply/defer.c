#include "format/augment/apply/defer.h"
#include "format/augment/grammar/draw.h"
#include "format/augment/kernels/effect_kernels.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Deferred kind of each effect. 0 if it cannot be deferred because it depends on other pixels. */
static const uint32_t defer_kinds[EFFECT_KINDS] = {
	[EFFECT_BRIGHTNESS] = DEFERRED_BRIGHTNESS, [EFFECT_CONTRAST] = DEFERRED_CONTRAST,
	[EFFECT_SATURATION] = DEFERRED_SATURATION, [EFFECT_HUE] = DEFERRED_HUE,
	[EFFECT_GRAYSCALE] = DEFERRED_GRAYSCALE,   [EFFECT_INVERT] = DEFERRED_INVERT,
	[EFFECT_SOLARIZE] = DEFERRED_SOLARIZE,     [EFFECT_POSTERIZE] = DEFERRED_POSTERIZE,
	[EFFECT_ERASE] = DEFERRED_ERASE,
};

static bool defer_changes_pixels(const struct step *step)
{
	switch (step->kind) {
	case STEP_COLOR_JITTER:
		return true;
	case STEP_EFFECT:
		return defer_kinds[step->effect] != 0;
	case STEP_ERASING:
	case STEP_CUTOUT:
		return !step->finished;
	default:
		return false;
	}
}

/*
 * Returns the first step from which on one struct deferred can describe all steps; the number of
 * steps if there is none.
 */
static unsigned defer_first(const struct transform *transform)
{
	unsigned i = transform->step_count, changes = 0;

	while (i > 0 && defer_changes_pixels(&transform->steps[i - 1])) {
		changes += draw_effects_max(&transform->steps[i - 1]);
		if (changes > DEFERRED_CHANGES_MAX)
			return i;
		i--;
	}
	while (i > 0 && (transform->steps[i - 1].kind == STEP_HFLIP ||
			 transform->steps[i - 1].kind == STEP_VFLIP))
		i--;
	return i > 0 && transform->steps[i - 1].kind == STEP_RANDOM_CROP ? i - 1 : i;
}

int transform_defer(struct transform *transform, struct transform_error *error)
{
	if (transform->element != TRANSFORM_U8 || transform->layout != TRANSFORM_NHWC)
		return transform_fail(
			error, -EINVAL, -1,
			"steps can be deferred only where bytes are delivered, interleaved: leave "
			"normalize, to and layout out");
	for (unsigned i = defer_first(transform); i < transform->step_count; i++)
		if (steps_have_size(transform, i)) {
			transform->delivered_steps = i;
			break;
		}
	transform->defers = true;
	return 0;
}

uint32_t transform_deferred_max(const struct transform *transform)
{
	unsigned changes = 0;

	for (unsigned i = transform->delivered_steps; i < transform->step_count; i++)
		if (transform->steps[i].kind >= STEP_GEOMETRY_COUNT)
			changes += draw_effects_max(&transform->steps[i]);
	return (uint32_t)deferred_size(changes);
}

/* Describes the erased rectangle; noise is the same as in erase_pixels(). */
static void defer_erase(const struct erase *erase, struct deferred_change *change)
{
	struct random_stream noise;

	change->left = (uint16_t)erase->x;
	change->top = (uint16_t)erase->y;
	change->width = (uint16_t)erase->width;
	change->height = (uint16_t)erase->height;
	for (unsigned c = 0; c < 3; c++)
		change->pixel |= (uint32_t)rintf(erase->value[c]) << 8 * c;
	if (!erase->noise)
		return;
	random_init(&noise, erase->key, 0, 0, RANDOM_NOISE);
	change->kind = DEFERRED_ERASE_NOISE;
	memcpy(change->key, noise.key, sizeof(change->key));
}

static struct deferred_change defer_change(const struct effect *effect)
{
	struct deferred_change change = {.kind = defer_kinds[effect->kind]};

	if (change.kind == DEFERRED_ERASE)
		defer_erase(&effect->erase, &change);
	else if (change.kind == DEFERRED_CONTRAST || change.kind == DEFERRED_SATURATION)
		effect_blend(effect->factor, &change.factor, &change.rest);
	else
		change.factor = (float)effect->factor;
	return change;
}

void defer_take(struct plan *plan, struct deferred *ret_deferred)
{
	const struct plan_stage *stage = &plan->stages[--plan->stage_count];
	struct deferred deferred = {
		.left = (int32_t)stage->x.offset,
		.top = (int32_t)stage->y.offset,
		.width = stage->x.count,
		.height = stage->y.count,
		.flags = (stage->x.reverse ? DEFERRED_MIRROR_X : 0u) |
			 (stage->y.reverse ? DEFERRED_MIRROR_Y : 0u) |
			 (plan_stage_reflects(stage) ? DEFERRED_REFLECT : 0u),
		.fill = stage->fill[0] | (uint32_t)stage->fill[1] << 8 |
			(uint32_t)stage->fill[2] << 16,
	};

	for (unsigned i = 0; i < stage->effect_count; i++)
		deferred.changes[deferred.count++] =
			defer_change(&plan->effects.effects[stage->effect_begin + i]);
	*ret_deferred = deferred;
}
