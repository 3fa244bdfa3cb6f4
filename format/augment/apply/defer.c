#include "format/augment/apply/defer.h"
#include "format/augment/grammar/draw.h"
#include "format/augment/grammar/patches.h"
#include "format/augment/kernels/effect_kernels.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { STAYS, DEFERS };

/* Transforms that change pixels and that a client can run. */
static const bool defer_transforms[TRANSFORM_PIXELS_COUNT] = {
#define TRANSFORM(constant, where, ...) [TRANSFORM_##constant] = where,
	TRANSFORMS_OF_PIXELS(TRANSFORM, )
#undef TRANSFORM
};

/* Deferred kind of each effect; 0 if a client cannot run the effect. */
static const uint32_t defer_kinds[EFFECT_KINDS] = {
#define KIND_DEFERS(constant) [EFFECT_##constant] = DEFERRED_##constant,
#define KIND_STAYS(constant)
#define EFFECT(constant, how, where, ...) KIND_##where(constant)
	EFFECTS(EFFECT)
#undef EFFECT
#undef KIND_STAYS
#undef KIND_DEFERS
};

static bool defer_changes_pixels(const struct transform *transform)
{
	if (transform->values)
		return false;
	if (transform->kind == TRANSFORM_EFFECT)
		return defer_kinds[transform->effect] != 0;
	return defer_transforms[transform->kind] && !transform->finished;
}

/*
 * Returns the index of the first transform that can be deferred together with all transforms after
 * it; transform_count if there is none.
 */
static unsigned defer_first(const struct pipeline *pipeline)
{
	unsigned i = pipeline->transform_count, changes = 0;

	while (i > 0 && defer_changes_pixels(&pipeline->transforms[i - 1])) {
		changes += draw_effects_max(&pipeline->transforms[i - 1]);
		if (changes > DEFERRED_CHANGES_MAX)
			return i;
		i--;
	}
	while (i > 0 && (pipeline->transforms[i - 1].kind == TRANSFORM_HFLIP ||
			 pipeline->transforms[i - 1].kind == TRANSFORM_VFLIP))
		i--;
	return i > 0 && pipeline->transforms[i - 1].kind == TRANSFORM_RANDOM_CROP ? i - 1 : i;
}

int pipeline_defer(struct pipeline *pipeline, struct pipeline_error *error)
{
	if (pipeline->view_count > 0)
		return pipeline_fail(error, -EINVAL, -1,
				     "views leave nothing to the client: write a pipeline without "
				     "them");
	if (pipeline_mosaic_step(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline->transforms[0].position,
				     "mosaic joins samples in the daemon, and its pipelines leave "
				     "nothing to the client: ask for finished samples");
	if (pipeline->paste.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->paste.position,
				     "copy_paste pastes finished samples in the daemon, and leaves "
				     "nothing to the client: leave it out");
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_BUCKET_RESIZE)
			return pipeline_fail(error, -EINVAL, pipeline->transforms[i].position,
					     "bucket_resize gives batches different sizes, and "
					     "transforms can be deferred only where all have one: "
					     "ask for finished samples");
	if (pipeline_patch_step(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline_patch_step(pipeline)->position,
				     "patches leave nothing to the client: ask for finished "
				     "samples");
	if (pipeline->batch.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->batch.position,
				     "mixup, cutmix and targets leave nothing to the client, since "
				     "they come last: leave them out");
	if (pipeline->element != PIPELINE_U8 || pipeline->layout != PIPELINE_NHWC)
		return pipeline_fail(error, -EINVAL, -1,
				     "transforms can be deferred only where bytes are delivered, "
				     "interleaved: leave normalize, to "
				     "and layout out");
	for (unsigned i = defer_first(pipeline); i < pipeline->transform_count; i++)
		if (pipeline_size_known_after(pipeline, i)) {
			pipeline->delivered_transforms = i;
			break;
		}
	pipeline->defers = true;
	return 0;
}

uint32_t pipeline_deferred_max(const struct pipeline *pipeline)
{
	unsigned changes = 0;

	for (unsigned i = pipeline->delivered_transforms; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind >= TRANSFORM_GEOMETRY_COUNT)
			changes += draw_effects_max(&pipeline->transforms[i]);
	return (uint32_t)deferred_size(changes);
}

/* Describes an erased rectangle. The noise is that of erase_pixels(). */
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

void defer_take(struct geometry *geometry, struct deferred *ret_deferred)
{
	const struct geometry_stage *stage = &geometry->stages[--geometry->stage_count];
	struct deferred deferred = {
		.left = (int32_t)stage->x.offset,
		.top = (int32_t)stage->y.offset,
		.width = stage->x.count,
		.height = stage->y.count,
		.flags = (stage->x.reverse ? DEFERRED_MIRROR_X : 0u) |
			 (stage->y.reverse ? DEFERRED_MIRROR_Y : 0u) |
			 (geometry_stage_reflects(stage) ? DEFERRED_REFLECT : 0u),
		.fill = stage->fill[0] | (uint32_t)stage->fill[1] << 8 |
			(uint32_t)stage->fill[2] << 16,
	};

	for (unsigned i = 0; i < stage->effect_count; i++)
		deferred.changes[deferred.count++] =
			defer_change(&geometry->effects.effects[stage->effect_begin + i]);
	*ret_deferred = deferred;
}
