#include "format/augment/pipeline.h"
#include "format/augment/apply/defer.h"
#include "format/augment/apply/geometry.h"
#include "format/augment/apply/stage.h"
#include "format/augment/grammar/patches.h"
#include "format/augment/kernels/effects.h"
#include "format/augment/kernels/patches.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <stdlib.h>

int pipeline_scratch_new(struct pipeline_scratch **ret_scratch)
{
	struct pipeline_scratch *scratch = calloc(1, sizeof(*scratch));
	enum cpu_isa isa = cpu_isa_chosen();

	if (!scratch)
		return -ENOMEM;
	scratch->isa = isa;
	scratch->kernels = converter_kernels_get(isa);
	raster_resampler_init(&scratch->resampler, isa);
	int r = canvas_rows_init(&scratch->rows);

	if (r == 0)
		r = resize_new_isa(isa, &scratch->resize);
	if (r == 0)
		r = effects_new(isa, &scratch->effects);
	if (r == 0)
		r = packimg_decoder_new(&scratch->decoder);
	if (r < 0) {
		pipeline_scratch_free(scratch);
		return r;
	}
	*ret_scratch = scratch;
	return 0;
}

void pipeline_scratch_limit(struct pipeline_scratch *scratch, uint64_t bytes)
{
	packimg_decoder_limit(scratch->decoder, bytes);
	scratch->shared.limit = bytes / (2 * SHARED_DECODERS_MAX);
	scratch->rasters.limit = bytes / (2 * SHARED_RASTERS_MAX);
	if (bytes > 0 && scratch->shared.limit == 0) /* which would mean no limit */
		scratch->shared.limit = scratch->rasters.limit = 1;
}

void pipeline_scratch_shared_seed(struct pipeline_scratch *scratch, uint64_t seed)
{
	scratch->shared_seed = seed;
}

void pipeline_scratch_bucket(struct pipeline_scratch *scratch, struct pipeline_size bucket)
{
	scratch->bucket = bucket;
}

void pipeline_scratch_window(struct pipeline_scratch *scratch, struct pipeline_window window)
{
	scratch->window = window;
}

/* Returns the size that differs between finished samples: of the bucket, or of all patches. */
static struct pipeline_size own_size(const struct pipeline *pipeline,
				     const struct packimg_sample *sample,
				     struct pipeline_size bucket)
{
	return pipeline_patch_step(pipeline) ? patches_size(pipeline, sample->width, sample->height)
					     : bucket;
}

struct pipeline_shape scratch_shape(const struct pipeline_scratch *scratch,
				    const struct pipeline *pipeline,
				    const struct packimg_sample *sample, uint64_t epoch)
{
	const struct pipeline_window *window = &scratch->window;
	struct pipeline_shape shape;

	pipeline_shape_in(pipeline, epoch, own_size(pipeline, sample, scratch->bucket), &shape);
	if (window->width > 0 && shape.width > 0) {
		size_t pixel = shape.sample_size / ((size_t)shape.width * shape.height);

		shape.width = window->width;
		shape.height = window->height;
		shape.sample_size = pixel * shape.width * shape.height;
	}
	return shape;
}

void pipeline_scratch_free(struct pipeline_scratch *scratch)
{
	if (!scratch)
		return;
	packimg_decoder_free(scratch->decoder);
	shared_pictures_deinit(&scratch->shared);
	shared_rasters_deinit(&scratch->rasters);
	resize_free(scratch->resize);
	effects_free(scratch->effects);
	free(scratch->between[0].data);
	free(scratch->between[1].data);
	free(scratch->picture.data);
	canvas_rows_deinit(&scratch->rows);
	raster_resampler_deinit(&scratch->resampler);
	free(scratch);
}

/*
 * Returns the resize transform that keeps the aspect ratio, so that sizes can differ; NULL if there
 * is none.
 */
static const struct transform *shape_keeper(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_RESIZE &&
		    !pipeline->transforms[i].sizes[0].height)
			return &pipeline->transforms[i];
	return NULL;
}

static int fail_size(const struct pipeline *pipeline, const struct packimg_sample *sample,
		     struct packimg_error *error)
{
	const struct transform *keeper = shape_keeper(pipeline);
	uint32_t side = keeper ? keeper->sizes[0].width : 0;

	if (keeper)
		return sample_explain(
			error, -EINVAL, sample,
			"is %u x %u pixels, but the first has another aspect ratio: resize(%u) "
			"makes the shorter side %u and keeps the ratio, as torchvision's "
			"Resize(%u); put center_crop(%u) after it, or resize(%ux%u) to change the "
			"ratio",
			sample->width, sample->height, side, side, side, side, side, side);
	return sample_explain(
		error, -EINVAL, sample,
		"is %u x %u pixels, but this pipeline was fixed to %u x %u; add a transform "
		"that sets the size, such as resize(%ux%u)",
		sample->width, sample->height, pipeline->fixed_width, pipeline->fixed_height,
		pipeline->fixed_width, pipeline->fixed_height);
}

static int check_sample(const struct pipeline *pipeline, const struct packimg_sample *sample,
			const struct pipeline_shape *shape, struct packimg_error *error)
{
	if (pipeline_needs_statistics(pipeline))
		return sample_explain(
			error, -EINVAL, sample,
			"normalize(dataset) has not been given the dataset's statistics");
	if (pipeline->fixed_width &&
	    (sample->width != pipeline->fixed_width || sample->height != pipeline->fixed_height))
		return fail_size(pipeline, sample, error);
	if (shape->width == 0)
		return sample_explain(
			error, -EINVAL, sample,
			"this pipeline does not set a size; add a transform that does, such as "
			"random_resized_crop(224)");
	return 0;
}

/*
 * Runs a stage and its effects, and keeps the result as pixels: in scratch->effects, or in
 * scratch->between if the stage has no effects.
 */
static int stage_keep(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
		      const struct geometry *geometry, unsigned index, struct packimg_error *error)
{
	const struct geometry_stage *stage = &geometry->stages[index];
	uint32_t channels = stage->effect_count ? 4 : 3;
	struct canvas canvas = {.stride = (size_t)stage->x.count * channels,
				.width = stage->x.count,
				.height = stage->y.count,
				.channels = channels,
				.bytes = true,
				.rows = &scratch->rows,
				.store_ticks = &scratch->times.store};
	bool between = index + 1 < geometry->stage_count;
	int r = between ? block_reserve(&scratch->between[index % 2],
					(size_t)canvas.width * canvas.height * 3)
			: 0;

	canvas.data = scratch->between[index % 2].data;
	if (r == 0 && stage->effect_count)
		r = effects_begin(scratch->effects, canvas.width, canvas.height, &canvas.data);
	if (r == 0)
		r = stage_run(scratch, sample, geometry, index, &canvas, error);
	if (r < 0 || stage->effect_count == 0)
		return r;
	uint64_t start = ticks_now();

	r = effects_run(scratch->effects, geometry->effects.effects + stage->effect_begin,
			stage->effect_count);
	scratch->times.augment += ticks_since(start);
	return r;
}

/* Copies the picture of a stage with effects to the input of the next stage. */
static void effects_to_next_stage(struct pipeline_scratch *scratch,
				  const struct geometry_stage *stage, uint8_t *pixels)
{
	for (uint32_t y = 0; y < stage->y.count; y++, pixels += (size_t)stage->x.count * 3)
		effects_take_row(scratch->effects, y, pixels);
}

/* Copies the picture of the last stage to the finished sample. */
static void effects_to_converter(struct pipeline_scratch *scratch,
				 const struct pipeline_shape *shape, struct converter *converter)
{
	bool whole = converter_row_channels(shape) == 4;
	uint64_t start = ticks_now();

	converter_begin_stream(converter, scratch->rows.stage);
	for (uint32_t y = 0; y < shape->height; y++) {
		uint8_t *place = whole ? NULL : converter_row_address(converter, y);

		if (!whole)
			effects_take_row(scratch->effects, y, place ? place : scratch->rows.row);
		if (place)
			converter_row_written(converter);
		else
			converter_row(converter, y,
				      whole ? effects_row(scratch->effects, y) : scratch->rows.row);
	}
	scratch->times.store += ticks_since(start);
}

static int apply_geometry(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *sample, const struct geometry *geometry,
			  const struct pipeline_shape *shape, void *output,
			  struct packimg_error *error)
{
	const double none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
	unsigned last = geometry->stage_count - 1;
	bool kept = geometry->stages[last].effect_count > 0;
	struct converter converter;
	int r;

	for (unsigned i = 0; i < (kept ? last + 1 : last); i++) {
		r = stage_keep(scratch, sample, geometry, i, error);
		if (r < 0)
			return r;
		if (i < last && geometry->stages[i].effect_count)
			effects_to_next_stage(scratch, &geometry->stages[i],
					      scratch->between[i % 2].data);
	}
	bool normalize = pipeline->statistics != STATISTICS_NONE;

	converter_init(&converter, scratch->isa, shape, normalize ? pipeline->mean : none,
		       normalize ? pipeline->std : one, output);
	converter.read_again = pipeline_patch_step(pipeline) != NULL;
	if (kept) {
		effects_to_converter(scratch, shape, &converter);
		converter_finish(&converter);
		return 0;
	}
	struct canvas canvas = {.stride = (size_t)shape->width * shape->channels,
				.width = shape->width,
				.height = shape->height,
				.channels = converter_row_channels(shape),
				.converter = &converter,
				.rows = &scratch->rows,
				.store_ticks = &scratch->times.store};

	/* Write interleaved bytes directly to the output. */
	canvas.bytes = shape->element == PIPELINE_U8 && shape->layout == PIPELINE_NHWC;
	canvas.data = canvas.bytes ? output : NULL;
	r = stage_run(scratch, sample, geometry, last, &canvas, error);
	converter_finish(&converter);
	return r;
}

/* Makes the finished picture of a sample. */
static int make_picture(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			const struct packimg_sample *sample, const struct geometry *geometry,
			const struct pipeline_shape *shape, void *output,
			struct packimg_error *error)
{
	int r = apply_geometry(pipeline, scratch, sample, geometry, shape, output, error);

	for (unsigned i = 0; r == 0 && i < geometry->erasure_count; i++)
		erase_sample(&geometry->erasures[i], shape, output);
	return r;
}

/* Makes the finished picture, and divides it into patches. */
static int make_patches(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			const struct packimg_sample *sample, const struct geometry *geometry,
			const struct pipeline_shape *shape, void *output,
			struct packimg_error *error)
{
	int r = block_reserve(&scratch->picture, shape->sample_size);

	if (r < 0)
		return sample_explain(error, r, sample, "has no memory for its patches");
	r = make_picture(pipeline, scratch, sample, geometry, shape, scratch->picture.data, error);
	if (r < 0)
		return r;
	uint64_t start = ticks_now();

	patches_cut(shape, pipeline_patch_step(pipeline)->patches.size, scratch->picture.data,
		    output);
	scratch->times.store += ticks_since(start);
	return 0;
}

static int pipeline_make(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			 const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			 void *output, struct packimg_error *error)
{
	struct pipeline_error reason;
	const struct pipeline_shape shape = scratch_shape(scratch, pipeline, sample, epoch);
	const struct geometry_subject subject = {.boxes = &scratch->boxes,
						 .value = scratch->value,
						 .shared_seed = scratch->shared_seed,
						 .bucket = scratch->bucket,
						 .window = scratch->window};
	struct geometry geometry;

	int r = check_sample(pipeline, sample, &shape, error);
	if (r < 0)
		return r;
	r = geometry_make(pipeline, sample->width, sample->height, seed, epoch, sample->index,
			  &subject, &geometry, &reason);
	if (r < 0)
		return sample_explain(error, r, sample, "%s", reason.text);
	if (pipeline->defers)
		defer_take(&geometry, &scratch->deferred);
	return (pipeline_patch_step(pipeline) ? make_patches : make_picture)(
		pipeline, scratch, sample, &geometry, &shape, output, error);
}

int pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		   const struct packimg_sample *sample, uint64_t seed, uint64_t epoch, void *output,
		   struct pipeline_times *times, struct packimg_error *error)
{
	struct pipeline_times *mine = &scratch->times;
	uint64_t start = times ? ticks_now() : 0;

	*mine = (struct pipeline_times){0};
	int r = pipeline_make(pipeline, scratch, sample, seed, epoch, output, error);

	if (times) {
		uint64_t rest = ticks_since(start) - mine->decode - mine->augment;

		/* `store` is an estimate: it cannot exceed the rest of the time. */
		if (mine->store > rest)
			mine->store = rest;
		times->decode += mine->decode;
		times->augment += mine->augment;
		times->store += mine->store;
		times->resize += rest - mine->store;
	}
	return r;
}

const struct deferred *pipeline_deferred(const struct pipeline_scratch *scratch, uint32_t *ret_size)
{
	*ret_size = (uint32_t)deferred_size(scratch->deferred.count);
	return &scratch->deferred;
}

/*
 * Computes the region that pipeline_apply() will request from the decoder. Returns false if it
 * requests none.
 */
static bool ahead_part(const struct pipeline *pipeline, const struct packimg_sample *sample,
		       const struct geometry_subject *subject, uint64_t seed, uint64_t epoch,
		       struct packimg_ahead *ret_part)
{
	struct pipeline_error reason;
	struct pipeline_shape shape;
	struct geometry geometry;

	pipeline_shape_in(pipeline, epoch, own_size(pipeline, sample, subject->bucket), &shape);
	return check_sample(pipeline, sample, &shape, NULL) == 0 &&
	       geometry_make(pipeline, sample->width, sample->height, seed, epoch, sample->index,
			     subject, &geometry, &reason) == 0 &&
	       stage_batched_decode(&geometry.stages[0], sample, ret_part);
}

uint32_t pipeline_batched_decode(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
				 const struct packimg_sample *samples, uint32_t count,
				 uint64_t seed, uint64_t epoch)
{
	const struct packimg_sample *gaining[PACKIMG_AHEAD_MAX];
	struct packimg_ahead parts[PACKIMG_AHEAD_MAX];
	const struct geometry_subject subject = {.value = scratch->value,
						 .shared_seed = scratch->shared_seed,
						 .bucket = scratch->bucket};
	uint32_t gain = 0, taken = 0;

	/* The boxes or samples that choose the part to decode are not known yet. */
	if (count > 0 && (pipeline_iou_crop(pipeline) || pipeline_mosaic_step(pipeline)))
		count = 0;
	for (uint32_t i = 0; i < count && gain < PACKIMG_AHEAD_MAX; i++)
		if (packimg_sample_unindexed(&samples[i]))
			gaining[gain++] = &samples[i];
	for (uint32_t i = 0; i < gain && gain > 1; i++)
		taken += ahead_part(pipeline, gaining[i], &subject, seed, epoch, &parts[taken]);
	packimg_decode_ahead(scratch->decoder, parts, taken);
	return gain;
}

/* Returns true if the first stage resizes planes, which it decodes itself. */
static bool resizes_planes(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].chroma_fast)
			return true;
	return false;
}

void pipeline_share_decode(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
			   const struct pipeline_view_call *views, unsigned count, uint64_t epoch,
			   struct pipeline_times *times)
{
	struct shared_part parts[PIPELINE_VIEWS_MAX];
	unsigned taken = 0;
	uint64_t start = ticks_now();

	shared_pictures_drop(&scratch->shared);
	shared_rasters_begin(&scratch->rasters, count > 1);
	for (unsigned i = 0; i < count; i++) {
		const struct geometry_subject subject = {.value = views[i].value,
							 .shared_seed = scratch->shared_seed,
							 .bucket = scratch->bucket};
		struct packimg_ahead part;

		/* The boxes that choose the part to decode are not known yet. */
		if (pipeline_iou_crop(views[i].pipeline) || resizes_planes(views[i].pipeline) ||
		    !ahead_part(views[i].pipeline, sample, &subject, views[i].seed, epoch, &part))
			continue;
		parts[taken++] = (struct shared_part){part.region, part.size_hint_width,
						      part.size_hint_height};
	}
	/* Without memory for a decoder, each view decodes its part. */
	if (taken > 1)
		(void)shared_pictures_decode(&scratch->shared, sample, parts, taken);
	if (times && count > 0)
		times->decode += ticks_since(start);
}
