/*
 * What a pipeline does to one sample: all random decisions taken, and the geometry folded into as
 * few stages as possible. A stage takes a rectangle of its input, resizes it, shows a window of
 * the result and flips it; what the window shows outside the result is fill. Usually there is one
 * stage, and its rectangle is the part to decode. Another stage begins where folding would change
 * pixels: a resize after a resize or pad, and geometry after effects. Plain values; any thread.
 */
#pragma once

#include "format/augment/grammar/transforms.h"
#include "format/augment/kernels/effects.h"

/* One axis of a stage. */
struct geometry_axis {
	uint32_t source;    /* size of the stage's input in pixels */
	uint32_t low, high; /* the part to resize: low <= pixel < high */
	uint32_t grid;      /* size in pixels that it is resized to */
	int64_t offset;     /* the output is grid pixels offset .. offset + count - 1 */
	uint32_t count;
	int64_t valid_low, valid_high; /* grid pixels outside this range are fill */
	bool reverse;                  /* the output is reversed */
};

struct geometry_stage {
	struct geometry_axis x, y;
	bool chroma_fast; /* resize the YCbCr planes, if there are any */
	bool bicubic;     /* resize with Pillow's filter, from pixels at full scale */
	uint8_t fill[3];
	/*
	 * Mirror the grid outside of it instead of filling. Such a stage only copies from the stage
	 * before.
	 */
	bool reflect;
	/* Effects to run on the output: a range of the geometry's effects. */
	unsigned effect_begin, effect_count;
};

struct geometry {
	/* At least one. If the pipeline defers, the last stage is the client's (defer.h). */
	struct geometry_stage stages[PIPELINE_TRANSFORMS_MAX + 2];
	unsigned stage_count;
	struct effect_list effects;
	/* Applied to the finished sample, in order. */
	struct erase erasures[PIPELINE_TRANSFORMS_MAX];
	unsigned erasure_count;
};

/*
 * Makes the geometry of a sample of width x height. Returns -EINVAL and sets *error (may be NULL)
 * if a transform cannot work on this sample, for example a crop larger than the image.
 */
int geometry_make(const struct pipeline *pipeline, uint32_t width, uint32_t height, uint64_t seed,
		  uint64_t epoch, uint64_t sample, struct geometry *geometry,
		  struct pipeline_error *error);

/* Returns true if the axis only copies pixels. */
bool geometry_axis_copies(const struct geometry_axis *axis);
/* Returns true if the stage shows a reflected border. */
bool geometry_stage_reflects(const struct geometry_stage *stage);
/*
 * Returns the number of outputs that show image. Sets *ret_first to the first of them and *ret_grid
 * to its grid pixel before reversal.
 */
uint32_t geometry_axis_content(const struct geometry_axis *axis, uint32_t *ret_first,
			       int64_t *ret_grid);
