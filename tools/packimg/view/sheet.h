/*
 * The contact sheet: a PNG with the pictures of all samples, their annotations and captions. Owned
 * by its creator, used by one thread.
 */
#pragma once

#include "tools/packimg/view/canvas.h"
#include "tools/packimg/view/panel.h"

enum { SHEET_PIXELS_MAX = 64 * 1000 * 1000 };

struct sheet {
	struct canvas canvas;
	uint32_t side; /* side of each picture's square in pixels */
	uint32_t panels, columns;
	uint32_t cell_width, cell_height;
	uint64_t count; /* samples added */
	struct resize *resize;
	struct buffer pixels; /* of one picture */
	const struct packimg *dataset;
};

/*
 * Allocates the sheet for `count` samples with `panels` pictures each, one or two. -E2BIG with a
 * message if it would exceed SHEET_PIXELS_MAX. Call deinit also after a failure.
 */
int sheet_init(struct sheet *sheet, const struct packimg *dataset, uint64_t count, uint32_t panels,
	       uint32_t side, struct packimg_error *error);
/* Adds the next sample: its pictures, and two lines of printable text. 0 or -ENOMEM. */
int sheet_add(struct sheet *sheet, const struct panel *panels, const char *title, const char *key);
/* Appends the PNG to an empty buffer. */
int sheet_write(const struct sheet *sheet, struct buffer *png, struct packimg_error *error);
void sheet_deinit(struct sheet *sheet);
