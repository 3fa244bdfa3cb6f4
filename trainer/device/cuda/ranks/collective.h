/*
 * Sums of device memory over ranks, and exchange of their parts. Two implementations, selected at
 * link time as for gpu.h: nccl.c uses NCCL, tests/gpu/emulation/collective.c uses comm.h. comm.h
 * provides rank and world size, and transports the data that ranks need to connect.
 *
 * Operations are collective: every rank queues the same ones in the same order on one stream. They
 * may be captured. All ranks receive the same bits. Functions return 0 or a negative errno, -ECOMM
 * for failures between ranks; collective_error() then returns a sentence. Objects belong to the
 * thread that uses the device.
 */
#pragma once

#include "trainer/device/comm/comm.h"
#include "trainer/device/cuda/conv.h"
#include "trainer/device/cuda/gpu.h"

struct collective;

/* A range of elements in device memory. */
struct collective_range {
	void *values;
	size_t count; /* at most COMM_COUNT_MAX */
};

/* Suggested number of fp32 elements per sum; larger sums are hardly more efficient. */
extern const size_t collective_elements;
/*
 * The one of NCCL: Li et al. 2020, "PyTorch Distributed", found buckets of 10 to 25 MB fastest for
 * ResNet-50 over NCCL. This is the smallest of them, because the all-reduce of the last bucket does
 * not overlap with backward.
 */
#define COLLECTIVE_NCCL_ELEMENTS ((size_t)10 << 18)

/*
 * Loads the library, without contacting other ranks. Select the GPU first; comm must outlive the
 * result. -ENODEV if the library is missing or too old: error (DEVICE_ERROR_MAX bytes) says which,
 * and how to install it.
 */
int collective_new(struct comm *comm, struct collective **ret_collective, char *error);
/* Connects the ranks; all of them must call it. error as in collective_new(). */
int collective_connect(struct collective *collective, char *error);
/*
 * Accepts NULL. Free captured graphs first. Waits for the other ranks unless there was a failure.
 */
void collective_free(struct collective *collective);
const char *collective_name(const struct collective *collective); /* "NCCL 2.28.3" */
const char *collective_error(const struct collective *collective);

/*
 * Queues the all-reduce of ranges[count], in place, and counts its bytes (comm_count_sent()). So
 * captured sums are counted once, and who replays them counts them again.
 */
int collective_sum(struct collective *collective, const struct collective_range *ranges,
		   uint32_t count, enum comm_element element, gpu_stream stream);
/* Queues the all-reduce of activations or their gradients, in place. */
int collective_sum_activations(struct collective *collective, void *values, size_t count,
			       enum cuda_element element, gpu_stream stream);
/*
 * collective_wait() of `collective` also returns when a sum of `other` fails, which must outlive
 * its use.
 */
void collective_watch(struct collective *collective, struct collective *other);
/*
 * Queues the sum of values[world][count], of which rank r receives part r in its place; the other
 * parts are undefined then.
 */
int collective_reduce_scatter(struct collective *collective, void *values, size_t count,
			      enum comm_element element, gpu_stream stream);
/* Queues that each rank's part of values[world][count] is sent to all others, in place. */
int collective_all_gather(struct collective *collective, void *values, size_t count,
			  enum comm_element element, gpu_stream stream);
/*
 * Waits for an event recorded after sums. Returns early if a sum fails, e.g. because a rank on
 * another machine died, or one on this machine and comm.h says so, which MPI does not.
 */
int collective_wait(struct collective *collective, gpu_event event);
