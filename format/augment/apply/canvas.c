#include "format/augment/apply/canvas.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The time in the converter is measured for one row in TIMED_ROWS. */
enum { TIMED_ROWS = 32 };

int canvas_rows_init(struct canvas_rows *rows)
{
	rows->row = calloc(2, (size_t)PIPELINE_SIDE_MAX * 4);
	rows->stage = aligned_alloc(CONVERTER_LINE, CONVERTER_STAGE_SIZE);
	if (!rows->row || !rows->stage)
		return -ENOMEM;
	rows->fill = rows->row + (size_t)PIPELINE_SIDE_MAX * 4;
	return 0;
}

void canvas_rows_deinit(struct canvas_rows *rows)
{
	free(rows->stage);
	free(rows->row);
}

/* Returns the address in data of the image's part of a row. */
static uint8_t *canvas_pixels(const struct canvas *canvas, uint32_t row)
{
	return canvas->data + (canvas->y + row) * canvas->stride +
	       (size_t)canvas->x * canvas->channels;
}

static void fill_pixels(uint8_t *output, uint32_t count, uint32_t channels, const uint8_t fill[3])
{
	for (uint32_t x = 0; x < count; x++, output += channels) {
		memcpy(output, fill, 3);
		if (channels == 4)
			output[3] = 0;
	}
}

/* Passes the image's part of one row to the converter. */
static void canvas_convert(struct canvas *canvas, uint32_t row, const uint8_t *pixels)
{
	if (canvas->is_direct) {
		converter_row_written(canvas->converter);
		return;
	}
	if (canvas->content_width < canvas->width) {
		uint8_t *bordered = canvas->rows->row;

		memcpy(bordered + (size_t)canvas->x * canvas->channels, pixels,
		       (size_t)canvas->content_width * canvas->channels);
		pixels = bordered;
	}
	converter_row(canvas->converter, canvas->y + row, pixels);
}

/* A resize_sink: calls canvas_convert() and times a sample of the rows. */
static void canvas_sink(void *context, uint32_t row, const uint8_t *pixels)
{
	struct canvas *canvas = context;

	if (row % TIMED_ROWS != TIMED_ROWS / 2) {
		canvas_convert(canvas, row, pixels);
		return;
	}
	uint64_t start = ticks_now();

	canvas_convert(canvas, row, pixels);
	*canvas->store_ticks += ticks_since(start) * TIMED_ROWS;
}

/* A resize_row_address: if a row has no borders, it is written directly to the converter's output.
 */
static uint8_t *canvas_row_address(void *context, uint32_t row)
{
	struct canvas *canvas = context;
	uint8_t *address = NULL;

	if (canvas->content_width == canvas->width)
		address = converter_row_address(canvas->converter, canvas->y + row);
	canvas->is_direct = address;
	return address;
}

/* Writes fill everywhere outside the image. */
static void canvas_fill(struct canvas *canvas, const uint8_t fill[3])
{
	bool sides = canvas->content_width < canvas->width;

	if (!canvas->data) {
		if (sides)
			fill_pixels(canvas->rows->row, canvas->width, canvas->channels, fill);
		if (canvas->content_height < canvas->height)
			fill_pixels(canvas->rows->fill, canvas->width, canvas->channels, fill);
	}
	for (uint32_t y = 0; y < canvas->height; y++) {
		bool inside = y - canvas->y < canvas->content_height;
		uint32_t right = canvas->x + canvas->content_width;

		if (inside && (!sides || !canvas->data))
			continue;
		if (!canvas->data) {
			converter_row(canvas->converter, y, canvas->rows->fill);
			continue;
		}
		uint8_t *row = canvas->data + y * canvas->stride;

		fill_pixels(row, inside ? canvas->x : canvas->width, canvas->channels, fill);
		if (inside)
			fill_pixels(row + (size_t)right * canvas->channels, canvas->width - right,
				    canvas->channels, fill);
	}
}

void canvas_content(struct canvas *canvas, const struct geometry_stage *stage, int64_t *ret_grid_x,
		    int64_t *ret_grid_y)
{
	if (geometry_stage_reflects(stage)) {
		canvas->x = canvas->y = 0;
		canvas->content_width = stage->x.count;
		canvas->content_height = stage->y.count;
		*ret_grid_x = stage->x.offset;
		*ret_grid_y = stage->y.offset;
		return;
	}
	canvas->content_width = geometry_axis_content(&stage->x, &canvas->x, ret_grid_x);
	canvas->content_height = geometry_axis_content(&stage->y, &canvas->y, ret_grid_y);
	if (canvas->content_width == 0 || canvas->content_height == 0)
		canvas->x = canvas->y = canvas->content_width = canvas->content_height = 0;
}

void canvas_begin(struct canvas *canvas, const struct geometry_stage *stage)
{
	if (canvas->converter && canvas->content_height == canvas->height && !stage->y.reverse) {
		converter_begin_stream(canvas->converter, canvas->rows->stage);
		if (canvas->converter->streaming)
			canvas->data = NULL;
	}
	if (canvas->content_width < canvas->width || canvas->content_height < canvas->height)
		canvas_fill(canvas, stage->fill);
}

struct resize_target canvas_target(struct canvas *canvas, bool stream)
{
	bool whole = !canvas->data && canvas->content_width == canvas->width;

	if (stream && whole && converter_bypass(canvas->converter))
		return (struct resize_target){.data = converter_bypass(canvas->converter),
					      .stride = (ptrdiff_t)canvas->stride,
					      .channels = canvas->channels,
					      .stream = true};
	if (!canvas->data)
		return (struct resize_target){.channels = canvas->channels,
					      .sink = canvas_sink,
					      .row_address = canvas_row_address,
					      .context = canvas};
	return (struct resize_target){.channels = canvas->channels,
				      .data = canvas_pixels(canvas, 0),
				      .stride = (ptrdiff_t)canvas->stride};
}

uint8_t *canvas_row(struct canvas *canvas, uint32_t row)
{
	if (canvas->data)
		return canvas_pixels(canvas, row);
	uint8_t *address = canvas_row_address(canvas, row);

	/* Write into rows.row, between the borders that canvas_fill() wrote. */
	return address ? address : canvas->rows->row + (size_t)canvas->x * canvas->channels;
}

void canvas_row_written(struct canvas *canvas, uint32_t row)
{
	if (canvas->data)
		return;
	if (canvas->is_direct)
		converter_row_written(canvas->converter);
	else
		converter_row(canvas->converter, canvas->y + row, canvas->rows->row);
}
