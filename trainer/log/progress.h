/*
 * Progress on standard error: a bar that is redrawn on a terminal, plain lines elsewhere. Shows the
 * position in the run, loss, learning rate, images per second, fraction of time spent waiting for
 * data, and remaining time. Embedded in the run context, used by its thread.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct progress {
	bool on, bar;
	bool drawn;      /* the bar is on the current line */
	double plain_at; /* time in seconds of the next plain line */
	double draw_at;
};

void progress_init(struct progress *progress, enum recipe_progress mode);
/* Draws the position in the run, followed by `text`. */
void progress_step(struct progress *progress, uint64_t step, uint64_t steps, const char *text);
/* True if an update is due; check before formatting text. */
bool progress_due(const struct progress *progress);
/* Prints a permanent line. */
__attribute__((format(printf, 2, 3))) void progress_line(struct progress *progress,
							 const char *format, ...);
/* Clears the bar. */
void progress_end(struct progress *progress);
