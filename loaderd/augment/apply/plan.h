/*
 * What a pipeline does to one sample: its random decisions taken, its geometry folded into as few
 * stages as possible. A stage takes a rectangle of its input, resizes it, shows a window of the
 * result, possibly wider than it (the rest is filled), and flips. Usually there is one stage, and
 * its rectangle is what has to be decoded. A second one arises where folding would change pixels:
 * resizing what was resized or padded, and geometry after effects. Values only; any thread.
 */
#pragma once

#include "loaderd/augment/grammar/steps.h"
#include "loaderd/augment/kernels/effects.h"

/* One direction of a stage. */
struct plan_axis {
	uint32_t source;    /* pixels of the stage's input */
	uint32_t low, high; /* the part of it that is resized, low <= pixel < high */
	uint32_t grid;      /* to so many pixels */
	int64_t offset;     /* the output is the grid's pixels offset .. offset + count - 1 */
	uint32_t count;
	int64_t valid_low, valid_high; /* of the grid: what lies outside is fill */
	bool reverse;                  /* the output is shown from its end */
};

struct plan_stage {
	struct plan_axis x, y;
	bool chroma_fast; /* may be resized as planes, where there are any */
	bool bicubic;     /* resized as Pillow does, from pixels at full scale */
	uint8_t fill[3];
	/*
	 * what lies outside the grid mirrors it, in place of fill; the stage then only copies, from
	 * the one before
	 */
	bool reflect;
	/* What then happens to its output: so many of the plan's effects, from there. */
	unsigned effect_begin, effect_count;
};

struct plan {
	/* at least one; of a transform that defers, the last is the client's (defer.h) */
	struct plan_stage stages[TRANSFORM_STEPS_MAX + 2];
	unsigned stage_count;
	struct effect_list effects;
	/* Of the finished sample, in order. */
	struct erase erasures[TRANSFORM_STEPS_MAX];
	unsigned erasure_count;
};

/*
 * Plans a sample of width x height. 0; -EINVAL when a step cannot work on this sample (a crop
 * larger than the image), with what and why in error (may be NULL).
 */
int plan_make(const struct transform *transform, uint32_t width, uint32_t height, uint64_t seed,
	      uint64_t epoch, uint64_t sample, struct plan *plan, struct transform_error *error);

/* Does the axis only copy pixels? */
bool plan_axis_copies(const struct plan_axis *axis);
/* Does the stage show a reflected border? */
bool plan_stage_reflects(const struct plan_stage *stage);
/*
 * The outputs that show image: from *ret_first, so many; grid pixel of the first of them before
 * reversal in *ret_grid.
 */
uint32_t plan_axis_content(const struct plan_axis *axis, uint32_t *ret_first, int64_t *ret_grid);
