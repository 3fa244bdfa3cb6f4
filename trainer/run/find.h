/*
 * Between the files that look for a batch size: find_batch.c, which sizes fit and how fast they
 * are, and find_noise.c, what gradients say of them. For one device; a run that was opened dry.
 */
#pragma once

#include "trainer/algorithms/noise.h"
#include "trainer/run/run.h"

/*
 * In how many micro-batches of one size, at least two, a batch is to be cut whose noise is
 * measured; 0: it cannot be.
 */
uint32_t find_noise_parts(const struct run *run);

struct find_noise_result {
	double scale;   /* as noise_scale() */
	double small;   /* images of a micro-batch */
	unsigned steps; /* that were measured */
};

/*
 * Trains for some steps from the initial weights, on batches that are cut into the recipe's
 * micro-batches, two or more. -EINTR with run->error: it was stopped.
 */
int find_noise_measure(struct run *run, struct find_noise_result *ret_result);
