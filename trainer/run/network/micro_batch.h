/*
 * Micro-batches, which are consecutive slices of a batch, and device steps on a single one.
 * Stateless functions.
 */
#pragma once

#include "trainer/device/graph.h"
#include "trainer/device/steps.h"

/* Returns micro-batch number `part`, from 0, of a batch split into slices of `count` samples. */
struct device_batch micro_batch(const struct device_batch *batch, uint32_t classes, uint32_t count,
				uint32_t part);
/*
 * Adds the gradients of a batch to the sums on the device, without an update. Waits until the batch
 * is copied.
 */
int micro_batch_gradients(struct device_graph *graph, const struct device_batch *batch);
/* Queues a forward pass (device_forward()). Waits until the batch is copied. */
int micro_batch_forward(struct device_graph *graph, const struct device_batch *batch,
			bool moves_statistics, uint64_t *ret_step);
