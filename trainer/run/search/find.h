/*
 * Internal to the batch size search: find_batch.c measures which sizes fit and how fast they are,
 * find_noise.c the gradient noise. For a single device and a run opened dry.
 */
#pragma once

#include "trainer/algorithms/noise.h"
#include "trainer/run/run_internal.h"

/*
 * Number of equal micro-batches, at least two, to split a batch into for the noise measurement; 0
 * if it cannot be split.
 */
uint32_t find_noise_parts(const struct run *run);

struct find_noise_result {
	double scale;   /* as noise_scale() */
	double small;   /* images per micro-batch */
	unsigned steps; /* measured steps */
};

/*
 * Trains some steps from the initial weights, on batches split into the recipe's micro-batches (at
 * least two). -EINTR with an error if stopped.
 */
int find_noise_measure(struct run *run, struct find_noise_result *ret_result);
