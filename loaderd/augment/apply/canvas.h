/*
 * Where a stage's output goes: a picture of interleaved bytes, or rows on their way into the store.
 * The image may cover part of it; the rest is fill. A canvas lives on the stack of one thread while
 * a stage runs; what it points to is that thread's scratch.
 */
#pragma once

#include "loaderd/augment/apply/plan.h"
#include "loaderd/augment/kernels/store.h"
#include "loaderd/augment/resize/resize.h"

/* What a canvas with a store works in. */
struct canvas_rows {
	uint8_t *stage; /* of the store: STORE_STAGE_SIZE bytes, aligned to a line */
	uint8_t *row;   /* one finished row with its borders, */
	uint8_t *fill;  /* and one of nothing but fill; TRANSFORM_SIDE_MAX pixels each */
};

struct canvas {
	uint8_t *data;       /* NULL: through the store */
	bool bytes;          /* interleaved bytes, as data would hold them */
	bool placed;         /* the row at hand is made in the store's own place */
	struct store *store; /* of the last stage, NULL before */
	size_t stride;
	uint32_t width, height, channels;
	const struct canvas_rows *rows;
	/* time spent in the store is added here (ticks.h), estimated from some of the rows */
	uint64_t *store_ticks;
	/* The part that shows image; what is around it is fill. */
	uint32_t x, y, content_width, content_height;
};

/* -ENOMEM. canvas_rows_deinit takes what failed, too, and zeros. */
int canvas_rows_init(struct canvas_rows *rows);
void canvas_rows_deinit(struct canvas_rows *rows);

/*
 * Which part of the canvas shows image (0 x 0: none of it), and from where in the stage's grid on.
 */
void canvas_content(struct canvas *canvas, const struct plan_stage *stage, int64_t *ret_grid_x,
		    int64_t *ret_grid_y);
/* Begins a stage's output, or begins it anew: all that is not image is there then. */
void canvas_begin(struct canvas *canvas, const struct plan_stage *stage);
/*
 * For a resize to the content. stream: it may write past the cache itself, where the store can do
 * without the rows.
 */
struct resize_target canvas_target(struct canvas *canvas, bool stream);
/* Where the content of row number row of it is to be written, and that it has been. */
uint8_t *canvas_row(struct canvas *canvas, uint32_t row);
void canvas_row_written(struct canvas *canvas, uint32_t row);
