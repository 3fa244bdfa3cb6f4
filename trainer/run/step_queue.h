/*
 * Queue of device steps whose results were not collected yet, oldest first. An update with several
 * micro-batches takes as many device steps; the queue combines their results. Only the functions
 * below write the struct.
 */
#pragma once

#include "trainer/device/graph.h"
#include "trainer/device/steps.h"

#include <stdbool.h>
#include <stdint.h>

enum { STEP_QUEUE_MAX = 8 };

struct pending_step {
	struct device_graph *graph;
	/* step: the update to which the device step contributes */
	uint64_t device_step, step;
	double lr;
	bool last;  /* the device step completes the update */
	bool again; /* second pass over the same batch, whose loss is not reported */
};

struct step_queue {
	struct pending_step pending[STEP_QUEUE_MAX];
	unsigned count;
	/* results of the current update's device steps collected so far */
	struct device_results sums;
};

/* Requires count < STEP_QUEUE_MAX. */
void step_queue_push(struct step_queue *queue, const struct pending_step *pending);
/* Removes the oldest step. */
struct pending_step step_queue_pop(struct step_queue *queue);
/*
 * Combines the results of a device step with those of the earlier micro-batches of its update.
 * Returns true, with the combined results in *results, if the update is complete.
 */
bool step_queue_combine(struct step_queue *queue, const struct pending_step *pending,
			struct device_results *results);
/* Returns the last update whose results were all collected. step: the last queued update. */
uint64_t step_queue_collected(const struct step_queue *queue, uint64_t step);
