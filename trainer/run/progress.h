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

/* What a line says. */
struct progress_state {
	uint64_t step, steps;
	double epoch, epochs;
	double loss, lr;
	double images_per_second;
	double wait; /* share of time, 0 to 1 */
	double seconds_left;
};

void progress_init(struct progress *progress, enum recipe_progress mode);
/* Draws when it is time to; call it at every step. */
void progress_step(struct progress *progress, const struct progress_state *state);
/* Is a line wanted now? Spares making the state for nothing. */
bool progress_due(const struct progress *progress);
/* A line that stays. */
__attribute__((format(printf, 2, 3))) void progress_line(struct progress *progress,
							 const char *format, ...);
/* Clears the bar. */
void progress_end(struct progress *progress);
