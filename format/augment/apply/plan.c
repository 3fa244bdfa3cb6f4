#include "format/augment/apply/plan.h"
#include "format/augment/grammar/draw.h"
#include "format/base/portable_math.h"
#include "format/base/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum {
	PLAN_BETWEEN_PIXELS_MAX = 1 << 28, /* 3 bytes per pixel */
	PLAN_EFFECT_PIXELS_MAX = 1 << 25,  /* up to 28 bytes per pixel and thread */
};

static void axis_init(struct plan_axis *axis, uint32_t size)
{
	*axis = (struct plan_axis){
		.source = size, .high = size, .grid = size, .count = size, .valid_high = size};
}

static void axis_crop(struct plan_axis *axis, uint32_t at, uint32_t count)
{
	axis->offset += axis->reverse ? axis->count - at - count : at;
	axis->count = count;
}

static bool axis_padded(const struct plan_axis *axis)
{
	return axis->offset < axis->valid_low || axis->offset + axis->count > axis->valid_high;
}

static void axis_pad(struct plan_axis *axis, uint32_t before, uint32_t after)
{
	/* Pixels hidden by a crop must not reappear in the border. */
	if (axis->valid_low < axis->offset)
		axis->valid_low = axis->offset;
	if (axis->valid_high > axis->offset + axis->count)
		axis->valid_high = axis->offset + axis->count;
	axis->offset -= axis->reverse ? after : before;
	axis->count += before + after;
}

bool plan_axis_copies(const struct plan_axis *axis)
{
	return axis->high - axis->low == axis->grid;
}

static bool axis_can_resize(const struct plan_axis *axis)
{
	return plan_axis_copies(axis) && !axis_padded(axis);
}

/* Keeps `reverse`: resizing commutes with a flip. */
static void axis_resize(struct plan_axis *axis, uint32_t size)
{
	axis->low += (uint32_t)axis->offset;
	axis->high = axis->low + axis->count;
	axis->grid = size;
	axis->offset = 0;
	axis->count = size;
	axis->valid_low = 0;
	axis->valid_high = size;
}

uint32_t plan_axis_content(const struct plan_axis *axis, uint32_t *ret_first, int64_t *ret_grid)
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

bool plan_stage_reflects(const struct plan_stage *stage)
{
	return stage->reflect && (axis_padded(&stage->x) || axis_padded(&stage->y));
}

/* Returns true if the stage is still as plan_push() made it. */
static bool stage_shows_all(const struct plan_stage *stage)
{
	return plan_axis_copies(&stage->x) && stage->x.count == stage->x.source &&
	       !axis_padded(&stage->x) && !stage->x.reverse && plan_axis_copies(&stage->y) &&
	       stage->y.count == stage->y.source && !axis_padded(&stage->y) && !stage->y.reverse &&
	       !stage->effect_count;
}

static struct plan_stage *plan_last(struct plan *plan)
{
	return &plan->stages[plan->stage_count - 1];
}

static struct plan_stage *plan_push(struct plan *plan, uint32_t width, uint32_t height)
{
	struct plan_stage *stage = &plan->stages[plan->stage_count++];

	axis_init(&stage->x, width);
	axis_init(&stage->y, height);
	stage->chroma_fast = false;
	stage->bicubic = false;
	stage->reflect = false;
	memset(stage->fill, 0, sizeof(stage->fill));
	stage->effect_begin = plan->effects.count;
	stage->effect_count = 0;
	return stage;
}

/* Starts a new stage. */
static struct plan_stage *plan_cut(struct plan *plan)
{
	const struct plan_stage *stage = plan_last(plan);

	return plan_push(plan, stage->x.count, stage->y.count);
}

static void plan_resize(struct plan *plan, uint32_t width, uint32_t height, const struct step *step)
{
	struct plan_stage *stage = plan_last(plan);

	if (stage->x.count == width && stage->y.count == height)
		return;
	if (!axis_can_resize(&stage->x) || !axis_can_resize(&stage->y))
		stage = plan_cut(plan);
	axis_resize(&stage->x, width);
	axis_resize(&stage->y, height);
	stage->chroma_fast = step->chroma_fast;
	stage->bicubic = step->bicubic;
}

/* border: left, top, right, bottom, in pixels. */
static void plan_pad(struct plan *plan, const uint32_t border[4], const uint8_t fill[3])
{
	struct plan_stage *stage = plan_last(plan);

	if ((border[0] | border[1] | border[2] | border[3]) == 0)
		return;
	if ((axis_padded(&stage->x) || axis_padded(&stage->y)) &&
	    (stage->reflect || memcmp(stage->fill, fill, sizeof(stage->fill)) != 0))
		stage = plan_cut(plan);
	memcpy(stage->fill, fill, sizeof(stage->fill));
	stage->reflect = false;
	axis_pad(&stage->x, border[0], border[2]);
	axis_pad(&stage->y, border[1], border[3]);
}

/* Sources of a sample's random decisions. */
struct plan_draws {
	uint64_t epoch;
	struct random_stream own;     /* differs between epochs */
	struct random_stream lasting; /* the same in all epochs */
};

/* Adds the border of pad and random_crop. */
static int plan_border(struct plan *plan, const struct step *step, struct plan_draws *draws,
		       struct transform_error *error)
{
	const uint32_t border[4] = {step->pad[0], step->pad[1], step->pad[0], step->pad[1]};
	struct plan_stage *stage = plan_last(plan);
	int r = step_check_reflect(step, stage->x.count, stage->y.count, error);

	if (r < 0)
		return r;
	if (!step->reflect) {
		plan_pad(plan, border, step->fill);
	} else if (step->pad[0] || step->pad[1]) {
		/* Reflect a whole picture: a crop may show fewer pixels than the border needs. */
		if (plan->stage_count == 1 || !stage_shows_all(stage))
			stage = plan_cut(plan);
		stage->reflect = true;
		axis_pad(&stage->x, step->pad[0], step->pad[0]);
		axis_pad(&stage->y, step->pad[1], step->pad[1]);
	}
	return 0;
}

static double uniform(struct random_stream *random, double low, double high)
{
	return low + (high - low) * (double)random_float(random);
}

/*
 * torchvision's RandomResizedCrop.get_params: up to ten tries, then the largest central crop within
 * the ratios.
 */
static void random_region(const struct step *step, uint32_t width, uint32_t height,
			  struct random_stream *random, uint32_t region[4])
{
	double area = (double)width * height;

	for (int try = 0; try < 10; try++) {
		double target = area * uniform(random, step->scale[0], step->scale[1]);
		double ratio =
			portable_exp(uniform(random, step->ratio_log[0], step->ratio_log[1]));
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

	if (ratio < step->ratio[0])
		h = rint(w / step->ratio[0]);
	else if (ratio > step->ratio[1])
		w = rint(h * step->ratio[1]);
	region[2] = w < 1 ? 1 : (uint32_t)w;
	region[3] = h < 1 ? 1 : (uint32_t)h;
	region[0] = (width - region[2]) / 2;
	region[1] = (height - region[3]) / 2;
}

static int plan_resized_crop(struct plan *plan, const struct step *step, struct plan_draws *draws,
			     struct transform_error *error)
{
	const struct step_size *size = step_size_at(step, draws->epoch);
	struct plan_stage *stage = plan_last(plan);
	uint32_t region[4];

	random_region(step, stage->x.count, stage->y.count, &draws->own, region);
	axis_crop(&stage->x, region[0], region[2]);
	axis_crop(&stage->y, region[1], region[3]);
	plan_resize(plan, size->width, size->height, step);
	return 0;
}

static int plan_resize_step(struct plan *plan, const struct step *step, struct plan_draws *draws,
			    struct transform_error *error)
{
	struct plan_stage *stage = plan_last(plan);
	uint64_t width, height;

	step_resize_size(step_size_at(step, draws->epoch), stage->x.count, stage->y.count, &width,
			 &height);
	if (width > UINT32_MAX || height > UINT32_MAX)
		return transform_fail(error, -EINVAL, step->position,
				      "resize makes a side of more than %u pixels", UINT32_MAX);
	plan_resize(plan, (uint32_t)width, (uint32_t)height, step);
	return 0;
}

/* Pads with zeros if the image is smaller, as torchvision does. */
static int plan_center_crop(struct plan *plan, const struct step *step, struct plan_draws *draws,
			    struct transform_error *error)
{
	const struct step_size *size = step_size_at(step, draws->epoch);
	static const uint8_t black[3] = {0};
	struct plan_stage *stage = plan_last(plan);
	uint32_t x = stage->x.count < size->width ? size->width - stage->x.count : 0;
	uint32_t y = stage->y.count < size->height ? size->height - stage->y.count : 0;
	const uint32_t border[4] = {x / 2, y / 2, (x + 1) / 2, (y + 1) / 2};

	plan_pad(plan, border, black);
	stage = plan_last(plan);
	/* rint() rounds halves to even, like Python's round(). */
	axis_crop(&stage->x, (uint32_t)rint((stage->x.count - size->width) / 2.0), size->width);
	axis_crop(&stage->y, (uint32_t)rint((stage->y.count - size->height) / 2.0), size->height);
	return 0;
}

static int plan_random_crop(struct plan *plan, const struct step *step, struct plan_draws *draws,
			    struct transform_error *error)
{
	const struct step_size *size = step_size_at(step, draws->epoch);
	int r = plan_border(plan, step, draws, error);

	if (r < 0)
		return r;
	struct plan_stage *stage = plan_last(plan);
	uint32_t width = stage->x.count, height = stage->y.count;

	if (width < size->width || height < size->height)
		return transform_fail(
			error, -EINVAL, step->position,
			"random_crop(%ux%u) does not fit into %u x %u pixels: put resize "
			"before it or give it padding",
			size->width, size->height, width, height);
	if (width == size->width && height == size->height)
		return 0;
	uint32_t y = random_below(&draws->own, height - size->height + 1);
	uint32_t x = random_below(&draws->own, width - size->width + 1);

	axis_crop(&stage->x, x, size->width);
	axis_crop(&stage->y, y, size->height);
	return 0;
}

/* Effects apply to the output of the last stage. */
static void plan_effects(struct plan *plan, const struct step *step, struct random_stream *random)
{
	struct plan_stage *stage = plan_last(plan);

	if (step->finished) {
		if (draw_erase(step, stage->x.count, stage->y.count, random,
			       &plan->erasures[plan->erasure_count]))
			plan->erasure_count++;
		return;
	}
	draw_effects(step,
		     &(struct drawing){stage->x.count, stage->y.count, random, &plan->effects});
	stage->effect_count = plan->effects.count - stage->effect_begin;
}

static bool draw_flip(const struct step *step, struct plan_draws *draws)
{
	if (step->alternate)
		return (random_u32(&draws->lasting) ^ draws->epoch) & 1;
	return (double)random_float(&draws->own) < step->probability;
}

static int plan_hflip(struct plan *plan, const struct step *step, struct plan_draws *draws,
		      struct transform_error *error)
{
	plan_last(plan)->x.reverse ^= draw_flip(step, draws);
	return 0;
}

static int plan_vflip(struct plan *plan, const struct step *step, struct plan_draws *draws,
		      struct transform_error *error)
{
	plan_last(plan)->y.reverse ^= draw_flip(step, draws);
	return 0;
}

static int (*const plan_geometry[STEP_GEOMETRY_COUNT])(struct plan *plan, const struct step *step,
						       struct plan_draws *draws,
						       struct transform_error *error) = {
#define STEP(constant, name, size, plan, ...) [STEP_##constant] = plan,
	STEPS_OF_GEOMETRY(STEP)
#undef STEP
};

static int plan_step(struct plan *plan, const struct step *step, struct plan_draws *draws,
		     struct transform_error *error)
{
	struct plan_stage *stage = plan_last(plan);

	if (step->kind >= STEP_GEOMETRY_COUNT) {
		plan_effects(plan, step, &draws->own);
		return 0;
	}
	if (stage->effect_count)
		plan_cut(plan);
	return plan_geometry[step->kind](plan, step, draws, error);
}

/* Pictures between stages are kept in memory, so their size is limited. */
static int check_between(const struct plan *plan, struct transform_error *error)
{
	for (unsigned i = 0; i < plan->stage_count; i++) {
		const struct plan_stage *stage = &plan->stages[i];
		uint64_t size = (uint64_t)stage->x.count * stage->y.count;

		if (stage->effect_count && size > PLAN_EFFECT_PIXELS_MAX)
			return transform_fail(
				error, -EINVAL, -1,
				"a picture of %u x %u pixels is too large for steps that change "
				"pixels: put a resize or a crop before them",
				stage->x.count, stage->y.count);
		if (i + 1 < plan->stage_count &&
		    (stage->x.count > PACKIMG_SIDE_MAX || stage->y.count > PACKIMG_SIDE_MAX ||
		     size > PLAN_BETWEEN_PIXELS_MAX))
			return transform_fail(
				error, -EINVAL, -1,
				"a picture of %u x %u pixels between two steps is too large",
				stage->x.count, stage->y.count);
	}
	return 0;
}

int plan_make(const struct transform *transform, uint32_t width, uint32_t height, uint64_t seed,
	      uint64_t epoch, uint64_t sample, struct plan *plan, struct transform_error *error)
{
	struct plan_draws draws = {.epoch = epoch};
	int r;

	random_init(&draws.own, seed, epoch, sample, RANDOM_AUGMENT);
	random_init(&draws.lasting, seed, 0, sample, RANDOM_LASTING);
	plan->stage_count = 0;
	plan->effects.count = 0;
	plan->erasure_count = 0;
	plan_push(plan, width, height);
	for (unsigned i = 0; i < transform->step_count; i++) {
		if (transform->defers && i == transform->delivered_steps)
			plan_cut(plan);
		r = plan_step(plan, &transform->steps[i], &draws, error);
		if (r < 0)
			return r;
	}
	if (transform->defers && transform->delivered_steps == transform->step_count)
		plan_cut(plan);
	return check_between(plan, error);
}
