/*
 * Arbitrary text as a pipeline. The parser must refuse it with a position in the text, or return a
 * pipeline whose geometry stays within the image and whose output has the shape that
 * pipeline_shape() returns. Its effects must run on images of these sizes, and masks and boxes must
 * follow its steps.
 */
#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/defer.h"
#include "format/augment/apply/geometry.h"
#include "format/augment/apply/raster_resampler.h"
#include "format/augment/grammar/patches.h"
#include "format/augment/kernels/effects.h"
#include "format/base/system/cpu.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
	if (!holds)
		abort();
}

static void check_axis(const struct geometry_axis *axis, uint32_t source, uint32_t count)
{
	uint32_t first = 0;
	int64_t grid = 0;
	uint32_t content = geometry_axis_content(axis, &first, &grid);

	check(axis->source == source && axis->count == count);
	check(axis->low < axis->high && axis->high <= source && axis->grid > 0);
	check(content <= count);
	if (content == 0)
		return;
	check(first + content <= count);
	check(grid >= 0 && grid + content <= axis->grid);
}

enum { EFFECT_PIXELS_MAX = 5000 }; /* larger images would only be slow */

/* Runs a stage's effects with every instruction set. */
static void check_effects(const struct geometry *geometry, const struct geometry_stage *stage)
{
	static struct effects *effects[CPU_ISA_COUNT];
	size_t size = (size_t)stage->x.count * stage->y.count * 4;
	const uint8_t *reference = NULL;

	if (stage->effect_count == 0 || size > (size_t)EFFECT_PIXELS_MAX * 4)
		return;
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		uint8_t *pixels;

		if (!effects[isa])
			check(effects_new((enum cpu_isa)isa, &effects[isa]) == 0);
		check(effects_begin(effects[isa], stage->x.count, stage->y.count, &pixels) == 0);
		for (size_t i = 0; i < size; i++)
			pixels[i] = i % 4 == 3 ? 0 : (uint8_t)(i * i * 2654435761u >> 13);
		check(effects_run(effects[isa], geometry->effects.effects + stage->effect_begin,
				  stage->effect_count) == 0);
		if (isa == 0)
			reference = effects_row(effects[isa], 0);
		check(memcmp(effects_row(effects[isa], 0), reference, size) == 0);
	}
}

/* Checks that steps follow each other from the image's size to the sample's. Returns the largest.
 */
static uint64_t check_steps(const struct geometry *geometry, uint32_t width, uint32_t height,
			    const struct pipeline_shape *shape)
{
	uint64_t largest = (uint64_t)width * height;

	check(geometry->step_count <= GEOMETRY_STEPS_MAX);
	for (unsigned i = 0; i < geometry->step_count; i++) {
		const struct geometry_step *step = &geometry->steps[i];
		uint64_t size = (uint64_t)step->width * step->height;
		bool crop = step->kind == GEOMETRY_STEP_CROP, pad = step->kind == GEOMETRY_STEP_PAD;

		check(step->from_width == width && step->from_height == height && size > 0);
		check(!crop ||
		      (step->x + step->width <= width && step->y + step->height <= height));
		check(!pad || (step->x + width <= step->width && step->y + height <= step->height));
		check(crop || pad || step->kind == GEOMETRY_STEP_RESIZE ||
		      (step->width == width && step->height == height));
		width = step->width;
		height = step->height;
		largest = size > largest ? size : largest;
	}
	check(width == shape->width && height == shape->height);
	return largest;
}

/* Moves a mask of two channels of which only the decoded region is in memory. Compares filters. */
static void check_mask(const struct geometry *geometry, uint32_t width, uint32_t height,
		       const struct pipeline_shape *shape, enum pipeline_filter filter)
{
	size_t size = (size_t)shape->width * shape->height * 2;
	int16_t *output = malloc(size * sizeof(*output)), fill = 1000;
	struct packimg_region region;
	struct raster_resampler resampler;

	raster_resampler_init(&resampler, cpu_isa_chosen());
	check(output &&
	      raster_resampler_begin(&resampler, geometry, width, height, filter, &region) == 0);
	check(region.x + region.width <= width && region.y + region.height <= height);
	size_t pixels = (size_t)region.width * region.height;
	int16_t *mask = malloc(pixels * 2 * sizeof(*mask) + 1);

	check(mask != NULL);
	for (size_t i = 0; i < pixels; i++) {
		mask[2 * i] = (int16_t)(region.x + i % region.width);
		mask[2 * i + 1] = (int16_t)(region.y + i / region.width);
	}
	struct packimg_raster raster = {
		(const uint8_t *)mask, 4, 4 * (ptrdiff_t)region.width, region.width,
		region.height,         2, PACKIMG_ELEMENT_I16};

	check(raster_resampler_run(&resampler, &raster, &fill, output) == 0);
	for (size_t i = 0; i < size && filter == PIPELINE_NEAREST; i += 2)
		check((output[i] == fill && output[i + 1] == fill) ||
		      (output[i] >= 0 && output[i] < (int32_t)width && output[i + 1] >= 0 &&
		       output[i + 1] < (int32_t)height));
	raster_resampler_deinit(&resampler);
	free(mask);
	free(output);
}

enum { BOXES = 7 };

/*
 * Checks coordinates of every format, with rows of arbitrary bytes and rows of extreme numbers:
 * boxes stay finite, and points become finite or a pair of NaNs.
 */
static void check_formats(const struct geometry *geometry, uint32_t width, uint32_t height)
{
	static const struct coordinates formats[] = {
		{.role = SCHEMA_BOXES, .format = SCHEMA_XYXY, .value = 1},
		{.role = SCHEMA_BOXES, .format = SCHEMA_XYWH, .value = 2},
		{.role = SCHEMA_BOXES, .format = SCHEMA_CXCYWH, .normalized = true},
		{.role = SCHEMA_BOXES, .format = SCHEMA_CXCYWHR},
		{.role = SCHEMA_KEYPOINTS, .format = SCHEMA_XYV, .normalized = true},
		{.role = SCHEMA_POLYGONS, .format = SCHEMA_XY},
	};
	static const float extremes[] = {0,        -0.0F,     1,          -1,  0.5F,
					 1e-45F,   3.4e38F,   -3.4e38F,   NAN, 65535,
					 INFINITY, -INFINITY, 16777217.0F};
	enum { EXTREMES = sizeof(extremes) / sizeof(*extremes), ROWS = 3 * EXTREMES };
	float rows[ROWS * 5];
	uint8_t keep[ROWS];

	for (unsigned f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
		const size_t row = coordinates_row(&formats[f]);

		for (size_t i = 0; i < ROWS * row; i++)
			rows[i] = extremes[(i * 7 + i / EXTREMES * (f + 3)) % EXTREMES];
		coordinates_apply(geometry, width, height, &formats[f], rows, ROWS, keep);
		for (size_t i = 0; i < ROWS; i++) {
			const float *at = rows + i * row;
			bool finite = isfinite(at[0]) && isfinite(at[1]);

			check(keep[i] <= 1);
			if (formats[f].role == SCHEMA_BOXES)
				check(finite && isfinite(at[2]) && isfinite(at[3]));
			else
				check(finite || (isnan(at[0]) && isnan(at[1])));
		}
	}
}

/* Boxes of arbitrary bytes stay finite and are never reversed. */
static void check_boxes(const struct geometry *geometry, const struct frame_boxes *given,
			uint32_t width, uint32_t height)
{
	float boxes[BOXES][4];
	const size_t count = BOXES;
	struct coordinates xyxy = given->form;
	uint8_t keep[BOXES];

	memcpy(boxes, given->rows, sizeof(boxes));
	coordinates_apply(geometry, width, height, &xyxy, boxes[0], count, keep);
	for (size_t i = 0; i < count; i++)
		check(keep[i] <= 1 && isfinite(boxes[i][0]) && isfinite(boxes[i][1]) &&
		      isfinite(boxes[i][2]) && isfinite(boxes[i][3]) &&
		      boxes[i][0] <= boxes[i][2] && boxes[i][1] <= boxes[i][3]);
}

/* If `pixels`, also runs effects and moves masks, which takes most of the time. */
static void check_geometry(const struct pipeline *pipeline, uint32_t width, uint32_t height,
			   struct pipeline_size bucket, uint64_t epoch, bool pixels)
{
	struct pipeline_error error;
	struct pipeline_shape shape;
	struct geometry geometry;
	const float rows[BOXES][4] = {{NAN, 1, 2, 3},          {-3e38f, -3e38f, 3e38f, 3e38f},
				      {1e-40f, 0, 1, 1},       {9, 9, 0, 0},
				      {0, 0, INFINITY, 1},     {0, 0, (float)width, (float)height},
				      {0.3f, 0.4f, 0.6f, 0.7f}};
	float corners[BOXES][4];
	const struct frame_boxes boxes = {
		{SCHEMA_BOXES, SCHEMA_XYXY, width % 2, epoch % 2}, rows[0], BOXES, corners[0]};

	if (pipeline_patch_step(pipeline))
		bucket = patches_size(pipeline, width, height);
	const struct geometry_subject subject = {
		.boxes = &boxes, .value = pipeline->value_count ? 1 : 0, .bucket = bucket};

	pipeline_shape_in(pipeline, epoch, bucket, &shape);
	check(shape.sample_size <= pipeline_sample_size_max(pipeline));
	if (geometry_make(pipeline, width, height, 1, epoch, width, &subject, &geometry, &error) <
	    0) {
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
		return;
	}
	check(geometry.effects.count <= EFFECTS_MAX &&
	      geometry.erasure_count <= PIPELINE_TRANSFORMS_MAX);
	for (unsigned i = 0; i < geometry.erasure_count; i++) {
		const struct erase *erase = &geometry.erasures[i];

		check(erase->x + erase->width <= shape.width &&
		      erase->y + erase->height <= shape.height);
	}
	check(geometry.stage_count >= 1 && geometry.stage_count <= PIPELINE_TRANSFORMS_MAX + 1);
	for (unsigned i = 0; i < geometry.stage_count; i++) {
		const struct geometry_stage *stage = &geometry.stages[i];
		const struct geometry_stage *next = i + 1 < geometry.stage_count ? stage + 1 : NULL;

		check(stage->effect_begin + stage->effect_count <= geometry.effects.count);
		if (pixels)
			check_effects(&geometry, stage);
		check_axis(&stage->x, i ? stage[-1].x.count : width,
			   next ? next->x.source : shape.width);
		check_axis(&stage->y, i ? stage[-1].y.count : height,
			   next ? next->y.source : shape.height);
	}
	check_boxes(&geometry, &boxes, width, height);
	check_formats(&geometry, width, height);
	if (check_steps(&geometry, width, height, &shape) <= EFFECT_PIXELS_MAX && pixels) {
		check_mask(&geometry, width, height, &shape, PIPELINE_NEAREST);
		check_mask(&geometry, width, height, &shape, PIPELINE_BILINEAR);
		check_mask(&geometry, width, height, &shape, PIPELINE_BICUBIC);
	}
}

/*
 * Checks that applying the deferred transforms to the delivered sample gives the finished sample.
 */
static void check_deferred(const struct pipeline *pipeline, uint32_t width, uint32_t height,
			   uint64_t epoch)
{
	struct pipeline_shape shape;
	struct deferred deferred, read;
	struct geometry geometry;
	uint32_t finished_width, finished_height;

	pipeline_shape(pipeline, epoch, &shape);
	if (geometry_make(pipeline, width, height, 1, epoch, width, NULL, &geometry, NULL) < 0)
		return;
	check(geometry.stage_count >= 2 && geometry.stage_count <= PIPELINE_TRANSFORMS_MAX + 2);
	defer_take(&geometry, &deferred);
	check(deferred_size(deferred.count) <= pipeline_deferred_max(pipeline));
	check(deferred_read(&deferred, deferred_size(deferred.count), shape.width, shape.height,
			    &read) == NULL);
	check(pipeline_size_after(pipeline, pipeline->transform_count, epoch, width, height,
				  &finished_width, &finished_height, NULL) == 0);
	check(read.width == finished_width && read.height == finished_height);
	check(geometry.stages[geometry.stage_count - 1].x.count == shape.width &&
	      geometry.stages[geometry.stage_count - 1].y.count == shape.height);
}

/* Names of values must be valid in a schema, or are refused at their position in the text. */
static void check_values(const struct pipeline *pipeline, size_t size)
{
	static const char text[] = "image: image\nmask: mask(image) u8[h,w]\n"
				   "depth: raster(image) f32[h,w]\nids: mask(image) i16[h,w]\n"
				   "boxes: boxes(image) f32[*,4] xyxy\nclass: class(boxes) i32[*]";
	static struct schema schema;
	struct pipeline_error error = {.position = -2};
	unsigned count;
	uint8_t fill[4];

	check(schema.count > 0 || schema_parse(text, sizeof(text) - 1, &schema, NULL) == 0);
	const struct pipeline_value *named = pipeline_values(pipeline, &count);
	if (pipeline_check_values(pipeline, &schema, &error) < 0) {
		check(error.position >= 0 && error.position <= (int)size);
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		const struct schema_value *value =
			&schema.values[schema_find(&schema, named[i].name)];

		check(named[i].fill_position < 0 ||
		      pipeline_value_fill(&named[i], value->element, fill) == 0);
	}
}

/* Sizes of images; the last two are the largest. */
static const uint32_t sizes[][2] = {{1, 1}, {3, 500}, {640, 480}, {65535, 65535}, {65535, 1}};
enum { SIZES = sizeof(sizes) / sizeof(*sizes), EPOCHS = 4 };

/* The text's length chooses one size and epoch for pixels, so that most of the time is not theirs.
 */
static void check_views(struct pipeline *pipeline, size_t size)
{
	static const struct pipeline_size buckets[] = {{PIPELINE_SIDE_MAX, 1}, {37, 64}};
	struct pipeline_error error;
	bool bucketed = pipeline_fix_buckets(pipeline, buckets, 2, &error) == 0;

	for (unsigned i = 0; i < SIZES; i++) {
		struct pipeline_size bucket = {0, 0};

		if (bucketed)
			bucket = buckets[i % 2];
		if (bucketed ? !pipeline_has_size(pipeline)
			     : pipeline_fix_size(pipeline, sizes[i][0], sizes[i][1], &error) < 0)
			continue;
		for (unsigned v = 0; v < pipeline_view_count(pipeline); v++)
			for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
				check_geometry(pipeline_view(pipeline, v).pipeline, sizes[i][0],
					       sizes[i][1], bucket, epoch * epoch * 7,
					       v == 0 && i == size % SIZES &&
						       epoch == size % EPOCHS);
	}
}

static void check_deferring(const char *text)
{
	struct pipeline *pipeline;
	struct pipeline_error error;

	check(pipeline_parse_views(text, &pipeline, &error) == 0);
	bool fits = pipeline_has_size(pipeline) ||
		    pipeline_fix_size(pipeline, sizes[2][0], sizes[2][1], &error) == 0;
	if (fits && pipeline_defer(pipeline, &error) == 0) {
		check(pipeline->view_count == 0);
		for (unsigned i = 0; i < SIZES; i++)
			for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
				if (i == 2 || pipeline->fixed_width == 0)
					check_deferred(pipeline, sizes[i][0], sizes[i][1],
						       epoch * epoch * 7);
	}
	pipeline_free(pipeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error = {.position = -2};
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (pipeline_parse_views(text, &pipeline, &error) < 0) {
		check(!pipeline && error.position >= -1 && error.position <= (int)strlen(text));
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
		free(text);
		return 0;
	}
	check(pipeline_view_count(pipeline) <= PIPELINE_VIEWS_MAX);
	for (unsigned v = 0; v < pipeline_view_count(pipeline); v++)
		check_values(pipeline_view(pipeline, v).pipeline, size);
	check_views(pipeline, size);
	pipeline_free(pipeline);
	check_deferring(text);
	free(text);
	return 0;
}
