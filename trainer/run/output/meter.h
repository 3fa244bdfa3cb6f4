/*
 * Measurements between two step lines of the log: time, speed, and the last loss. Totals that
 * continue in a resumed run are in the checkpoint's state. Only the functions below write the
 * struct.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/steps.h"

struct meter {
	double clock; /* clock value at the last lap; earlier time is accounted */
	/* values of the state at the last step line */
	double line_seconds, line_wait;
	uint64_t line_images;
	double rate; /* images per second between the last two step lines */
	/* updates since the last step line that were skipped because a gradient was not finite */
	uint64_t skipped;
	double last_loss, last_lr;
	/* bytes that this rank sent in the steps since the last step line, and number of these */
	struct comm_sent sent;
	uint64_t sent_steps;
	struct comm_sent sent_mean; /* per step, at the last step line */
};

/* Starts the clock and the interval of the first step line. */
void meter_start(struct meter *meter, const struct checkpoint_state *state);
/* Restarts the clock, so that the time since the last step does not count as training. */
void meter_skip(struct meter *meter);
/* Returns the seconds since the clock was last read, and restarts it. */
double meter_lap(struct meter *meter);
/* Records the results of an update. */
void meter_add(struct meter *meter, const struct device_results *results, double lr);
/* Records the bytes that this rank sent in a step. */
void meter_add_sent(struct meter *meter, const struct comm_sent *sent);
/*
 * Returns the bytes per step since the last call, and begins anew. Without a step since then, as
 * when the results of several come at once, returns the same again.
 */
struct comm_sent meter_take_sent(struct meter *meter);
/*
 * At a step line: updates the speed. Returns the seconds since the previous step line, and how many
 * of them were spent waiting for data.
 */
void meter_line(struct meter *meter, const struct checkpoint_state *state, double *ret_seconds,
		double *ret_wait);
/* Call after writing a step line. */
void meter_reset_skipped(struct meter *meter);
