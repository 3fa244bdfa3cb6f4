/* Micro-batches, consecutive slices of a batch, and device steps on one. Stateless functions. */
#pragma once

#include "trainer/device/device.h"

/* Returns micro-batch `part` (from 0) of a batch, of `count` samples. */
struct device_batch micro_batch(const struct device_batch *batch, uint32_t classes, uint32_t count,
				uint32_t part);
/* Adds the gradients of a batch to those summed so far, without an update. Waits for the copy. */
int micro_batch_gradients(struct device_graph *graph, const struct device_batch *batch);
/* Queues a forward pass (device_forward()). Waits for the copy. */
int micro_batch_forward(struct device_graph *graph, const struct device_batch *batch,
			bool moves_statistics, uint64_t *ret_step);
