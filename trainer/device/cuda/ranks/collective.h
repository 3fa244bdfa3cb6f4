/*
 * All-reduce (sum) of device memory over the ranks of a training. Two implementations, as of gpu.h,
 * chosen by what a program is linked with: nccl.c over NCCL, and tests/gpu/emulation/collective.c
 * over comm.h. Rank and world come from comm.h, which also carries what they need to connect.
 *
 * Operations are collective: every rank queues the same sums in the same order on one stream, where
 * they may be captured. Each rank gets the same bits. Functions return 0 or a negative errno,
 * -ECOMM for what goes wrong between ranks; collective_error() then is a sentence. They belong to
 * the thread that uses the device.
 */
#pragma once

#include "trainer/device/comm/comm.h"
#include "trainer/device/cuda/gpu.h"

struct collective;

/* Elements in device memory. */
struct collective_range {
	void *values;
	size_t count; /* at most COMM_COUNT_MAX */
};

/* How many fp32 elements a sum should have: larger ones take hardly less time per element. */
extern const size_t collective_elements;

/*
 * Loads what is needed, without talking to other ranks. The GPU must have been selected; comm must
 * outlive the result. -ENODEV: a library is missing or too old: error (DEVICE_ERROR_MAX bytes) says
 * which, and how it is installed.
 */
int collective_new(struct comm *comm, struct collective **ret_collective, char *error);
/* Connects the ranks; called by all of them. error as above. */
int collective_connect(struct collective *collective, char *error);
/*
 * Accepts NULL. What was captured must have been freed. Waits for the other ranks, unless something
 * has failed.
 */
void collective_free(struct collective *collective);
const char *collective_name(const struct collective *collective); /* "NCCL 2.28.3" */
const char *collective_error(const struct collective *collective);

/* Queues: adds up ranges[count] over all ranks, in place. */
int collective_sum(struct collective *collective, const struct collective_range *ranges,
		   uint32_t count, enum comm_element element, gpu_stream stream);
/*
 * Waits for an event that was recorded after sums, or until they fail, for instance because a rank
 * on another machine has gone; that a rank on this machine has gone may go unnoticed.
 */
int collective_wait(struct collective *collective, gpu_event event);
