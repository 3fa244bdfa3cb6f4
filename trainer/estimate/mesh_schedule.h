/*
 * When a rank of a mesh computes and when it communicates in one step. Walks the operations of its
 * program once per micro-batch: each takes its time at the roofline. Collectives run beside them,
 * one after the other on each link, as the trainer queues them:
 * - gradients, when backward has completed a bucket (device/buckets.h); the update waits for them
 * - sums of synchronized norms and of tensor groups, for which the next operation waits
 * - train.shard = parameters: values of a block, gathered while the block before it computes
 * - train.shard = optimizer, gradients: values after the update, for which the next step waits
 */
#pragma once

#include "trainer/device/buckets.h"
#include "trainer/device/cuda/lowering/roofline.h"
#include "trainer/estimate/mesh_formulas.h"
#include "trainer/model/model.h"

struct mesh_plan {
	const struct roofline_device *device;
	const struct cuda_program *program; /* a rank's part of a step */
	const struct model *model;
	enum mesh_shard shard;
	struct mesh_ring data, tensor;
	struct mesh_store store;
	uint32_t micro_batches;
	double passes;         /* forward and backward passes over a batch per update */
	double update_seconds; /* of the rank's part; data ranks divide it with the store */
	double other_seconds;  /* of other computation, per step */
};

struct mesh_step {
	double seconds;
	double hidden, exposed; /* seconds of communication beside computation, and instead of it */
	struct mesh_sent sent;  /* bytes of a rank */
};

/* Sets plan->store from the program's parameters. */
void mesh_plan_store(struct mesh_plan *plan, const struct buckets *buckets);
/* Bytes that a tensor group sums after the operation; 0 if none. */
uint64_t mesh_group_bytes(const struct cuda_op *op);
/* -ENOMEM. */
int mesh_schedule(const struct mesh_plan *plan, const struct buckets *buckets,
		  struct mesh_step *ret_step);
