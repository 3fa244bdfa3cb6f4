/*
 * Output of a stage: a picture of interleaved bytes, or rows passed to the converter. The image may
 * cover only part of it; the rest is fill. A canvas lives on the stack of one thread while a stage
 * runs; it points to that thread's scratch memory.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/kernels/converter.h"
#include "format/augment/resize/resize.h"

/* Buffers of a canvas with a converter. */
struct canvas_rows {
	uint8_t *stage; /* stage buffer of the converter: CONVERTER_STAGE_SIZE bytes, aligned to a
			   cache line */
	uint8_t *row;   /* one finished row including borders; PIPELINE_SIDE_MAX pixels */
	uint8_t *fill;  /* one row of fill only; PIPELINE_SIDE_MAX pixels */
};

struct canvas {
	uint8_t *data;               /* NULL to pass rows to the converter */
	bool bytes;                  /* the output is interleaved bytes, as in data */
	bool placed;                 /* the current row is made in place (converter_place()) */
	struct converter *converter; /* converter of the last stage; NULL in earlier stages */
	size_t stride;
	uint32_t width, height, channels;
	const struct canvas_rows *rows;
	/*
	 * Time in the converter is added here, in ticks (ticks.h), estimated from a sample of the
	 * rows.
	 */
	uint64_t *store_ticks;
	/* The part that shows image; the rest is fill. */
	uint32_t x, y, content_width, content_height;
};

/*
 * Returns -ENOMEM on failure. canvas_rows_deinit() accepts zeroed rows and those of a failed init.
 */
int canvas_rows_init(struct canvas_rows *rows);
void canvas_rows_deinit(struct canvas_rows *rows);

/*
 * Sets the part of the canvas that shows image (0 x 0 if none) and returns the stage's grid
 * position of its start.
 */
void canvas_content(struct canvas *canvas, const struct geometry_stage *stage, int64_t *ret_grid_x,
		    int64_t *ret_grid_y);
/* Begins a stage's output, or restarts it. Fills everything outside the image. */
void canvas_begin(struct canvas *canvas, const struct geometry_stage *stage);
/*
 * Returns the target for a resize to the content. stream: the resize may use non-temporal stores if
 * it can bypass the converter.
 */
struct resize_target canvas_target(struct canvas *canvas, bool stream);
/*
 * canvas_row() returns where to write row `row` of the content; call canvas_row_written() after it.
 */
uint8_t *canvas_row(struct canvas *canvas, uint32_t row);
void canvas_row_written(struct canvas *canvas, uint32_t row);
