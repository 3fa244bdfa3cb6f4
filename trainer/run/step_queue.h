/*
 * Device steps that are queued and whose results are still due, oldest first. An update of several
 * micro-batches takes as many device steps; their results are combined here. Written by these
 * functions only.
 */
#pragma once

#include "trainer/device/device.h"

#include <stdbool.h>
#include <stdint.h>

enum { STEP_QUEUE_MAX = 8 };

struct pending_step {
	struct device_graph *graph;
	uint64_t device_step, step; /* step: the update that the device step contributes to */
	double lr;
	bool last;  /* this step makes the update */
	bool again; /* second pass over the same batch; its loss is not reported */
};

struct step_queue {
	struct pending_step pending[STEP_QUEUE_MAX];
	unsigned count;
	/* results of the micro-batches so far of the update whose results are being collected */
	struct device_results sums;
};

/* There is room: count < STEP_QUEUE_MAX. */
void step_queue_push(struct step_queue *queue, const struct pending_step *pending);
/* Removes the oldest step. */
struct pending_step step_queue_pop(struct step_queue *queue);
/*
 * Combines the results of a step with those of the earlier micro-batches of its update. True if
 * *results are those of the whole update.
 */
bool step_queue_combine(struct step_queue *queue, const struct pending_step *pending,
			struct device_results *results);
/* The last step whose results were collected, of `step` that were queued. */
uint64_t step_queue_collected(const struct step_queue *queue, uint64_t step);
