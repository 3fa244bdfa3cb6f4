#include "format/augment/apply/geometry.h"
#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/iou_crop.h"
#include "format/augment/grammar/draw.h"
#include "format/augment/grammar/patches.h"
#include "format/augment/mosaic.h"
#include "format/base/portable_math.h"
#include "format/base/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum {
	GEOMETRY_BETWEEN_PIXELS_MAX = 1 << 28, /* 3 bytes per pixel */
	GEOMETRY_EFFECT_PIXELS_MAX = 1 << 25,  /* up to 28 bytes per pixel and thread */
};

static void axis_init(struct geometry_axis *axis, uint32_t size)
{
	*axis = (struct geometry_axis){
		.source = size, .high = size, .grid = size, .count = size, .valid_high = size};
}

static void axis_crop(struct geometry_axis *axis, uint32_t at, uint32_t count)
{
	axis->offset += axis->reverse ? axis->count - at - count : at;
	axis->count = count;
}

static bool axis_padded(const struct geometry_axis *axis)
{
	return axis->offset < axis->valid_low || axis->offset + axis->count > axis->valid_high;
}

static void axis_pad(struct geometry_axis *axis, uint32_t before, uint32_t after)
{
	/* Pixels hidden by a crop must not reappear in the border. */
	if (axis->valid_low < axis->offset)
		axis->valid_low = axis->offset;
	if (axis->valid_high > axis->offset + axis->count)
		axis->valid_high = axis->offset + axis->count;
	axis->offset -= axis->reverse ? after : before;
	axis->count += before + after;
}

bool geometry_axis_copies(const struct geometry_axis *axis)
{
	return axis->high - axis->low == axis->grid;
}

static bool axis_can_resize(const struct geometry_axis *axis)
{
	return geometry_axis_copies(axis) && !axis_padded(axis);
}

/* Leaves `reverse` unchanged: antialiased resizing commutes with a flip. */
static void axis_resize(struct geometry_axis *axis, uint32_t size)
{
	axis->low += (uint32_t)axis->offset;
	axis->high = axis->low + axis->count;
	axis->grid = size;
	axis->offset = 0;
	axis->count = size;
	axis->valid_low = 0;
	axis->valid_high = size;
}

uint32_t geometry_axis_content(const struct geometry_axis *axis, uint32_t *ret_first,
			       int64_t *ret_grid)
{
	int64_t end = axis->offset + axis->count;
	int64_t low = axis->offset > axis->valid_low ? axis->offset : axis->valid_low;
	int64_t high = end < axis->valid_high ? end : axis->valid_high;

	if (low >= high)
		return 0;
	*ret_first = (uint32_t)(axis->reverse ? end - high : low - axis->offset);
	*ret_grid = low;
	return (uint32_t)(high - low);
}

bool geometry_stage_reflects(const struct geometry_stage *stage)
{
	return stage->reflect && (axis_padded(&stage->x) || axis_padded(&stage->y));
}

/* Returns true if the stage still shows its whole input unchanged, as geometry_push() set it up. */
static bool stage_shows_all(const struct geometry_stage *stage)
{
	return geometry_axis_copies(&stage->x) && stage->x.count == stage->x.source &&
	       !axis_padded(&stage->x) && !stage->x.reverse && geometry_axis_copies(&stage->y) &&
	       stage->y.count == stage->y.source && !axis_padded(&stage->y) && !stage->y.reverse &&
	       !stage->effect_count;
}

static struct geometry_stage *geometry_last(struct geometry *geometry)
{
	return &geometry->stages[geometry->stage_count - 1];
}

static struct geometry_stage *geometry_push(struct geometry *geometry, uint32_t width,
					    uint32_t height)
{
	struct geometry_stage *stage = &geometry->stages[geometry->stage_count++];

	axis_init(&stage->x, width);
	axis_init(&stage->y, height);
	stage->chroma_fast = false;
	stage->bicubic = false;
	stage->reflect = false;
	memset(stage->fill, 0, sizeof(stage->fill));
	stage->effect_begin = geometry->effects.count;
	stage->effect_count = 0;
	return stage;
}

/* Starts a new stage. */
static struct geometry_stage *geometry_cut(struct geometry *geometry)
{
	const struct geometry_stage *stage = geometry_last(geometry);

	return geometry_push(geometry, stage->x.count, stage->y.count);
}

/* Records a step from the current size, which the caller completes. */
static struct geometry_step *geometry_record(struct geometry *geometry,
					     enum geometry_step_kind kind)
{
	const struct geometry_stage *stage = geometry_last(geometry);
	struct geometry_step *step = &geometry->steps[geometry->step_count++];

	*step = (struct geometry_step){
		.kind = kind,
		.from_width = stage->x.count,
		.from_height = stage->y.count,
		.width = stage->x.count,
		.height = stage->y.count,
	};
	return step;
}

static void geometry_record_pad(struct geometry *geometry, const uint32_t border[4], bool reflect)
{
	struct geometry_step *step = geometry_record(geometry, GEOMETRY_STEP_PAD);

	step->x = border[0];
	step->y = border[1];
	step->width += border[0] + border[2];
	step->height += border[1] + border[3];
	step->reflect = reflect;
}

static void geometry_crop(struct geometry *geometry, uint32_t x, uint32_t y, uint32_t width,
			  uint32_t height)
{
	struct geometry_step *step = geometry_record(geometry, GEOMETRY_STEP_CROP);
	struct geometry_stage *stage = geometry_last(geometry);

	step->x = x;
	step->y = y;
	step->width = width;
	step->height = height;
	axis_crop(&stage->x, x, width);
	axis_crop(&stage->y, y, height);
}

static void geometry_resize(struct geometry *geometry, uint32_t width, uint32_t height,
			    const struct transform *transform)
{
	struct geometry_stage *stage = geometry_last(geometry);

	if (stage->x.count == width && stage->y.count == height)
		return;
	struct geometry_step *step = geometry_record(geometry, GEOMETRY_STEP_RESIZE);

	step->width = width;
	step->height = height;
	if (!axis_can_resize(&stage->x) || !axis_can_resize(&stage->y))
		stage = geometry_cut(geometry);
	axis_resize(&stage->x, width);
	axis_resize(&stage->y, height);
	stage->chroma_fast = transform->chroma_fast;
	stage->bicubic = transform->bicubic;
}

/* border: left, top, right, bottom, in pixels. */
static void geometry_pad(struct geometry *geometry, const uint32_t border[4], const uint8_t fill[3])
{
	struct geometry_stage *stage = geometry_last(geometry);

	if ((border[0] | border[1] | border[2] | border[3]) == 0)
		return;
	geometry_record_pad(geometry, border, false);
	if ((axis_padded(&stage->x) || axis_padded(&stage->y)) &&
	    (stage->reflect || memcmp(stage->fill, fill, sizeof(stage->fill)) != 0))
		stage = geometry_cut(geometry);
	memcpy(stage->fill, fill, sizeof(stage->fill));
	stage->reflect = false;
	axis_pad(&stage->x, border[0], border[2]);
	axis_pad(&stage->y, border[1], border[3]);
}

/* What decides about a sample. */
struct geometry_draws {
	uint32_t width, height; /* of the sample */
	struct geometry_subject subject;
	uint64_t epoch;
	struct random_stream own;     /* differs between epochs */
	struct random_stream lasting; /* stream that is the same in all epochs */
	struct random_stream named;   /* of the steps that name this image */
};

/* Adds the border of a pad or random_crop. */
static int geometry_border(struct geometry *geometry, const struct transform *transform,
			   struct geometry_draws *draws, struct pipeline_error *error)
{
	const uint32_t border[4] = {transform->pad[0], transform->pad[1], transform->pad[0],
				    transform->pad[1]};
	struct geometry_stage *stage = geometry_last(geometry);
	int r = transform_check_reflect(transform, stage->x.count, stage->y.count, error);

	if (r < 0)
		return r;
	if (!transform->reflect) {
		geometry_pad(geometry, border, transform->fill);
	} else if (transform->pad[0] || transform->pad[1]) {
		/*
		 * Reflect the whole picture: after a crop, the pixels shown may be fewer than the
		 * border needs.
		 */
		if (geometry->stage_count == 1 || !stage_shows_all(stage))
			stage = geometry_cut(geometry);
		geometry_record_pad(geometry, border, true);
		stage->reflect = true;
		axis_pad(&stage->x, transform->pad[0], transform->pad[0]);
		axis_pad(&stage->y, transform->pad[1], transform->pad[1]);
	}
	return 0;
}

static double uniform(struct random_stream *random, double low, double high)
{
	return low + (high - low) * (double)random_float(random);
}

/*
 * torchvision's RandomResizedCrop.get_params: tries ten times, then uses the largest central crop
 * within the ratios.
 */
static void random_region(const struct transform *transform, uint32_t width, uint32_t height,
			  struct random_stream *random, uint32_t region[4])
{
	double area = (double)width * height;

	for (int try = 0; try < 10; try++) {
		double target = area * uniform(random, transform->scale[0], transform->scale[1]);
		double ratio = portable_exp(
			uniform(random, transform->ratio_log[0], transform->ratio_log[1]));
		double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));

		if (w < 1 || w > width || h < 1 || h > height)
			continue;
		region[2] = (uint32_t)w;
		region[3] = (uint32_t)h;
		region[1] = random_below(random, height - region[3] + 1);
		region[0] = random_below(random, width - region[2] + 1);
		return;
	}
	double ratio = (double)width / height, w = width, h = height;

	if (ratio < transform->ratio[0])
		h = rint(w / transform->ratio[0]);
	else if (ratio > transform->ratio[1])
		w = rint(h * transform->ratio[1]);
	region[2] = w < 1 ? 1 : (uint32_t)w;
	region[3] = h < 1 ? 1 : (uint32_t)h;
	region[0] = (width - region[2]) / 2;
	region[1] = (height - region[3]) / 2;
}

/*
 * torchvision's RandomZoomOut.make_params: draws one factor for both sides, then the position of
 * the image. Rounds down.
 */
static int geometry_zoom_out(struct geometry *geometry, const struct transform *transform,
			     struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct geometry_stage *stage = geometry_last(geometry);
	uint32_t width = stage->x.count, height = stage->y.count;

	if ((double)random_float(&draws->own) >= transform->probability)
		return 0;
	double factor = uniform(&draws->own, transform->scale[0], transform->scale[1]);
	double across = floor(width * factor) - width, down = floor(height * factor) - height;

	if (across + width > PACKIMG_SIDE_MAX || down + height > PACKIMG_SIDE_MAX)
		return pipeline_fail(error, -EINVAL, transform->position,
				     "random_zoom_out makes a side of more than %d pixels of %u x "
				     "%u: put a resize before it, or give it a smaller side_range",
				     PACKIMG_SIDE_MAX, width, height);
	uint32_t left = (uint32_t)(across * (double)random_float(&draws->own));
	uint32_t top = (uint32_t)(down * (double)random_float(&draws->own));
	const uint32_t border[4] = {left, top, (uint32_t)across - left, (uint32_t)down - top};

	geometry_pad(geometry, border, transform->fill);
	return 0;
}

static int geometry_iou_crop(struct geometry *geometry, const struct transform *transform,
			     struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct geometry_stage *stage = geometry_last(geometry);
	const struct frame_boxes *boxes = draws->subject.boxes;
	struct iou_window window;

	if (!boxes || boxes->count == 0)
		return 0;
	size_t count = coordinates_corners(geometry, draws->width, draws->height, boxes);

	if (!iou_crop_draw(transform, stage->x.count, stage->y.count, boxes->corners, count,
			   &draws->own, &window))
		return 0;
	geometry_crop(geometry, window.x, window.y, window.width, window.height);
	geometry->steps[geometry->step_count - 1].by_centre = true;
	return 0;
}

static int geometry_resized_crop(struct geometry *geometry, const struct transform *transform,
				 struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct transform_size *size = transform_size_at(transform, draws->epoch);
	struct geometry_stage *stage = geometry_last(geometry);
	uint32_t region[4];

	random_region(transform, stage->x.count, stage->y.count, &draws->own, region);
	geometry_crop(geometry, region[0], region[1], region[2], region[3]);
	geometry_resize(geometry, size->width, size->height, transform);
	return 0;
}

static int geometry_resize_transform(struct geometry *geometry, const struct transform *transform,
				     struct geometry_draws *draws, struct pipeline_error *error)
{
	struct geometry_stage *stage = geometry_last(geometry);
	uint64_t width, height;

	transform_resize_size(transform_size_at(transform, draws->epoch), stage->x.count,
			      stage->y.count, &width, &height);
	if (width > UINT32_MAX || height > UINT32_MAX)
		return pipeline_fail(error, -EINVAL, transform->position,
				     "resize makes a side of more than %u pixels", UINT32_MAX);
	geometry_resize(geometry, (uint32_t)width, (uint32_t)height, transform);
	return 0;
}

/*
 * As torchvision's Resize and a crop: sides are rounded down, and still cover the bucket. The crop
 * draws as random_crop, and rounds as center_crop.
 */
static int geometry_bucket_resize(struct geometry *geometry, const struct transform *transform,
				  struct geometry_draws *draws, struct pipeline_error *error)
{
	struct geometry_stage *stage = geometry_last(geometry);
	struct pipeline_size size = draws->subject.bucket;
	uint64_t width = stage->x.count, height = stage->y.count;

	if (size.width == 0)
		size = (struct pipeline_size){transform->sizes[0].width,
					      transform->sizes[0].height};
	if (size.width == 0)
		return pipeline_fail(error, -EINVAL, transform->position,
				     "bucket_resize has not been given a bucket");
	if (width * size.height >= height * size.width) {
		width = width * size.height / height;
		height = size.height;
	} else {
		height = height * size.width / width;
		width = size.width;
	}
	if (width > UINT32_MAX || height > UINT32_MAX)
		return pipeline_fail(error, -EINVAL, transform->position,
				     "bucket_resize makes a side of more than %u pixels",
				     UINT32_MAX);
	geometry_resize(geometry, (uint32_t)width, (uint32_t)height, transform);
	uint32_t right = (uint32_t)width - size.width, below = (uint32_t)height - size.height;
	uint32_t x = (uint32_t)rint(right / 2.0), y = (uint32_t)rint(below / 2.0);

	if (transform->crop_random && (right > 0 || below > 0)) {
		y = random_below(&draws->own, below + 1);
		x = random_below(&draws->own, right + 1);
	}
	geometry_crop(geometry, x, y, size.width, size.height);
	return 0;
}

static int geometry_patch_resize(struct geometry *geometry, const struct transform *transform,
				 struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct geometry_stage *stage = geometry_last(geometry);
	struct pipeline_grid grid =
		patches_grid(&transform->patches, stage->x.count, stage->y.count);

	geometry_resize(geometry, grid.columns * transform->patches.size,
			grid.rows * transform->patches.size, transform);
	return 0;
}

static void geometry_tile(struct geometry *geometry, const struct transform *transform,
			  const struct mosaic_tile *tile)
{
	geometry_resize(geometry, tile->whole_width, tile->whole_height, transform);
	geometry_crop(geometry, tile->from_x, tile->from_y, tile->width, tile->height);
	struct geometry_step *step = &geometry->steps[geometry->step_count - 1];

	step->by_area = true;
	step->min_visibility = (float)transform->min_visibility;
}

/* Of one of the joined samples: its place. The joined picture stays as it is. */
static int geometry_mosaic(struct geometry *geometry, const struct transform *transform,
			   struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct transform_size *size = transform_size_at(transform, draws->epoch);
	const struct geometry_stage *stage = geometry_last(geometry);
	const struct mosaic_tile *tile = draws->subject.tile;

	if (!tile && (stage->x.count != size->width || stage->y.count != size->height))
		return pipeline_fail(error, -EINVAL, transform->position,
				     "mosaic has not been given the samples that it joins");
	if (!tile)
		return 0;
	const uint32_t border[4] = {tile->x, tile->y, size->width - tile->x - tile->width,
				    size->height - tile->y - tile->height};

	geometry_tile(geometry, transform, tile);
	geometry_pad(geometry, border, transform->fill);
	return 0;
}

/* Pads with zeros if the image is smaller, as torchvision does. */
static int geometry_center_crop(struct geometry *geometry, const struct transform *transform,
				struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct transform_size *size = transform_size_at(transform, draws->epoch);
	static const uint8_t black[3] = {0};
	struct geometry_stage *stage = geometry_last(geometry);
	uint32_t x = stage->x.count < size->width ? size->width - stage->x.count : 0;
	uint32_t y = stage->y.count < size->height ? size->height - stage->y.count : 0;
	const uint32_t border[4] = {x / 2, y / 2, (x + 1) / 2, (y + 1) / 2};

	geometry_pad(geometry, border, black);
	stage = geometry_last(geometry);
	/* rint() rounds halves to even, like Python's round(). */
	geometry_crop(geometry, (uint32_t)rint((stage->x.count - size->width) / 2.0),
		      (uint32_t)rint((stage->y.count - size->height) / 2.0), size->width,
		      size->height);
	return 0;
}

static int geometry_random_crop(struct geometry *geometry, const struct transform *transform,
				struct geometry_draws *draws, struct pipeline_error *error)
{
	const struct transform_size *size = transform_size_at(transform, draws->epoch);
	int r = geometry_border(geometry, transform, draws, error);

	if (r < 0)
		return r;
	struct geometry_stage *stage = geometry_last(geometry);
	uint32_t width = stage->x.count, height = stage->y.count;

	if (width < size->width || height < size->height)
		return pipeline_fail(
			error, -EINVAL, transform->position,
			"random_crop(%ux%u) does not fit into %u x %u pixels: put resize "
			"before it or give it padding",
			size->width, size->height, width, height);
	if (width == size->width && height == size->height)
		return 0;
	uint32_t y = random_below(&draws->own, height - size->height + 1);
	uint32_t x = random_below(&draws->own, width - size->width + 1);

	geometry_crop(geometry, x, y, size->width, size->height);
	return 0;
}

/* Adds the effects of a transform to the last stage. */
static void geometry_effects(struct geometry *geometry, const struct transform *transform,
			     struct random_stream *random)
{
	struct geometry_stage *stage = geometry_last(geometry);

	if (transform->finished) {
		if (draw_erase(transform, stage->x.count, stage->y.count, random,
			       &geometry->erasures[geometry->erasure_count]))
			geometry->erasure_count++;
		return;
	}
	if (transform->kind == TRANSFORM_ROTATION || transform->kind == TRANSFORM_AFFINE)
		geometry_record(geometry, GEOMETRY_STEP_WARP)->effect = geometry->effects.count;
	draw_effects(transform,
		     &(struct drawing){stage->x.count, stage->y.count, random, &geometry->effects});
	stage->effect_count = geometry->effects.count - stage->effect_begin;
}

static bool draw_flip(const struct transform *transform, struct geometry_draws *draws)
{
	if (transform->alternate)
		return (random_u32(&draws->lasting) ^ draws->epoch) & 1;
	return (double)random_float(&draws->own) < transform->probability;
}

static int geometry_hflip(struct geometry *geometry, const struct transform *transform,
			  struct geometry_draws *draws, struct pipeline_error *error)
{
	if (draw_flip(transform, draws)) {
		geometry_record(geometry, GEOMETRY_STEP_HFLIP);
		geometry_last(geometry)->x.reverse ^= true;
	}
	return 0;
}

static int geometry_vflip(struct geometry *geometry, const struct transform *transform,
			  struct geometry_draws *draws, struct pipeline_error *error)
{
	if (draw_flip(transform, draws)) {
		geometry_record(geometry, GEOMETRY_STEP_VFLIP);
		geometry_last(geometry)->y.reverse ^= true;
	}
	return 0;
}

static int (*const geometry_functions[TRANSFORM_GEOMETRY_COUNT])(struct geometry *geometry,
								 const struct transform *transform,
								 struct geometry_draws *draws,
								 struct pipeline_error *error) = {
#define TRANSFORM(constant, where, name, text, size, geometry, ...)                                \
	[TRANSFORM_##constant] = geometry,
	TRANSFORMS_OF_GEOMETRY(TRANSFORM)
#undef TRANSFORM
};

/* Records a step that changes only boxes: pixels stay the same, and no stage ends. */
static void geometry_boxes(struct geometry *geometry, const struct transform *transform)
{
	static const enum geometry_step_kind kinds[TRANSFORM_BOXES_COUNT] = {
#define TRANSFORM(constant, name, text, step, ...) [TRANSFORM_##constant] = step,
		TRANSFORMS_OF_BOXES(TRANSFORM)
#undef TRANSFORM
	};
	struct geometry_step *step = geometry_record(geometry, kinds[transform->kind]);

	step->min_size = (float)transform->min_size;
	step->min_area = (float)transform->min_area;
	step->values = transform->values;
}

static int geometry_add(struct geometry *geometry, const struct transform *transform,
			struct geometry_draws *draws, struct pipeline_error *error)
{
	struct geometry_stage *stage = geometry_last(geometry);

	if (transform_is_of_boxes(transform->kind)) {
		geometry_boxes(geometry, transform);
		return 0;
	}
	if (transform->kind >= TRANSFORM_GEOMETRY_COUNT) {
		if (!transform->values)
			geometry_effects(geometry, transform, &draws->own);
		else if (transform->values & draws->subject.value)
			geometry_effects(geometry, transform, &draws->named);
		return 0;
	}
	if (stage->effect_count)
		geometry_cut(geometry);
	return geometry_functions[transform->kind](geometry, transform, draws, error);
}

/* Checks the size of the pictures between stages, which are kept in memory. */
static int check_between(const struct geometry *geometry, struct pipeline_error *error)
{
	for (unsigned i = 0; i < geometry->stage_count; i++) {
		const struct geometry_stage *stage = &geometry->stages[i];
		uint64_t size = (uint64_t)stage->x.count * stage->y.count;

		if (stage->effect_count && size > GEOMETRY_EFFECT_PIXELS_MAX)
			return pipeline_fail(error, -EINVAL, -1,
					     "a picture of %u x %u pixels is too large for "
					     "transforms that change pixels: put a resize or a "
					     "crop before them",
					     stage->x.count, stage->y.count);
		if (i + 1 < geometry->stage_count &&
		    (stage->x.count > PACKIMG_SIDE_MAX || stage->y.count > PACKIMG_SIDE_MAX ||
		     size > GEOMETRY_BETWEEN_PIXELS_MAX))
			return pipeline_fail(
				error, -EINVAL, -1,
				"a picture of %u x %u pixels between two transforms is too large",
				stage->x.count, stage->y.count);
	}
	return 0;
}

/*
 * Begins the stream of steps that name the image, so that its numbers depend on no other steps or
 * names. Does nothing if it is not named.
 */
static void named_init(struct random_stream *stream, const struct pipeline *pipeline,
		       uint32_t value, uint64_t seed, uint64_t epoch, uint64_t sample)
{
	if (!value)
		return;
	const char *name = pipeline->values[__builtin_ctz(value)].name;

	random_init(stream, seed ^ XXH3_64bits(name, strlen(name)), epoch, sample, RANDOM_NAMED);
}

/* Begins the streams of decisions that follow from a seed. */
static void draws_begin(struct geometry_draws *draws, const struct pipeline *pipeline,
			uint64_t seed, uint64_t sample)
{
	random_init(&draws->own, seed, draws->epoch, sample, RANDOM_AUGMENT);
	random_init(&draws->lasting, seed, 0, sample, RANDOM_LASTING);
	named_init(&draws->named, pipeline, draws->subject.value, seed, draws->epoch, sample);
}

static void geometry_begin(struct geometry *geometry, uint32_t width, uint32_t height)
{
	geometry->stage_count = 0;
	geometry->effects.count = 0;
	geometry->erasure_count = 0;
	geometry->step_count = 0;
	geometry_push(geometry, width, height);
}

void geometry_make_tile(const struct pipeline *pipeline, uint32_t width, uint32_t height,
			const struct mosaic_tile *tile, struct geometry *geometry)
{
	geometry_begin(geometry, width, height);
	geometry_tile(geometry, pipeline_mosaic_step(pipeline), tile);
}

/* Crops what is finished. Effects run on the whole picture. */
static void geometry_window(struct geometry *geometry, const struct pipeline_window *window)
{
	if (geometry_last(geometry)->effect_count)
		geometry_cut(geometry);
	geometry_crop(geometry, window->x, window->y, window->width, window->height);
}

int geometry_make(const struct pipeline *pipeline, uint32_t width, uint32_t height, uint64_t seed,
		  uint64_t epoch, uint64_t sample, const struct geometry_subject *subject,
		  struct geometry *geometry, struct pipeline_error *error)
{
	struct geometry_draws draws = {.width = width, .height = height, .epoch = epoch};
	int r;

	if (subject)
		draws.subject = *subject;
	draws_begin(&draws, pipeline,
		    pipeline->shared_transforms ? draws.subject.shared_seed : seed, sample);
	geometry_begin(geometry, width, height);
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		if (pipeline->defers && i == pipeline->delivered_transforms)
			geometry_cut(geometry);
		if (i > 0 && i == pipeline->shared_transforms)
			draws_begin(&draws, pipeline, seed, sample);
		r = geometry_add(geometry, &pipeline->transforms[i], &draws, error);
		if (r < 0)
			return r;
	}
	if (pipeline->defers && pipeline->delivered_transforms == pipeline->transform_count)
		geometry_cut(geometry);
	if (draws.subject.window.width > 0)
		geometry_window(geometry, &draws.subject.window);
	return check_between(geometry, error);
}
