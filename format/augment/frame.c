#include "format/augment/frame.h"
#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/geometry.h"
#include "format/augment/apply/raster_resampler.h"
#include "format/augment/apply/stage.h"
#include "format/augment/apply/widen.h"
#include "format/augment/frame_raster.h"
#include "format/augment/grammar/patches.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <string.h>

int pipeline_check_frame(const struct pipeline *pipeline, bool coordinates,
			 struct pipeline_error *error)
{
	if (pipeline->defers)
		return pipeline_fail(error, -EINVAL, -1,
				     "the client would run the last transforms on images alone: "
				     "masks, boxes and points need a pipeline that does not defer");
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		const struct transform *transform = &pipeline->transforms[i];

		if (transform->kind >= TRANSFORM_RAND_AUGMENT)
			return pipeline_fail(error, -EINVAL, transform->position,
					     "rand_augment, trivial_augment_wide, aug_mix and "
					     "auto_augment move the pixels of images alone: use "
					     "random_affine and transforms of colour with masks, "
					     "boxes and points");
		if (coordinates && transform->reflect && (transform->pad[0] || transform->pad[1]))
			return pipeline_fail(error, -EINVAL, transform->position,
					     "boxes and points have no position in a border that "
					     "mirrors the picture: give fill a number");
	}
	return 0;
}

bool pipeline_drops_boxes(const struct pipeline *pipeline, uint32_t value)
{
	if (pipeline_mosaic_step(pipeline) || pipeline->paste.position >= 0)
		return true;
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		const struct transform *transform = &pipeline->transforms[i];

		if (transform->kind == TRANSFORM_SANITIZE_BOXES &&
		    (!transform->values || transform->values & value))
			return true;
	}
	return false;
}

int pipeline_check_no_boxes(const struct pipeline *pipeline, struct pipeline_error *error)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		const struct transform *transform = &pipeline->transforms[i];

		if (transform_is_of_boxes(transform->kind))
			return pipeline_fail(error, -EINVAL, transform->position,
					     "%s acts on boxes, but none are delivered: request a "
					     "value of role boxes, or leave it out",
					     transform_name(transform->kind));
	}
	return 0;
}

void pipeline_scratch_value(struct pipeline_scratch *scratch, uint32_t value)
{
	scratch->value = value;
}

void pipeline_scratch_boxes(struct pipeline_scratch *scratch, const struct frame_boxes *boxes)
{
	scratch->boxes = boxes ? *boxes : (struct frame_boxes){0};
}

/*
 * Computes the geometry of a sample. Checks that it ends with the size of finished samples, for
 * which `output` has room.
 */
static int frame_geometry(const struct pipeline *pipeline, const struct pipeline_scratch *scratch,
			  const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			  struct geometry *geometry, struct packimg_error *error)
{
	struct pipeline_error reason;
	const struct pipeline_shape shape = scratch_shape(scratch, pipeline, sample, epoch);
	const struct geometry_subject subject = {.boxes = &scratch->boxes,
						 .shared_seed = scratch->shared_seed,
						 .bucket = scratch->bucket,
						 .tile = scratch->tile,
						 .window = scratch->window};
	int r = geometry_make(pipeline, sample->width, sample->height, seed, epoch, sample->index,
			      &subject, geometry, &reason);

	if (r < 0)
		return sample_explain(error, r, sample, "%s", reason.text);
	const struct geometry_stage *last = &geometry->stages[geometry->stage_count - 1];

	if (last->x.count != shape.width || last->y.count != shape.height)
		return sample_explain(error, -EINVAL, sample,
				      "is %u x %u pixels, which this pipeline makes %u x %u, but "
				      "finished samples are %u x %u; add a transform that sets the "
				      "size, such as resize(%ux%u)",
				      sample->width, sample->height, last->x.count, last->y.count,
				      shape.width, shape.height, shape.width, shape.height);
	return 0;
}

/* Compares the decoded raster with its description in the schema. */
static int check_raster(const struct packimg_sample *sample, const struct frame_raster *form,
			const struct packimg_raster *raster, struct packimg_error *error)
{
	if (raster->element == form->element && raster->channels == form->channels)
		return 0;
	return sample_explain(error, -EBADMSG, sample,
			      "has a mask or raster of %u channels and element %d, but the schema "
			      "says %u channels and element %d",
			      raster->channels, (int)raster->element, form->channels,
			      (int)form->element);
}

/* Returns the element with which the raster is delivered. */
static enum schema_element output_element(const struct frame_raster *form)
{
	return form->output ? form->output : (enum schema_element)form->element;
}

void pipeline_fill_raster(const struct frame_raster *form, void *output, size_t size)
{
	enum schema_element from = (enum schema_element)form->element, to = output_element(form);
	size_t narrow = schema_element_size(from), wide = schema_element_size(to);
	uint8_t element[sizeof(uint64_t)];

	memcpy(element + wide - narrow, form->fill, narrow);
	widen(from, to, element, 1);
	for (size_t at = 0; at < size; at += wide)
		memcpy((uint8_t *)output + at, element, wide);
}

/* Makes the elements at the end of the output's room, and widens them there. */
static int finish_raster(struct raster_resampler *resampler, const struct geometry *geometry,
			 const struct frame_raster *form, const struct packimg_raster *raster,
			 uint8_t *output)
{
	const struct geometry_stage *last = &geometry->stages[geometry->stage_count - 1];
	enum schema_element from = (enum schema_element)form->element, to = output_element(form);
	size_t count = (size_t)last->x.count * last->y.count * form->channels;
	size_t before = count * (schema_element_size(to) - schema_element_size(from));
	int r = raster_resampler_run(resampler, raster, form->fill, output + before);

	if (r == 0)
		widen(from, to, output, count);
	return r;
}

/* Provides the region of a raster. */
static int get_raster(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
		      const struct frame_raster *form, const struct packimg_region *region,
		      const struct packimg_raster *whole, struct packimg_raster *ret_raster,
		      struct packimg_error *error)
{
	uint64_t start = ticks_now();

	if (whole) {
		*ret_raster = *whole;
		ret_raster->data +=
			(ptrdiff_t)region->y * whole->step_y + (ptrdiff_t)region->x * whole->step_x;
		ret_raster->width = region->width;
		ret_raster->height = region->height;
		return 0;
	}
	int r = 0;
	if (!shared_rasters_decode(&scratch->rasters, sample, form->number, region, ret_raster))
		r = packimg_decode_raster(scratch->decoder, sample, region, ret_raster, error);

	scratch->times.decode += ticks_since(start);
	return r == 0 ? check_raster(sample, form, ret_raster, error) : r;
}

int raster_run(struct pipeline_scratch *scratch, const struct geometry *geometry,
	       const struct packimg_sample *sample, const struct frame_raster *form,
	       const struct packimg_raster *whole, void *output, struct packimg_error *error)
{
	struct packimg_raster raster = {.element = form->element, .channels = form->channels};
	struct raster_resampler *resampler = &scratch->resampler;
	struct packimg_region region;
	int r = raster_resampler_begin(resampler, geometry, form->width, form->height, form->filter,
				       &region);

	if (r == -E2BIG)
		return sample_explain(
			error, -EINVAL, sample,
			"would be resized to more than %d pixels: resize it to fewer, "
			"or use filter(nearest)",
			RASTER_RESAMPLER_PIXELS_MAX);

	if (r == 0 && region.width > 0) {
		r = get_raster(scratch, sample, form, &region, whole, &raster, error);
		if (r < 0)
			return r;
	}
	if (r == 0)
		r = finish_raster(resampler, geometry, form, &raster, output);
	return r < 0 ? sample_explain(error, r, sample, "has no memory for its mask") : 0;
}

int raster_check_size(const struct packimg_sample *raster, const struct frame_raster *form,
		      struct packimg_error *error)
{
	if (raster->width == form->width && raster->height == form->height)
		return 0;
	return sample_explain(error, -EBADMSG, raster,
			      "has a mask or raster of %u x %u pixels, but an image of %u x "
			      "%u",
			      raster->width, raster->height, form->width, form->height);
}

int pipeline_apply_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *raster, const struct frame_raster *form,
			  uint64_t seed, uint64_t epoch, void *output, struct pipeline_times *times,
			  struct packimg_error *error)
{
	return raster_finish(pipeline, scratch, raster, form, NULL, seed, epoch, output, times,
			     error);
}

int raster_finish(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		  const struct packimg_sample *sample, const struct frame_raster *form,
		  const struct packimg_raster *whole, uint64_t seed, uint64_t epoch, void *output,
		  struct pipeline_times *times, struct packimg_error *error)
{
	uint64_t start = ticks_now();
	struct geometry geometry;

	scratch->times = (struct pipeline_times){0};
	int r = raster_check_size(sample, form, error);
	if (r == 0)
		r = frame_geometry(pipeline, scratch, sample, seed, epoch, &geometry, error);
	if (r == 0)
		r = raster_run(scratch, &geometry, sample, form, whole, output, error);
	if (times) {
		times->decode += scratch->times.decode;
		times->resize += ticks_since(start) - scratch->times.decode;
	}
	return r;
}

int pipeline_crop_top_left(const struct pipeline *pipeline, const struct pipeline_scratch *scratch,
			   const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			   int32_t ret_top_left[2], struct packimg_error *error)
{
	struct geometry geometry;
	int64_t width = sample->width, height = sample->height, x = 0, y = 0;
	int r = frame_geometry(pipeline, scratch, sample, seed, epoch, &geometry, error);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < geometry.step_count; i++) {
		const struct geometry_step *step = &geometry.steps[i];
		int sign = step->kind == GEOMETRY_STEP_PAD ? -1 : 1;

		x += sign * (int64_t)step->x;
		y += sign * (int64_t)step->y;
		if (step->kind == GEOMETRY_STEP_HFLIP)
			x = width - x - step->width;
		if (step->kind == GEOMETRY_STEP_VFLIP)
			y = height - y - step->height;
		if (step->kind != GEOMETRY_STEP_RESIZE)
			continue;
		width = step->width;
		height = step->height;
		x = y = 0;
	}
	ret_top_left[0] = (int32_t)y;
	ret_top_left[1] = (int32_t)x;
	return 0;
}

int pipeline_apply_coordinates(const struct pipeline *pipeline,
			       const struct pipeline_scratch *scratch, uint64_t index,
			       uint32_t width, uint32_t height,
			       const struct coordinates *coordinates, uint64_t seed, uint64_t epoch,
			       float *rows, size_t count, uint8_t *keep,
			       struct packimg_error *error)
{
	const struct packimg_sample sample = {.index = index, .width = width, .height = height};
	struct geometry geometry;
	int r = frame_geometry(pipeline, scratch, &sample, seed, epoch, &geometry, error);

	if (r == 0)
		coordinates_apply(&geometry, width, height, coordinates, rows, count, keep);
	return r;
}
