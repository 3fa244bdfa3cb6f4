#include "format/augment/transform.h"
#include "format/augment/apply/defer.h"
#include "format/augment/apply/plan.h"
#include "format/augment/apply/stage.h"
#include "format/augment/grammar/steps.h"
#include "format/augment/kernels/effects.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <stdlib.h>

int transform_scratch_new(struct transform_scratch **ret_scratch)
{
	struct transform_scratch *scratch = calloc(1, sizeof(*scratch));
	enum cpu_isa isa = cpu_isa_chosen();

	if (!scratch)
		return -ENOMEM;
	scratch->isa = isa;
	scratch->kernels = store_kernels_get(isa);
	int r = canvas_rows_init(&scratch->rows);

	if (r == 0)
		r = resize_new_isa(isa, &scratch->resize);
	if (r == 0)
		r = effects_new(isa, &scratch->effects);
	if (r == 0)
		r = packimg_decoder_new(&scratch->decoder);
	if (r < 0) {
		transform_scratch_free(scratch);
		return r;
	}
	*ret_scratch = scratch;
	return 0;
}

void transform_scratch_limit(struct transform_scratch *scratch, uint64_t bytes)
{
	packimg_decoder_limit(scratch->decoder, bytes);
}

void transform_scratch_free(struct transform_scratch *scratch)
{
	if (!scratch)
		return;
	packimg_decoder_free(scratch->decoder);
	resize_free(scratch->resize);
	effects_free(scratch->effects);
	free(scratch->between[0].data);
	free(scratch->between[1].data);
	canvas_rows_deinit(&scratch->rows);
	free(scratch);
}

/* Returns the resize step that keeps the aspect ratio and so makes sizes differ, or NULL. */
static const struct step *shape_keeper(const struct transform *transform)
{
	for (unsigned i = 0; i < transform->step_count; i++)
		if (transform->steps[i].kind == STEP_RESIZE && !transform->steps[i].sizes[0].height)
			return &transform->steps[i];
	return NULL;
}

static int fail_size(const struct transform *transform, const struct packimg_sample *sample,
		     struct packimg_error *error)
{
	const struct step *keeper = shape_keeper(transform);
	uint32_t side = keeper ? keeper->sizes[0].width : 0;

	if (keeper)
		return sample_explain(
			error, -EINVAL, sample,
			"is %u x %u pixels, and of another shape than the first: resize(%u) makes "
			"the shorter side %u and keeps the shape, as torchvision's Resize(%u); put "
			"center_crop(%u) behind it, or resize(%ux%u) to change the shape",
			sample->width, sample->height, side, side, side, side, side, side);
	return sample_explain(
		error, -EINVAL, sample,
		"is %u x %u pixels, but this pipeline was fixed to %u x %u; add a step "
		"that sets the size, such as resize(%ux%u)",
		sample->width, sample->height, transform->fixed_width, transform->fixed_height,
		transform->fixed_width, transform->fixed_height);
}

static int check_sample(const struct transform *transform, const struct packimg_sample *sample,
			const struct transform_shape *shape, struct packimg_error *error)
{
	if (transform_needs_statistics(transform))
		return sample_explain(
			error, -EINVAL, sample,
			"normalize(dataset) has not been given the dataset's statistics");
	if (transform->fixed_width &&
	    (sample->width != transform->fixed_width || sample->height != transform->fixed_height))
		return fail_size(transform, sample, error);
	if (shape->width == 0)
		return sample_explain(
			error, -EINVAL, sample,
			"this pipeline does not set a size; add a step that does, such as "
			"random_resized_crop(224)");
	return 0;
}

/*
 * Makes a stage's output as pixels and runs its effects. The result is in scratch->effects, or in
 * scratch->between if the stage has no effects.
 */
static int stage_keep(struct transform_scratch *scratch, const struct packimg_sample *sample,
		      const struct plan *plan, unsigned index, struct packimg_error *error)
{
	const struct plan_stage *stage = &plan->stages[index];
	uint32_t channels = stage->effect_count ? 4 : 3;
	struct canvas canvas = {.stride = (size_t)stage->x.count * channels,
				.width = stage->x.count,
				.height = stage->y.count,
				.channels = channels,
				.bytes = true,
				.rows = &scratch->rows,
				.store_ticks = &scratch->times.store};
	bool between = index + 1 < plan->stage_count;
	int r = between ? block_reserve(&scratch->between[index % 2],
					(size_t)canvas.width * canvas.height * 3)
			: 0;

	canvas.data = scratch->between[index % 2].data;
	if (r == 0 && stage->effect_count)
		r = effects_begin(scratch->effects, canvas.width, canvas.height, &canvas.data);
	if (r == 0)
		r = stage_run(scratch, sample, plan, index, &canvas, error);
	if (r < 0 || stage->effect_count == 0)
		return r;
	uint64_t start = ticks_now();

	r = effects_run(scratch->effects, plan->effects.effects + stage->effect_begin,
			stage->effect_count);
	scratch->times.augment += ticks_since(start);
	return r;
}

/* Copies the picture of a stage with effects to the input of the next stage. */
static void effects_to_between(struct transform_scratch *scratch, const struct plan_stage *stage,
			       uint8_t *pixels)
{
	for (uint32_t y = 0; y < stage->y.count; y++, pixels += (size_t)stage->x.count * 3)
		effects_take_row(scratch->effects, y, pixels);
}

/* Copies the picture of the last stage to the finished sample. */
static void effects_to_store(struct transform_scratch *scratch, const struct transform_shape *shape,
			     struct store *store)
{
	bool whole = store_row_channels(shape) == 4;
	uint64_t start = ticks_now();

	store_begin_stream(store, scratch->rows.stage);
	for (uint32_t y = 0; y < shape->height; y++) {
		uint8_t *place = whole ? NULL : store_place(store, y);

		if (!whole)
			effects_take_row(scratch->effects, y, place ? place : scratch->rows.row);
		if (place)
			store_placed(store);
		else
			store_row(store, y,
				  whole ? effects_row(scratch->effects, y) : scratch->rows.row);
	}
	scratch->times.store += ticks_since(start);
}

static int apply_plan(const struct transform *transform, struct transform_scratch *scratch,
		      const struct packimg_sample *sample, const struct plan *plan,
		      const struct transform_shape *shape, void *output,
		      struct packimg_error *error)
{
	const double none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
	unsigned last = plan->stage_count - 1;
	bool kept = plan->stages[last].effect_count > 0;
	struct store store;
	int r;

	for (unsigned i = 0; i < (kept ? last + 1 : last); i++) {
		r = stage_keep(scratch, sample, plan, i, error);
		if (r < 0)
			return r;
		if (i < last && plan->stages[i].effect_count)
			effects_to_between(scratch, &plan->stages[i], scratch->between[i % 2].data);
	}
	bool normalize = transform->statistics != STATISTICS_NONE;

	store_init(&store, scratch->isa, shape, normalize ? transform->mean : none,
		   normalize ? transform->std : one, output);
	if (kept) {
		effects_to_store(scratch, shape, &store);
		store_finish(&store);
		return 0;
	}
	struct canvas canvas = {.stride = (size_t)shape->width * shape->channels,
				.width = shape->width,
				.height = shape->height,
				.channels = store_row_channels(shape),
				.store = &store,
				.rows = &scratch->rows,
				.store_ticks = &scratch->times.store};

	/* Write interleaved bytes directly to the output. */
	canvas.bytes = shape->element == TRANSFORM_U8 && shape->layout == TRANSFORM_NHWC;
	canvas.data = canvas.bytes ? output : NULL;
	r = stage_run(scratch, sample, plan, last, &canvas, error);
	store_finish(&store);
	return r;
}

static int transform_make(const struct transform *transform, struct transform_scratch *scratch,
			  const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			  void *output, struct packimg_error *error)
{
	struct transform_error reason;
	struct transform_shape shape;
	struct plan plan;
	int r;

	transform_shape(transform, epoch, &shape);
	r = check_sample(transform, sample, &shape, error);
	if (r < 0)
		return r;
	r = plan_make(transform, sample->width, sample->height, seed, epoch, sample->index, &plan,
		      &reason);
	if (r < 0)
		return sample_explain(error, r, sample, "%s", reason.text);
	if (transform->defers)
		defer_take(&plan, &scratch->deferred);
	r = apply_plan(transform, scratch, sample, &plan, &shape, output, error);
	for (unsigned i = 0; r == 0 && i < plan.erasure_count; i++)
		erase_sample(&plan.erasures[i], &shape, output);
	return r;
}

int transform_apply(const struct transform *transform, struct transform_scratch *scratch,
		    const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
		    void *output, struct transform_times *times, struct packimg_error *error)
{
	struct transform_times *mine = &scratch->times;
	uint64_t start = times ? ticks_now() : 0;

	*mine = (struct transform_times){0};
	int r = transform_make(transform, scratch, sample, seed, epoch, output, error);

	if (times) {
		uint64_t rest = ticks_since(start) - mine->decode - mine->augment;

		/* `store` is an estimate: limit it to the time it is part of. */
		if (mine->store > rest)
			mine->store = rest;
		times->decode += mine->decode;
		times->augment += mine->augment;
		times->store += mine->store;
		times->resize += rest - mine->store;
	}
	return r;
}

const struct deferred *transform_deferred(const struct transform_scratch *scratch,
					  uint32_t *ret_size)
{
	*ret_size = (uint32_t)deferred_size(scratch->deferred.count);
	return &scratch->deferred;
}

/* Computes what transform_apply() will request from the decoder. Returns false if nothing. */
static bool ahead_part(const struct transform *transform, const struct packimg_sample *sample,
		       uint64_t seed, uint64_t epoch, struct packimg_ahead *ret_part)
{
	struct transform_error reason;
	struct transform_shape shape;
	struct plan plan;

	transform_shape(transform, epoch, &shape);
	return check_sample(transform, sample, &shape, NULL) == 0 &&
	       plan_make(transform, sample->width, sample->height, seed, epoch, sample->index,
			 &plan, &reason) == 0 &&
	       stage_ahead(&plan.stages[0], sample, ret_part);
}

uint32_t transform_ahead(const struct transform *transform, struct transform_scratch *scratch,
			 const struct packimg_sample *samples, uint32_t count, uint64_t seed,
			 uint64_t epoch)
{
	const struct packimg_sample *gaining[PACKIMG_AHEAD_MAX];
	struct packimg_ahead parts[PACKIMG_AHEAD_MAX];
	uint32_t gain = 0, taken = 0;

	for (uint32_t i = 0; i < count && gain < PACKIMG_AHEAD_MAX; i++)
		if (packimg_sample_unindexed(&samples[i]))
			gaining[gain++] = &samples[i];
	for (uint32_t i = 0; i < gain && gain > 1; i++)
		taken += ahead_part(transform, gaining[i], seed, epoch, &parts[taken]);
	packimg_decode_ahead(scratch->decoder, parts, taken);
	return gain;
}
