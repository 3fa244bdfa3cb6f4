/*
 * The contact sheet: one picture of all samples, with their annotations drawn and a caption each,
 * as PNG. Owned by its maker, used by one thread.
 */
#pragma once

#include "tools/packimg/view/canvas.h"
#include "tools/packimg/view/panel.h"

enum { SHEET_PIXELS_MAX = 64 * 1000 * 1000 };

struct sheet {
	struct canvas canvas;
	uint32_t side; /* pixels of a picture's square */
	uint32_t panels, columns;
	uint32_t cell_width, cell_height;
	uint64_t count; /* samples added */
	struct resize *resize;
	struct buffer pixels; /* of one picture */
	const struct packimg *dataset;
};

/*
 * Allocates the sheet for `count` samples with `panels` pictures each, one or two. -E2BIG with a
 * sentence if it would have more than SHEET_PIXELS_MAX pixels. Deinit in any case.
 */
int sheet_init(struct sheet *sheet, const struct packimg *dataset, uint64_t count, uint32_t panels,
	       uint32_t side, struct packimg_error *error);
/* Adds the next sample: its pictures, and two lines of printable text. 0 or -ENOMEM. */
int sheet_add(struct sheet *sheet, const struct panel *panels, const char *title, const char *key);
/* Appends the PNG to an empty buffer. */
int sheet_write(const struct sheet *sheet, struct buffer *png, struct packimg_error *error);
void sheet_deinit(struct sheet *sheet);
