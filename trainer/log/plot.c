#include "trainer/log/plot.h"

#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"
#include "format/base/text/sentence.h"
#include "format/base/text/svg.h"
#include "trainer/log/picture.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define plot_fail(error, code, ...) sentence_fail((error), PLOT_ERROR_MAX, (code), __VA_ARGS__)

/* One quantity over epochs, in log order. */
struct series {
	double *x, *y;
	size_t count, capacity;
};

enum { TRAIN, EVAL, KINDS };

enum { PLOT_LINE_MAX = 1 << 16 }; /* bytes; the longest lines contain an error message */

/*
 * The panels; those without a value are not drawn. The legend shows the last evaluation of the
 * first one after the loss.
 */
static const struct panel {
	const char *name, *unit, *key[KINDS]; /* keys in lines "step" and "eval" */
	double scale;
} panels[] = {
	{"loss", "", {"loss_mean", "loss"}, 1},
	{"top-1", " %", {"top1", "top1"}, 100},
	{"mAP", " %", {"", "map"}, 100},
	{"micro-F1", " %", {"", "f1"}, 100},
	{"R^2", "", {"", "r2"}, 1},
	{"MAE", "", {"", "mae"}, 1},
	{"RMSE", "", {"", "rmse"}, 1},
};

enum { PANELS = sizeof(panels) / sizeof(panels[0]) };

struct curves {
	struct series series[PANELS][KINDS];
};

static int series_add(struct series *series, double x, double y)
{
	if (series->count == series->capacity) {
		size_t capacity = series->capacity ? 2 * series->capacity : 64;
		double *xs = realloc(series->x, capacity * sizeof(double));
		series->x = xs ? xs : series->x;
		double *ys = xs ? realloc(series->y, capacity * sizeof(double)) : NULL;
		if (!ys)
			return -ENOMEM;
		series->y = ys;
		series->capacity = capacity;
	}
	series->x[series->count] = x;
	series->y[series->count++] = y;
	return 0;
}

/* Rejects values that no run produces. */
static bool can_be_drawn(json_t *number)
{
	return json_is_number(number) && fabs(json_number_value(number)) <= FLT_MAX;
}

/* Adds the values of a line. A non-finite loss is null in the log and leaves a gap. */
static int curves_add(struct curves *curves, json_t *line)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	json_t *epoch = json_object_get(line, "epoch");
	int kind = KINDS;
	if (event && strcmp(event, "step") == 0)
		kind = TRAIN;
	else if (event && strcmp(event, "eval") == 0)
		kind = EVAL;
	if (kind == KINDS || !can_be_drawn(epoch))
		return 0;
	for (unsigned i = 0; i < PANELS; i++) {
		json_t *value = json_object_get(line, panels[i].key[kind]);
		if (!can_be_drawn(value))
			continue;
		int r = series_add(&curves->series[i][kind], json_number_value(epoch),
				   panels[i].scale * json_number_value(value));
		if (r < 0)
			return r;
	}
	return 0;
}

/* Reads a line of a log. The log is untrusted. */
static int curves_read_line(struct curves *curves, const char *text, const char *path,
			    unsigned long number, char *error)
{
	json_error_t problem;
	json_t *line = json_loads(text, 0, &problem);
	int r = line ? curves_add(curves, line)
		     : plot_fail(error, -EBADMSG, "%s:%lu: is not JSON: %s", path, number,
				 problem.text);
	json_decref(line);
	return r;
}

/* Reads up to a torn last line. */
static int curves_read_lines(struct curves *curves, FILE *file, const char *path, char *error)
{
	char *text = malloc(PLOT_LINE_MAX);
	unsigned long number = 0;
	int r = text ? 0 : plot_fail(error, -ENOMEM, "out of memory");
	while (r == 0 && fgets(text, PLOT_LINE_MAX, file)) {
		size_t length = strlen(text);
		bool whole = length && text[length - 1] == '\n';
		number++;
		if (!whole && feof(file))
			break;
		r = whole ? curves_read_line(curves, text, path, number, error)
			  : plot_fail(error, -EBADMSG,
				      "%s:%lu: is not JSON: the line is longer than %d bytes or "
				      "contains a NUL byte",
				      path, number, PLOT_LINE_MAX - 2);
	}
	if (r == 0 && ferror(file))
		r = plot_fail(error, -EIO, "%s: cannot be read", path);
	free(text);
	return r;
}

/* Opens without blocking: the folder is untrusted and may contain a FIFO without a writer. */
static int curves_open(const char *path, FILE **ret_file)
{
	int fd = io_open_regular(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	if (!file) {
		int r = fd < 0 ? fd : -errno;
		io_close(fd);
		return r;
	}
	*ret_file = file;
	return 0;
}

static int curves_read(struct curves *curves, const char *folder, char *error)
{
	char path[4096];
	FILE *file = NULL;
	if (snprintf(path, sizeof(path), "%s/log.jsonl", folder) >= (int)sizeof(path))
		return plot_fail(error, -ENAMETOOLONG, "%.100s...: the path is too long", folder);
	int r = curves_open(path, &file);
	if (r < 0)
		return plot_fail(error, r, "%.900s: %s%s", path,
				 r == -EBADF ? "is not a regular file" : strerror(-r),
				 r == -ENOENT ? ": --plot expects folders of runs" : "");
	r = curves_read_lines(curves, file, path, error);
	fclose(file);
	if (r < 0)
		return r;
	if (!curves->series[0][TRAIN].count && !curves->series[0][EVAL].count)
		return plot_fail(error, -ENODATA, "%.900s: contains no step and no evaluation yet",
				 path);
	return 0;
}

static void curves_free(struct curves *curves, unsigned count)
{
	for (unsigned i = 0; curves && i < count; i++)
		for (unsigned p = 0; p < PANELS; p++)
			for (unsigned k = 0; k < KINDS; k++) {
				free(curves[i].series[p][k].x);
				free(curves[i].series[p][k].y);
			}
	free(curves);
}

static void find_range(struct picture *picture, const struct curves *curves, unsigned count,
		       unsigned panel)
{
	for (unsigned i = 0; i < count * KINDS; i++) {
		const struct series *series = &curves[i / KINDS].series[panel][i % KINDS];
		for (size_t n = 0; n < series->count; n++) {
			picture->to = fmax(picture->to, series->x[n]);
			picture->y_min = fmin(picture->y_min, series->y[n]);
			picture->y_max = fmax(picture->y_max, series->y[n]);
		}
	}
	/*
	 * enough to see a difference between equal values and to keep grid lines apart, at any
	 * magnitude
	 */
	double margin = 0.03 * (picture->y_max - picture->y_min) +
			1e-6 * fmax(1, fmax(fabs(picture->y_min), fabs(picture->y_max)));
	picture->y_min -= margin;
	picture->y_max += margin;
	picture->to += picture->to > 0 ? 0 : 1;
}

static bool panel_has_values(const struct curves *curves, unsigned count, unsigned panel)
{
	for (unsigned i = 0; i < count * KINDS; i++)
		if (curves[i / KINDS].series[panel][i % KINDS].count)
			return true;
	return false;
}

static void draw_panel(FILE *file, const struct curves *curves, unsigned count, unsigned panel,
		       double top)
{
	struct picture picture = {.file = file, .y_min = INFINITY, .y_max = -INFINITY, .top = top};
	char text[32];
	find_range(&picture, curves, count, panel);
	snprintf(text, sizeof(text), "%s%s", panels[panel].name, panels[panel].unit);
	picture_begin(&picture, "epoch", text);
	for (unsigned i = 0; i < count * KINDS; i++) {
		unsigned run = i % count, kind = i / count;
		const struct series *series = &curves[run].series[panel][kind];
		struct picture_pen pen = {svg_colors[run % SVG_COLORS], kind == EVAL ? 2 : 1,
					  kind == EVAL ? 1 : 0.5};
		picture_curve(&picture, &pen, series->x, series->y, series->count);
		for (size_t n = 0; kind == EVAL && n < series->count; n++)
			picture_dot(&picture, series->x[n], series->y[n]);
	}
	picture_end(&picture);
}

static void draw_legend(FILE *file, unsigned row, const struct curves *curves, const char *folder)
{
	char text[512];
	unsigned panel = 1;
	while (panel < PANELS && !curves->series[panel][EVAL].count)
		panel++;
	if (panel < PANELS) {
		const struct series *series = &curves->series[panel][EVAL];
		snprintf(text, sizeof(text), "%.450s: %s %.*f%s", folder, panels[panel].name,
			 panels[panel].scale == 1 ? 4 : 2, series->y[series->count - 1],
			 panels[panel].unit);
	} else {
		snprintf(text, sizeof(text), "%s", folder);
	}
	picture_legend(file, row, svg_colors[row % SVG_COLORS], text);
}

static void draw(FILE *file, const struct curves *curves, const char *const *folders,
		 unsigned count)
{
	unsigned drawn = 0;
	for (unsigned i = 0; i < PANELS; i++)
		drawn += panel_has_values(curves, count, i);
	double top = picture_open(file, drawn, count + 1);
	for (unsigned i = 0; i < count; i++)
		draw_legend(file, i, &curves[i], folders[i]);
	picture_note(file, count,
		     "thin: training, mean since the previous line of the log; thick, with dots: "
		     "evaluation");
	for (unsigned i = 0; i < PANELS; i++) {
		if (!panel_has_values(curves, count, i))
			continue;
		draw_panel(file, curves, count, i, top);
		top = picture_next_top(top);
	}
	picture_close(file);
}

static int plot_write(const char *path, const struct curves *curves, const char *const *folders,
		      unsigned count, char *error)
{
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);
	if (!file)
		return plot_fail(error, -ENOMEM, "out of memory");
	draw(file, curves, folders, count);
	int r = fclose(file) ? -ENOMEM : atomic_file_put(path, text, size);
	free(text);
	return r < 0 ? plot_fail(error, r, "--plot=%.900s: %s", path, strerror(-r)) : 0;
}

int plot_runs(const char *path, const char *const *folders, unsigned count, char *error)
{
	struct curves *curves = calloc(count, sizeof(*curves));
	int r = curves ? 0 : plot_fail(error, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < count && r == 0; i++)
		r = curves_read(&curves[i], folders[i], error);
	if (r == 0)
		r = plot_write(path, curves, folders, count, error);
	curves_free(curves, count);
	return r;
}
