/*
 * The quantities that loaderbench can sweep, formatted as text. Pure functions over the rows of a
 * report; any thread.
 */
#pragma once

#include <stddef.h>

#include "bench/report/report.h"

enum axis { AXIS_DATASET, AXIS_SIZE, AXIS_BATCH, AXIS_THREADS, AXIS_CLIENTS, AXIS_ISA, AXIS_COUNT };

enum { AXIS_TEXT_MAX = 64 };

extern const char *const axis_names[AXIS_COUNT];

/* Formats the point's value, cut to size bytes including the terminator. */
void axis_text(enum axis axis, const struct point *point, char *text, size_t size);
/* Returns nonzero if the report holds more than one value of the axis. */
int axis_is_swept(const struct report *report, enum axis axis);
/* Width in characters of the longest value or of the axis name, whichever is longer. */
int axis_width(const struct report *report, enum axis axis);
