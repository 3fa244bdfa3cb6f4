/*
 * Progress on standard error: a bar that redraws itself on a terminal, plain lines elsewhere. Says
 * how far the run is, loss, learning rate, images per second, the share of time that training
 * waited for data, and when it will be done. Embedded in the loop, used by its thread.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct progress {
	bool on, bar;
	bool drawn;      /* a bar stands on the current line */
	double plain_at; /* seconds, when the next plain line is due */
	double draw_at;
};

void progress_init(struct progress *progress, enum recipe_progress mode);
/* Draws how far the run is, and what it says. */
void progress_step(struct progress *progress, uint64_t step, uint64_t steps, const char *text);
/* Is a line wanted now? Spares making the text for nothing. */
bool progress_due(const struct progress *progress);
/* A line that stays. */
__attribute__((format(printf, 2, 3))) void progress_line(struct progress *progress,
							 const char *format, ...);
/* Clears the bar. */
void progress_end(struct progress *progress);
