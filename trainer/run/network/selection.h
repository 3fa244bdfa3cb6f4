/*
 * The samples that train.selective_backprop keeps of a batch (select.h). Written by these functions
 * only.
 */
#pragma once

#include "trainer/run/network/network.h"

/* Arrays are [select_count()] but for the losses, and NULL if unused. */
struct selection {
	struct run_context *ctx;
	const struct data *data;
	struct network *network;
	float *losses;   /* of all samples of the batch */
	uint32_t *picks; /* indices of the kept samples */
	void *images;    /* copies; in use until the copy of `ticket` is done */
	size_t size;     /* capacity of images in bytes */
	int32_t *labels;
	struct deferred *deferred;
	uint64_t ticket; /* 0 if no copy is under way */
};

/* Allocates for batches of the recipe's size; -EINVAL if it cannot divide them. */
int selection_open(struct selection *selection);
void selection_close(struct selection *selection);
/* Plans network->selected for the size of network->train. */
int selection_plan(struct selection *selection);
/*
 * Computes the losses of all samples; the batch's memory may be released after the copy of
 * ret_ticket. Returns the device's code.
 */
int selection_compute_losses(struct selection *selection, const struct device_batch *batch,
			     uint64_t *ret_ticket);
/* Waits for the copy of the samples kept last. Returns the device's code. */
int selection_wait(struct selection *selection);
/* Reduces the batch of a step (from 1) to the samples that it draws by their losses. */
int selection_apply(struct selection *selection, uint64_t step, struct device_batch *batch);
/* The kept samples were queued; their memory may be used after the copy of `ticket`. */
void selection_queued(struct selection *selection, uint64_t ticket);
