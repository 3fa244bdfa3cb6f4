#include "tools/packimg/view/sheet.h"

#include "format/base/text/printable.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/font.h"
#include "tools/packimg/view/sample_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SHEET_GAP = 8,      /* pixels between pictures */
	SHEET_TEXT_GAP = 3, /* pixels between a picture and its text */
	SHEET_LINES = 2,    /* of a caption */
	SHEET_LINE_HEIGHT = FONT_HEIGHT + 4,
	SHEET_CAPTION = SHEET_LINES * SHEET_LINE_HEIGHT,
};

static const struct colour paper = {0xff, 0xff, 0xff}, ink = {0x20, 0x20, 0x20},
			   empty = {0xdd, 0xdd, 0xdd};

/* Chooses the columns that make the sheet about a third wider than high. */
static uint32_t choose_columns(const struct sheet *sheet, uint64_t count)
{
	double wanted = ceil(sqrt((double)count * sheet->cell_height / sheet->cell_width * 4 / 3));

	return wanted > (double)count ? (uint32_t)count : (uint32_t)wanted;
}

/* Returns the height of a picture with its label and the gap below. */
static uint32_t row_height(const struct sheet *sheet)
{
	return sheet->side + SHEET_GAP + (sheet->cell.labels ? SHEET_LINE_HEIGHT : 0);
}

int sheet_init(struct sheet *sheet, const struct packimg *dataset, uint64_t count,
	       const struct sheet_cell *cell, uint32_t side, struct packimg_error *error)
{
	*sheet = (struct sheet){.dataset = dataset, .side = side, .cell = *cell};
	sheet->cell_width = cell->columns * (side + SHEET_GAP);
	sheet->cell_height = cell->rows * row_height(sheet) + SHEET_CAPTION;
	sheet->columns = choose_columns(sheet, count);
	uint64_t rows = (count + sheet->columns - 1) / sheet->columns;
	uint64_t width = (uint64_t)sheet->columns * sheet->cell_width + SHEET_GAP;
	uint64_t height = rows * sheet->cell_height + SHEET_GAP;
	if (width > SHEET_PIXELS_MAX / height)
		return packimg_fail(error, -E2BIG,
				    "a sheet of %" PRIu64 " samples would have %" PRIu64
				    " x %" PRIu64
				    " pixels; the limit is %d million: choose fewer by --samples, "
				    "or a smaller --size, or write only a page with -o FILE.html",
				    count, width, height, SHEET_PIXELS_MAX / 1000000);
	sheet->canvas.width = (uint32_t)width;
	sheet->canvas.height = (uint32_t)height;
	sheet->canvas.stride = width * 3;
	sheet->canvas.rgb = malloc(width * height * 3);
	int r = sheet->canvas.rgb ? resize_new(&sheet->resize) : -ENOMEM;
	if (r)
		return packimg_fail(error, r, "out of memory");
	canvas_fill(&sheet->canvas, 0, 0, sheet->canvas.width, sheet->canvas.height, paper);
	return 0;
}

void sheet_deinit(struct sheet *sheet)
{
	free(sheet->canvas.rgb);
	resize_free(sheet->resize);
	buffer_deinit(&sheet->pixels);
}

/* Position of a panel on the sheet. */
struct placement {
	uint32_t x, y, width, height; /* pixels of the sheet */
	double scale[2];              /* pixels of the sheet per pixel of the panel */
};

/* Fits a picture into its square: enlarges small ones by a whole number, shrinks large ones. */
static struct placement place_panel(const struct sheet *sheet, const struct panel *panel,
				    uint32_t x, uint32_t y)
{
	uint32_t longer = panel->width > panel->height ? panel->width : panel->height;
	uint32_t times = longer > sheet->side ? 1 : sheet->side / longer;
	double factor = longer > sheet->side ? (double)sheet->side / longer : times;
	struct placement place = {
		.x = x,
		.y = y,
		.width = (uint32_t)fmax(1, round(panel->width * factor)),
		.height = (uint32_t)fmax(1, round(panel->height * factor)),
	};

	place.scale[0] = (double)place.width / panel->width;
	place.scale[1] = (double)place.height / panel->height;
	return place;
}

/* Sets *ret_pixels to the picture, scaled to its place; not yet scaled if it is to be enlarged. */
static int scale_picture(struct sheet *sheet, const struct panel *panel,
			 const struct placement *place, struct canvas *ret_pixels)
{
	const struct resize_picture picture = {
		.data = panel->rgb.data,
		.stride = (size_t)panel->width * 3,
		.width = panel->width,
		.height = panel->height,
		.channels = 3,
		.extent_width = panel->width,
		.extent_height = panel->height,
	};

	*ret_pixels = (struct canvas){panel->rgb.data, panel->width, panel->height,
				      (size_t)panel->width * 3};
	if (place->width >= panel->width && place->height >= panel->height)
		return 0;
	if (buffer_reserve(&sheet->pixels, (size_t)place->width * place->height * 3))
		return -ENOMEM;
	*ret_pixels = (struct canvas){sheet->pixels.data, place->width, place->height,
				      (size_t)place->width * 3};
	return resize_image(sheet->resize, &picture, place->width, place->height,
			    sheet->pixels.data, (size_t)place->width * 3);
}

static void put_pixels(struct sheet *sheet, const struct panel *panel,
		       const struct placement *place, const struct canvas *pixels)
{
	for (uint32_t y = 0; y < place->height; y++) {
		size_t row = (size_t)((uint64_t)y * pixels->height / place->height);
		size_t mask_row = (size_t)((uint64_t)y * panel->height / place->height);

		for (uint32_t x = 0; x < place->width; x++) {
			size_t column = (size_t)((uint64_t)x * pixels->width / place->width);
			size_t mask_column = (size_t)((uint64_t)x * panel->width / place->width);
			const uint8_t *from = pixels->rgb + row * pixels->stride + column * 3;

			canvas_dot(&sheet->canvas, place->x + x, place->y + y,
				   (struct colour){from[0], from[1], from[2]});
			if (!panel->has_mask)
				continue;
			from = panel->mask.data + (mask_row * panel->width + mask_column) * 4;
			canvas_blend(&sheet->canvas, place->x + x, place->y + y,
				     (struct colour){from[0], from[1], from[2]}, from[3]);
		}
	}
}

/* picture is the panel's part of the sheet, which clips shapes. */
static void draw_shape(struct canvas *picture, const struct placement *place,
		       const struct shapes *shapes, const struct shape *shape)
{
	struct colour colour = colour_of(shape->colour);
	double at[2], next[2];

	for (size_t i = 0; i < shape->count; i++) {
		const double *from = shapes->points[shape->first + i];
		const double *to = shapes->points[shape->first + (i + 1) % shape->count];

		for (unsigned axis = 0; axis < 2; axis++) {
			at[axis] = from[axis] * place->scale[axis];
			next[axis] = to[axis] * place->scale[axis];
		}
		if (shape->kind == SHAPE_POINT)
			canvas_circle(picture, at, 2.5, colour);
		else
			canvas_line(picture, at, next, colour);
	}
}

static void draw_class(struct canvas *picture, const struct placement *place,
		       const struct shapes *shapes, const struct shape *shape, const char *name)
{
	const double *corner = shapes->points[shape->first];
	double x = corner[0] * place->scale[0] + 4, y = corner[1] * place->scale[1] + 4;

	/* Also skips NaN. */
	if (!(x > -1e6 && x < 1e6 && y > -1e6 && y < 1e6) || x >= picture->width)
		return;
	x = fmax(x, 1);
	y = fmax(y, 1);
	/* A shadow makes the text legible on any picture. */
	uint32_t room = picture->width - (uint32_t)x;
	canvas_text(picture, (int64_t)x + 1, (int64_t)y + 1, room, name, CANVAS_CUT_END,
		    (struct colour){0, 0, 0});
	canvas_text(picture, (int64_t)x, (int64_t)y, room, name, CANVAS_CUT_END, paper);
}

static int draw_shapes(struct sheet *sheet, const struct placement *place,
		       const struct shapes *shapes)
{
	struct canvas picture =
		canvas_part(&sheet->canvas, place->x, place->y, place->width, place->height);

	for (size_t i = 0; i < shapes->count; i++)
		draw_shape(&picture, place, shapes, &shapes->list[i]);
	for (size_t i = 0; i < shapes->count; i++) {
		const struct shape *shape = &shapes->list[i];

		if (shape->kind != SHAPE_BOX || shape->class_number < 0)
			continue;
		char *name = sample_class_copy(sheet->dataset, shape->class_number);
		if (!name)
			return -ENOMEM;
		draw_class(&picture, place, shapes, shape, name);
		free(name);
	}
	return 0;
}

static int add_panel(struct sheet *sheet, const struct panel *panel, uint32_t x, uint32_t y)
{
	struct canvas pixels;

	if (panel->width == 0) {
		char *fault = printable_copy(panel->fault, strlen(panel->fault));

		canvas_fill(&sheet->canvas, x, y, sheet->side, sheet->side, empty);
		if (fault)
			canvas_text(&sheet->canvas, x + 2, y + 2, sheet->side - 4, fault,
				    CANVAS_CUT_END, ink);
		free(fault);
		return fault ? 0 : -ENOMEM;
	}
	const struct placement place = place_panel(sheet, panel, x, y);
	int r = scale_picture(sheet, panel, &place, &pixels);
	if (r)
		return r;
	put_pixels(sheet, panel, &place, &pixels);
	return draw_shapes(sheet, &place, &panel->shapes);
}

/* Sets the upper left corner of the next sample's cell. */
static void find_cell(const struct sheet *sheet, uint32_t *ret_x, uint32_t *ret_y)
{
	*ret_x = (uint32_t)(sheet->count % sheet->columns) * sheet->cell_width + SHEET_GAP;
	*ret_y = (uint32_t)(sheet->count / sheet->columns) * sheet->cell_height + SHEET_GAP;
}

int sheet_add_picture(struct sheet *sheet, const struct panel *panel, uint32_t column, uint32_t row)
{
	uint32_t x, y;

	find_cell(sheet, &x, &y);
	x += column * (sheet->side + SHEET_GAP);
	y += row * row_height(sheet);
	int r = add_panel(sheet, panel, x, y);
	if (r || !sheet->cell.labels || panel->width == 0)
		return r;
	char *label = printable_copy(panel->label, strlen(panel->label));
	if (label)
		canvas_text(&sheet->canvas, x, y + sheet->side + SHEET_TEXT_GAP, sheet->side, label,
			    CANVAS_CUT_END, ink);
	free(label);
	return label ? 0 : -ENOMEM;
}

void sheet_end_sample(struct sheet *sheet, const char *title, const char *key)
{
	uint32_t x, y, width = sheet->cell_width - SHEET_GAP;

	find_cell(sheet, &x, &y);
	y += sheet->cell.rows * row_height(sheet) - SHEET_GAP + SHEET_TEXT_GAP;
	canvas_text(&sheet->canvas, x, y, width, title, CANVAS_CUT_END, ink);
	canvas_text(&sheet->canvas, x, y + SHEET_LINE_HEIGHT, width, key, CANVAS_CUT_BEGINNING,
		    ink);
	sheet->count++;
}

int sheet_write(const struct sheet *sheet, struct buffer *png, struct packimg_error *error)
{
	const struct resize_picture pixels = {
		.data = sheet->canvas.rgb,
		.stride = sheet->canvas.stride,
		.width = sheet->canvas.width,
		.height = sheet->canvas.height,
		.channels = 3,
	};

	return image_write_png(&pixels, png, error);
}
