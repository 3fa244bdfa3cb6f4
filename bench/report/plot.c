#include "bench/report/plot.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report/axis.h"
#include "format/base/text/svg.h"

enum {
	PLOT_WIDTH = 720,
	PLOT_HEIGHT = 420,
	PLOT_LEFT = 80,
	PLOT_RIGHT = 200, /* for the legend */
	PLOT_TOP = 66,    /* for the title */
	PLOT_BOTTOM = 50,
	PLOT_TICKS = 5,
	SERIES_MAX = 64,
};

struct plot {
	const struct report *report;
	FILE *out;
	enum axis x;                   /* the horizontal axis */
	char (*values)[AXIS_TEXT_MAX]; /* distinct values of x in order of measurement */
	size_t value_count;
	double top; /* images/s at the upper edge */
};

/* Formats the point's values on all swept axes other than x. */
static void series_text(const struct plot *plot, const struct point *point, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (enum axis axis = 0; axis < AXIS_COUNT; axis++) {
		char value[AXIS_TEXT_MAX];

		if (axis == plot->x || !axis_is_swept(plot->report, axis) || used >= size)
			continue;
		axis_text(axis, point, value, sizeof(value));
		used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? ", " : "",
					 axis_names[axis], value);
	}
	if (!text[0])
		snprintf(text, size, "images/s");
}

static double plot_x(const struct plot *plot, size_t index)
{
	double width = PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT;

	return PLOT_LEFT + width * ((double)index + 0.5) / (double)plot->value_count;
}

static double plot_y(const struct plot *plot, double images_per_s)
{
	double height = PLOT_HEIGHT - PLOT_TOP - PLOT_BOTTOM;

	return PLOT_TOP + height * (1 - images_per_s / plot->top);
}

static size_t plot_value_index(struct plot *plot, const struct point *point)
{
	char text[AXIS_TEXT_MAX];

	axis_text(plot->x, point, text, sizeof(text));
	for (size_t i = 0; i < plot->value_count; i++)
		if (strcmp(plot->values[i], text) == 0)
			return i;
	memcpy(plot->values[plot->value_count], text, sizeof(text));
	return plot->value_count++;
}

/* Writes the title, which also explains dots and bars. */
static void plot_title(const struct plot *plot)
{
	const struct row *first = &plot->report->rows[0];
	const char *slash = strrchr(first->point.dataset, '/');
	const char *dataset = slash ? slash + 1 : first->point.dataset;
	unsigned rounds = 1;
	char text[160];

	for (size_t i = 0; i < plot->report->count; i++)
		if (plot->report->rows[i].rounds > rounds)
			rounds = plot->report->rows[i].rounds;
	if (axis_is_swept(plot->report, AXIS_DATASET))
		snprintf(text, sizeof(text), "%.110s", plot->report->pipeline);
	else
		snprintf(text, sizeof(text), "%.50s, %.60s", dataset, plot->report->pipeline);
	svg_text(plot->out, PLOT_LEFT, 18, "start", "", text);
	snprintf(text, sizeof(text),
		 "medians of %u round%s each, bars from the slowest to the fastest", rounds,
		 rounds == 1 ? "" : "s");
	svg_text(plot->out, PLOT_LEFT, 34, "start", "", text);
}

static void plot_frame(const struct plot *plot)
{
	char text[AXIS_TEXT_MAX];

	svg_begin(plot->out, PLOT_WIDTH, PLOT_HEIGHT);
	plot_title(plot);
	for (int i = 0; i <= PLOT_TICKS; i++) {
		double value = plot->top * i / PLOT_TICKS, y = plot_y(plot, value);

		svg_line(plot->out, PLOT_LEFT, y, PLOT_WIDTH - PLOT_RIGHT, y, "#dddddd", "");
		snprintf(text, sizeof(text), "%.0f", value);
		svg_text(plot->out, PLOT_LEFT - 8, y + 4, "end", "", text);
	}
	for (size_t i = 0; i < plot->value_count; i++)
		svg_text(plot->out, plot_x(plot, i), PLOT_HEIGHT - PLOT_BOTTOM + 18, "middle", "",
			 plot->values[i]);
	svg_text(plot->out, (PLOT_LEFT + PLOT_WIDTH - PLOT_RIGHT) / 2.0, PLOT_HEIGHT - 10, "middle",
		 "", axis_names[plot->x]);
	svg_text(plot->out, PLOT_LEFT, PLOT_TOP - 12, "middle", "", "images/s");
}

/* Returns true if the row is a measured point of the series, with its coordinates. */
static bool plot_point(struct plot *plot, const char *name, const struct row *row, double *ret_x,
		       double *ret_y)
{
	char text[256];

	series_text(plot, &row->point, text, sizeof(text));
	if (row->error || strcmp(text, name) != 0)
		return false;
	*ret_x = plot_x(plot, plot_value_index(plot, &row->point));
	*ret_y = plot_y(plot, row->median.images_per_s);
	return true;
}

/* Draws a line with a dot and a bar from the slowest to the fastest round for each point. */
static void plot_series(struct plot *plot, const char *name, size_t number)
{
	const struct report *report = plot->report;
	const char *color = svg_colors[number % SVG_COLORS];
	double legend = PLOT_TOP + 16.0 * (double)number, x, y;

	svg_polyline_begin(plot->out, color, 2, "");
	for (size_t i = 0; i < report->count; i++)
		if (plot_point(plot, name, &report->rows[i], &x, &y))
			svg_polyline_add(plot->out, x, y);
	svg_polyline_end(plot->out);
	for (size_t i = 0; i < report->count; i++) {
		const struct row *row = &report->rows[i];

		if (!plot_point(plot, name, row, &x, &y))
			continue;
		svg_circle(plot->out, x, y, 3, color);
		svg_line(plot->out, x, plot_y(plot, row->images_per_s_min), x,
			 plot_y(plot, row->images_per_s_max), color, "");
	}
	svg_rect(plot->out, PLOT_WIDTH - PLOT_RIGHT + 12, legend - 9, 10, 10, color, "");
	svg_text(plot->out, PLOT_WIDTH - PLOT_RIGHT + 28, legend, "start", "", name);
}

static double round_up(double value)
{
	double unit = pow(10, floor(log10(fmax(value, 1))));

	return ceil(value / unit * 2) / 2 * unit;
}

int plot_write(const struct report *report, FILE *out)
{
	static const enum axis preferred[] = {AXIS_THREADS, AXIS_BATCH, AXIS_CLIENTS,
					      AXIS_SIZE,    AXIS_ISA,   AXIS_DATASET};
	struct plot plot = {.report = report, .out = out, .x = AXIS_BATCH};
	char(*names)[256] = calloc(SERIES_MAX, sizeof(*names));
	size_t name_count = 0;

	plot.values = calloc(report->count, sizeof(*plot.values));
	if (!names || !plot.values) {
		free(names);
		free(plot.values);
		return -ENOMEM;
	}
	for (size_t i = 0; i < sizeof(preferred) / sizeof(preferred[0]); i++)
		if (axis_is_swept(report, preferred[i])) {
			plot.x = preferred[i];
			break;
		}
	for (size_t i = 0; i < report->count; i++) {
		char text[256];
		size_t known = 0;

		plot_value_index(&plot, &report->rows[i].point);
		if (!report->rows[i].error)
			plot.top = fmax(plot.top, report->rows[i].images_per_s_max);
		series_text(&plot, &report->rows[i].point, text, sizeof(text));
		while (known < name_count && strcmp(names[known], text) != 0)
			known++;
		if (known == name_count && name_count < SERIES_MAX)
			memcpy(names[name_count++], text, sizeof(text));
	}
	plot.top = round_up(plot.top);
	plot_frame(&plot);
	for (size_t i = 0; i < name_count; i++)
		plot_series(&plot, names[i], i);
	svg_end(out);
	free(names);
	free(plot.values);
	return ferror(out) ? -EIO : 0;
}
