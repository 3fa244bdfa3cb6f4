#include "bench/report/axis.h"

#include "format/base/text/printable.h"

#include <stdio.h>
#include <string.h>

const char *const axis_names[AXIS_COUNT] = {"dataset", "size",    "batch",
					    "threads", "clients", "isa"};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

void axis_text(enum axis axis, const struct point *point, char *text, size_t size)
{
	const char *name;

	switch (axis) {
	case AXIS_DATASET:
		name = base_name(point->dataset);
		text[printable_write(text, size - 1, name, strlen(name))] = '\0';
		return;
	case AXIS_SIZE:
		snprintf(text, size, "%u", point->size);
		return;
	case AXIS_BATCH:
		snprintf(text, size, "%u", point->batch_size);
		return;
	case AXIS_THREADS:
		if (point->threads)
			snprintf(text, size, "%u", point->threads);
		else
			snprintf(text, size, "default");
		return;
	case AXIS_CLIENTS:
		snprintf(text, size, "%u", point->clients);
		return;
	default:
		snprintf(text, size, "%s", point->isa ? point->isa : "best");
		return;
	}
}

int axis_is_swept(const struct report *report, enum axis axis)
{
	char first[AXIS_TEXT_MAX], text[AXIS_TEXT_MAX];

	axis_text(axis, &report->rows[0].point, first, sizeof(first));
	for (size_t i = 1; i < report->count; i++) {
		axis_text(axis, &report->rows[i].point, text, sizeof(text));
		if (strcmp(first, text) != 0)
			return 1;
	}
	return 0;
}

int axis_width(const struct report *report, enum axis axis)
{
	size_t width = strlen(axis_names[axis]);
	char text[AXIS_TEXT_MAX];

	for (size_t i = 0; i < report->count; i++) {
		axis_text(axis, &report->rows[i].point, text, sizeof(text));
		width = strlen(text) > width ? strlen(text) : width;
	}
	return (int)width;
}
