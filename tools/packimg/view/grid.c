#include "tools/packimg/view/grid.h"

#include "format/base/copy_once.h"
#include "format/base/half.h"
#include "tools/packimg/view/colours.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct colour not_finite = {0xd0, 0x00, 0x30};

static const uint8_t *pixel_at(const struct grid *grid, uint32_t x, uint32_t y)
{
	return grid->data + (ptrdiff_t)y * grid->step_y + (ptrdiff_t)x * grid->step_x;
}

/* Returns the number at this address, which doubles represent exactly. */
static double number_at(enum schema_element element, const uint8_t *at)
{
	uint32_t bits = 0;
	float number;

	copy_once(&bits, at, schema_element_size(element));
	switch (element) {
	case SCHEMA_F16:
		return half_to_float((uint16_t)bits);
	case SCHEMA_BF16:
		return bfloat_to_float((uint16_t)bits);
	case SCHEMA_F32:
		memcpy(&number, &bits, sizeof(number));
		return number;
	case SCHEMA_I16:
		return (int16_t)bits;
	case SCHEMA_I32:
		return (int32_t)bits;
	default:
		return bits;
	}
}

int64_t grid_integer(const struct grid *grid, uint32_t x, uint32_t y)
{
	return (int64_t)number_at(grid->element, pixel_at(grid, x, y));
}

static unsigned channels_shown(const struct grid *grid)
{
	return grid->channels < 3 ? 1 : 3;
}

/* Reads the channels shown of a pixel. Returns true if all are finite. */
static bool read_pixel(const struct grid *grid, const uint8_t *pixel, double ret_numbers[3])
{
	bool finite = true;

	for (unsigned c = 0; c < channels_shown(grid); c++) {
		ret_numbers[c] = number_at(grid->element, pixel + c * grid->step_channel);
		finite = finite && isfinite(ret_numbers[c]);
	}
	return finite;
}

struct levels grid_levels(const struct grid *grid)
{
	struct levels levels = {INFINITY, -INFINITY, 0};

	for (uint32_t y = 0; y < grid->height; y++) {
		for (uint32_t x = 0; x < grid->width; x++) {
			double numbers[3];

			levels.not_finite += !read_pixel(grid, pixel_at(grid, x, y), numbers);
			for (unsigned c = 0; c < channels_shown(grid); c++) {
				if (!isfinite(numbers[c]))
					continue;
				levels.black = fmin(levels.black, numbers[c]);
				levels.white = fmax(levels.white, numbers[c]);
			}
		}
	}
	if (levels.black > levels.white)
		levels.black = levels.white = 0;
	return levels;
}

static uint8_t grey_of(const struct levels *levels, double number)
{
	enum { GREY = 128 };

	if (!(levels->black < levels->white))
		return GREY;
	double grey = (number - levels->black) / (levels->white - levels->black) * 255;
	return !(grey > 0) ? 0 : grey >= 255 ? 255 : (uint8_t)lrint(grey);
}

void grid_draw(const struct grid *grid, const struct levels *levels, uint32_t width,
	       uint32_t height, uint8_t *rgb)
{
	const unsigned last = channels_shown(grid) - 1;

	for (uint32_t y = 0; y < height; y++) {
		uint32_t row = (uint32_t)((uint64_t)y * grid->height / height);

		for (uint32_t x = 0; x < width; x++, rgb += 3) {
			uint32_t column = (uint32_t)((uint64_t)x * grid->width / width);
			double numbers[3];

			if (!read_pixel(grid, pixel_at(grid, column, row), numbers)) {
				rgb[0] = not_finite.red;
				rgb[1] = not_finite.green;
				rgb[2] = not_finite.blue;
				continue;
			}
			for (unsigned c = 0; c < 3; c++)
				rgb[c] = grey_of(levels, numbers[c < last ? c : last]);
		}
	}
}

enum { NUMBER_SIZE = 24 };

static void print_number(enum schema_element element, double number, char text[NUMBER_SIZE])
{
	bool real = element == SCHEMA_F16 || element == SCHEMA_BF16 || element == SCHEMA_F32;

	snprintf(text, NUMBER_SIZE, real ? "%.4g" : "%.0f", number);
}

static bool is_all_red(const struct grid *grid, const struct levels *levels)
{
	return levels->not_finite == (uint64_t)grid->width * grid->height;
}

void grid_describe(const struct grid *grid, const struct levels *levels, char *text, size_t size)
{
	char black[NUMBER_SIZE], white[NUMBER_SIZE], red[48] = "", channels[48] = "";

	print_number(grid->element, levels->black, black);
	print_number(grid->element, levels->white, white);
	if (levels->not_finite)
		snprintf(red, sizeof(red), ", %" PRIu64 " not finite (red)", levels->not_finite);
	if (grid->channels != 1 && grid->channels != 3)
		snprintf(channels, sizeof(channels), ", channel%s of %u",
			 grid->channels < 3 ? " 0" : "s 0 to 2", grid->channels);
	if (is_all_red(grid, levels))
		snprintf(text, size, "no pixel is finite%s", channels);
	else if (levels->black < levels->white)
		snprintf(text, size, "black is %s, white is %s%s%s", black, white, red, channels);
	else
		snprintf(text, size, "all are %s%s%s", black, red, channels);
}

void grid_describe_range(const struct grid *grid, const struct levels *levels, char *text,
			 size_t size)
{
	char black[NUMBER_SIZE], white[NUMBER_SIZE];

	print_number(grid->element, levels->black, black);
	print_number(grid->element, levels->white, white);
	if (is_all_red(grid, levels))
		snprintf(text, size, "not finite");
	else
		snprintf(text, size, "%s to %s", black, white);
}
