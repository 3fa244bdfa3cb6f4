/*
 * Sums over the ranks of a training of what lies in device memory. Two implementations: nccl.c loads NCCL at run time, emulation/collective.c
 * takes the trainer's own communication (comm.h) when the work's turn comes; which one a program has is decided when it is linked, as for gpu.h.
 *
 * Ranks queue the same sums in the same order, all on one stream. Belongs to the thread that uses the device.
 */
#ifndef TRAINER_DEVICE_CUDA_COLLECTIVE_H
#define TRAINER_DEVICE_CUDA_COLLECTIVE_H

#include "comm.h"
#include "gpu.h"

struct collective;

/*
 * Connects the GPUs that the ranks have selected; all ranks call it. comm outlives it. -ENODEV: the library is missing; -ECOMM: ranks could not connect. error has
 * DEVICE_ERROR_MAX bytes.
 */
int collective_open(struct comm *comm, struct collective **ret_collective, char *error);
void collective_close(struct collective *collective); /* accepts NULL */
/* Queues values[count] = their sum over the ranks, in place; may be captured. The same bits on every rank. */
int collective_sum(struct collective *collective, float *values, uint64_t count, gpu_stream stream);
/* Text of the last failure. */
const char *collective_error(const struct collective *collective);

#endif
