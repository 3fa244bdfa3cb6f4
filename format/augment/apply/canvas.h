/*
 * Output of a stage: a picture of interleaved bytes, or rows passed to the converter. The stage's
 * image may cover only part of the canvas; the rest is fill. A canvas lives on the stack of one
 * thread while a stage runs, and points to that thread's scratch memory.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/kernels/converter.h"
#include "format/augment/resize/resize.h"

/* Buffers of a canvas with a converter. */
struct canvas_rows {
	uint8_t *stage; /* converter's stage: CONVERTER_STAGE_SIZE bytes, 64-byte aligned */
	uint8_t *row;   /* one finished row including borders; PIPELINE_SIDE_MAX pixels */
	uint8_t *fill;  /* one row of fill only; PIPELINE_SIDE_MAX pixels */
};

struct canvas {
	uint8_t *data;               /* NULL to pass rows to the converter */
	bool bytes;                  /* the output is interleaved bytes, as in data */
	bool is_direct;              /* the current row is written directly to the output
					(converter_row_address()) */
	struct converter *converter; /* converter of the last stage; NULL in earlier stages */
	size_t stride;
	uint32_t width, height, channels;
	const struct canvas_rows *rows;
	/*
	 * Receives the time spent in the converter, in ticks (ticks.h), estimated from a sample of
	 * the rows.
	 */
	uint64_t *store_ticks;
	/* The part of the canvas that shows the image; the rest is fill. */
	uint32_t x, y, content_width, content_height;
};

/*
 * Returns -ENOMEM on failure. canvas_rows_deinit() accepts zeroed rows and those of a failed init.
 */
int canvas_rows_init(struct canvas_rows *rows);
void canvas_rows_deinit(struct canvas_rows *rows);

/*
 * Sets the part of the canvas that shows the image (0 x 0 if none), and returns the grid
 * coordinates of its first pixel.
 */
void canvas_content(struct canvas *canvas, const struct geometry_stage *stage, int64_t *ret_grid_x,
		    int64_t *ret_grid_y);
/* Begins a stage's output, or restarts it. Writes fill everywhere outside the image. */
void canvas_begin(struct canvas *canvas, const struct geometry_stage *stage);
/*
 * Returns the target for a resize to the image's part of the canvas. stream: the resize may use
 * non-temporal stores if the converter can be bypassed.
 */
struct resize_target canvas_target(struct canvas *canvas, bool stream);
/*
 * canvas_row() returns the address for row `row` of the image; call canvas_row_written() after
 * writing it.
 */
uint8_t *canvas_row(struct canvas *canvas, uint32_t row);
void canvas_row_written(struct canvas *canvas, uint32_t row);
