/*
 * The contact sheet: a PNG with the pictures of all samples, their annotations and captions. Owned
 * by its creator, used by one thread.
 */
#pragma once

#include "tools/packimg/view/canvas.h"
#include "tools/packimg/view/panel.h"

#include <stdbool.h>

enum { SHEET_PIXELS_MAX = 64 * 1000 * 1000 };

/* The arrangement of the pictures of a sample. */
struct sheet_cell {
	uint32_t columns, rows;
	bool labels; /* each picture has a line of text below it */
};

struct sheet {
	struct canvas canvas;
	uint32_t side; /* side of each picture's square in pixels */
	struct sheet_cell cell;
	uint32_t columns; /* of cells */
	uint32_t cell_width, cell_height;
	uint64_t count; /* samples added */
	struct resize *resize;
	struct buffer pixels; /* of one picture */
	const struct packimg *dataset;
};

/*
 * Allocates the sheet for `count` samples. -E2BIG with a message if it would exceed
 * SHEET_PIXELS_MAX. Call deinit also after a failure.
 */
int sheet_init(struct sheet *sheet, const struct packimg *dataset, uint64_t count,
	       const struct sheet_cell *cell, uint32_t side, struct packimg_error *error);
/* Adds a picture of the next sample, at this place of its cell. 0 or -ENOMEM. */
int sheet_add_picture(struct sheet *sheet, const struct panel *panel, uint32_t column,
		      uint32_t row);
/* Ends the sample with two lines of printable text. */
void sheet_end_sample(struct sheet *sheet, const char *title, const char *key);
/* Appends the PNG to an empty buffer. */
int sheet_write(const struct sheet *sheet, struct buffer *png, struct packimg_error *error);
void sheet_deinit(struct sheet *sheet);
