/*
 * What a pipeline does to one sample: the random decisions, and the geometry folded into as few
 * stages as possible. A stage resizes a rectangle of its input to a grid, shows a window of the
 * grid and flips it. Where the window extends beyond the grid, it shows fill. Usually there is one
 * stage, and its rectangle is the part to decode. Another stage begins where folding would change
 * pixels: at a resize after a resize or pad, and at geometry after effects.
 *
 * The same decisions are also recorded unfolded, as steps: masks, boxes and points follow the image
 * step by step, because rounding down to the nearest pixel does not commute with a flip, and each
 * crop clips boxes. Plain values; any thread.
 */
#pragma once

#include "format/augment/grammar/transforms.h"
#include "format/augment/kernels/effects.h"

/* One axis of a stage. */
struct geometry_axis {
	uint32_t source;    /* size of the stage's input in pixels */
	uint32_t low, high; /* pixels of the input to resize: low <= pixel < high */
	uint32_t grid;      /* size in pixels after resizing */
	int64_t offset;     /* the output shows grid pixels offset .. offset + count - 1 */
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
	 * Outside the grid, show its reflection instead of fill. Such a stage only copies from the
	 * stage before.
	 */
	bool reflect;
	/* Effects to run on the output: a range of geometry.effects. */
	unsigned effect_begin, effect_count;
};

enum geometry_step_kind {
	GEOMETRY_STEP_CROP,
	GEOMETRY_STEP_PAD,
	GEOMETRY_STEP_RESIZE,
	GEOMETRY_STEP_HFLIP,
	GEOMETRY_STEP_VFLIP,
	GEOMETRY_STEP_WARP,     /* rotation and affine */
	GEOMETRY_STEP_CLAMP,    /* of boxes */
	GEOMETRY_STEP_SANITIZE, /* of boxes */
};

/* One change of the frame, in the order of the pipeline. Sizes are in pixels. */
struct geometry_step {
	enum geometry_step_kind kind;
	uint32_t from_width, from_height; /* before the step */
	uint32_t width, height;           /* after it */
	uint32_t x, y;  /* crop: its corner; pad: pixels on the left and above; else 0 */
	bool reflect;   /* pad: shows the picture mirrored at its border */
	bool by_centre; /* crop: empties boxes whose centre it does not show */
	/* crop: drops boxes of which it shows nothing, or less than a fraction of the area */
	bool by_area;
	float min_visibility;
	unsigned effect;          /* warp: its number in geometry.effects; else 0 */
	float min_size, min_area; /* sanitize: pixels, and pixels of area; else 0 */
	uint32_t values;          /* clamp, sanitize: bits of the named values; 0 for all */
};

/* At most two for each transform, three for mosaic, and the window. */
enum { GEOMETRY_STEPS_MAX = 2 * PIPELINE_TRANSFORMS_MAX + 2 };

struct frame_boxes; /* frame.h */
struct mosaic_tile; /* mosaic.h */

/* Of what sample, and of which of its images, the geometry is; NULL for neither. */
struct geometry_subject {
	const struct frame_boxes *boxes; /* by which random_iou_crop chooses; NULL for none */
	uint32_t value;                  /* the image's bit among pipeline_values(), or 0 */
	uint64_t shared_seed;            /* of a view: pipeline_scratch_shared_seed() */
	struct pipeline_size bucket;     /* pipeline_scratch_bucket() */
	/* The sample's place in a mosaic; NULL for the joined picture, which mosaic leaves. */
	const struct mosaic_tile *tile;
	struct pipeline_window window; /* pipeline_scratch_window() */
};

struct geometry {
	/* At least one stage. If the pipeline defers, the client runs the last one (defer.h). */
	struct geometry_stage stages[PIPELINE_TRANSFORMS_MAX + 2];
	unsigned stage_count;
	struct effect_list effects;
	/* Rectangles to erase in the finished sample, in order. */
	struct erase erasures[PIPELINE_TRANSFORMS_MAX];
	unsigned erasure_count;
	/* None for policies, whose warps may be parts of a mix. */
	struct geometry_step steps[GEOMETRY_STEPS_MAX];
	unsigned step_count;
};

/*
 * Computes the geometry of a sample of width x height pixels. random_iou_crop leaves
 * samples without boxes as they are; steps that name images other than the subject's are left out.
 * subject may be NULL. Returns -EINVAL and sets *error (may be NULL) if a transform cannot work on
 * this sample, for example a crop larger than the image.
 */
int geometry_make(const struct pipeline *pipeline, uint32_t width, uint32_t height, uint64_t seed,
		  uint64_t epoch, uint64_t sample, const struct geometry_subject *subject,
		  struct geometry *geometry, struct pipeline_error *error);

/*
 * Computes the geometry of what a mosaic shows of a sample of width x height pixels, without what
 * is around it and the steps that follow.
 */
void geometry_make_tile(const struct pipeline *pipeline, uint32_t width, uint32_t height,
			const struct mosaic_tile *tile, struct geometry *geometry);

/* Returns true if the axis only copies pixels. */
bool geometry_axis_copies(const struct geometry_axis *axis);
/* Returns true if the stage shows a reflection. */
bool geometry_stage_reflects(const struct geometry_stage *stage);
/*
 * Returns the number of output pixels that show the grid. Sets *ret_first to the first of them and
 * *ret_grid to its grid pixel before reversal.
 */
uint32_t geometry_axis_content(const struct geometry_axis *axis, uint32_t *ret_first,
			       int64_t *ret_grid);
