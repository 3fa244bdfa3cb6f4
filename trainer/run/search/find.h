/*
 * Internal to the batch size search: find_batch.c measures which sizes fit and how fast they are,
 * find_noise.c measures the gradient noise scale. Requires a single rank and a run opened with
 * `dry`.
 */
#pragma once

#include "trainer/algorithms/noise.h"
#include "trainer/run/run_internal.h"

/*
 * Number of equal micro-batches, at least two, into which the noise measurement splits a batch; 0
 * if the batch cannot be split.
 */
uint32_t find_noise_parts(const struct run *run);

struct find_noise_result {
	double scale;   /* see noise_scale() */
	double small;   /* images per micro-batch */
	unsigned steps; /* measured steps */
};

/*
 * Trains some steps from the initial weights, with batches split into the recipe's number of
 * micro-batches (at least two). -EINTR with an error if stopped.
 */
int find_noise_measure(struct run *run, struct find_noise_result *ret_result);
