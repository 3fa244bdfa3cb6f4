/*
 * axis: the quantities that loaderbench can sweep, as texts.
 *
 * Pure functions over rows of a report; any thread.
 */
#pragma once

#include <stddef.h>

#include "bench/report/report.h"

enum axis { AXIS_DATASET, AXIS_SIZE, AXIS_BATCH, AXIS_THREADS, AXIS_CLIENTS, AXIS_ISA, AXIS_COUNT };

enum { AXIS_TEXT_MAX = 64 };

extern const char *const axis_names[AXIS_COUNT];

/* The point's value, cut to size bytes with its terminator. */
void axis_text(enum axis axis, const struct point *point, char *text, size_t size);
/* Does the report hold more than one value of it? */
int axis_is_swept(const struct report *report, enum axis axis);
/* Characters of its longest value or of its name, whichever is longer. */
int axis_width(const struct report *report, enum axis axis);
