/*
 * Augmentation that the device applies to training batches: ColOut (data.colout), mixup and CutMix
 * (train.mixup, train.cutmix). Draws depend only on seed, step and index in the global batch. Only
 * the functions below write the struct.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/network/network.h"

/* Arrays are NULL if unused. */
struct augment {
	struct run_context *ctx;
	const struct data *data;
	/* mixup and CutMix: [data_train_share()] each, for this rank's samples */
	struct device_blend *blends;
	int32_t *labels2;
	float *shares;
	float *targets;  /* with data.target, instead of labels: [data_train_share()][classes] */
	uint32_t *lines; /* ColOut: kept rows, then kept columns */
};

/* Allocates the arrays for batches of the recipe's size; -EINVAL if samples cannot be paired. */
int augment_open(struct augment *augment);
void augment_close(struct augment *augment);
/* Applies ColOut to the batch of a step (from 1); all passes over the batch use the same lines. */
int augment_colout(struct augment *augment, uint64_t step, const struct run_graph *graph,
		   struct device_batch *batch);
/* Applies mixup and CutMix to the batch, like augment_colout(). */
void augment_mix(struct augment *augment, uint64_t step, const struct run_graph *graph,
		 struct device_batch *batch);
