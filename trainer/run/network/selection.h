/*
 * The samples of a batch that train.selective_backprop keeps (select.h). Only the functions below
 * write the struct.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/network/network.h"

/* Arrays have [select_count()] elements, except `losses`; they are NULL if unused. */
struct selection {
	struct run_context *ctx;
	const struct data *data;
	struct network *network;
	float *losses;   /* of all samples of the batch */
	uint32_t *picks; /* indices of the kept samples */
	void *images; /* the kept images; must stay unchanged until the copy of `ticket` is done */
	size_t size;  /* capacity of images in bytes */
	int32_t *labels;
	float *targets; /* with data.target: [kept samples][classes] */
	struct deferred *deferred;
	uint64_t ticket; /* last copy of the kept samples to the device; 0 if none is pending */
};

/*
 * Allocates the arrays for batches of the recipe's size; -EINVAL if the kept samples cannot be
 * divided into micro-batches.
 */
int selection_open(struct selection *selection);
void selection_close(struct selection *selection);
/* Plans network->selected for the image size of network->train. */
int selection_plan(struct selection *selection);
/*
 * Computes the losses of all samples. The batch's memory may be released once the copy of
 * *ret_ticket is done. Returns the device's error code.
 */
int selection_compute_losses(struct selection *selection, const struct device_batch *batch,
			     uint64_t *ret_ticket);
/* Waits until the device has copied the samples kept last. Returns the device's error code. */
int selection_wait(struct selection *selection);
/* Reduces the batch of a step (from 1) to the samples drawn by their losses. */
int selection_apply(struct selection *selection, uint64_t step, struct device_batch *batch);
/*
 * Call after the kept samples were queued; their memory is reused once the copy of `ticket` is
 * done.
 */
void selection_queued(struct selection *selection, uint64_t ticket);
