/*
 * What the loop measures between two lines of the log: time, speed, and the last loss. Totals that
 * a resumed run continues are in the checkpoint's state. Written by these functions only.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

struct meter {
	double clock; /* clock value up to which state.train_seconds is accounted */
	/* the state's values at the last step line */
	double line_seconds, line_wait;
	uint64_t line_images;
	double rate; /* images per second over the last lines */
	/* updates skipped since the last step line because a gradient was not finite */
	uint64_t skipped;
	double last_loss, last_lr;
};

/* Starts the clock, at a step line. */
void meter_start(struct meter *meter, const struct checkpoint_state *state);
/* Restarts the clock: the time since the last step is not training. */
void meter_skip(struct meter *meter);
/* Returns the seconds since the clock was read last. */
double meter_lap(struct meter *meter);
/* Records the results of an update. */
void meter_add(struct meter *meter, const struct device_results *results, double lr);
/*
 * At a step line: computes the speed since the line before, and the seconds between them and those
 * of them that were spent waiting for data.
 */
void meter_line(struct meter *meter, const struct checkpoint_state *state, double *ret_seconds,
		double *ret_wait);
/* After a step line was written. */
void meter_reset_skipped(struct meter *meter);
