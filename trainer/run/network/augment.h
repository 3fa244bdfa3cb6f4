/*
 * Augmentation of training batches that the device applies: ColOut (data.colout), and mixup and
 * CutMix (train.mixup, train.cutmix). Draws depend only on seed, step and position in the global
 * batch. Written by these functions only.
 */
#pragma once

#include "trainer/run/network/network.h"

/* Arrays are NULL if unused. */
struct augment {
	struct run_context *ctx;
	const struct data *data;
	/* mixup and CutMix: [data_train_share()] each, for this rank's share of the batch */
	struct device_blend *blends;
	int32_t *labels2;
	float *shares;
	uint32_t *lines; /* ColOut: kept rows, then kept columns */
};

/* Allocates for batches of the recipe's size; -EINVAL if samples cannot be paired. */
int augment_open(struct augment *augment);
void augment_close(struct augment *augment);
/* Applies ColOut to the batch of a step (from 1), for a training graph; the same in all passes. */
int augment_colout(struct augment *augment, uint64_t step, const struct run_graph *graph,
		   struct device_batch *batch);
/* Applies mixup and CutMix, likewise. */
void augment_mix(struct augment *augment, uint64_t step, const struct run_graph *graph,
		 struct device_batch *batch);
