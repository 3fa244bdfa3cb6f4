/*
 * The ranks of a training: processes that run the same steps, each on its share of every batch, and
 * add up what they found.
 *
 * MPI launches them (mpirun, srun) and carries what is in the host's memory: gradients and sums of
 * the CPU backend, the trainer's own agreements. A backend whose tensors live elsewhere takes rank
 * and world from here, passes what its library needs to connect (NCCL's unique id) through
 * comm_broadcast(), and adds on the device; it implements nothing of this header. A process that
 * was not launched by MPI, or a build without it, is one rank of one: then every operation is done
 * at once and no part of MPI is touched.
 *
 * Operations are collective: all ranks call the same ones in the same order with the same sizes,
 * also across a start and its wait. Sums have the same bits on every rank, and from run to run of
 * the same world. Owned by main, which opens it first and closes it last; used by one thread.
 * Functions return 0 or a negative errno; comm_error() then is a sentence.
 */
#pragma once

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#define COMM_ERROR_MAX    1024              /* bytes of an error text, terminator included */
#define COMM_REQUESTS_MAX 64                /* sums under way at a time */
#define COMM_COUNT_MAX    ((size_t)1 << 30) /* elements of one sum */

enum comm_element { COMM_FLOAT = 0, COMM_DOUBLE = 1 };

struct comm_ops; /* of comm.c and what carries the ranks */

struct comm {
	unsigned rank, world;             /* among all; world 1: alone */
	unsigned local_rank, local_world; /* among the ranks of this machine: which GPU is whose */
	unsigned leader;                  /* rank whose local_rank is 0 on this machine */
	/*
	 * ranks of this machine that may run on this rank's CPUs, itself included; 1 if the
	 * launcher bound each to its own
	 */
	unsigned sharers;
	cpu_set_t cpus; /* where the ranks of this machine may run, taken together */
	/* private */
	const struct comm_ops *ops; /* NULL: nobody to talk to */
	char error[COMM_ERROR_MAX];
};

/*
 * Connects to the other ranks; to be called before threads are started. -ENOTSUP: launched as one
 * of several ranks, but built without MPI. error has COMM_ERROR_MAX bytes.
 */
int comm_open(struct comm **ret_comm, char *error);
/* Accepts NULL. Waits for the other ranks to close too. */
void comm_close(struct comm *comm);
/* Text of the last failure, "" when there was none. */
const char *comm_error(const struct comm *comm);

/*
 * Starts to add values[count] over all ranks, in place; the values are not to be touched before
 * comm_wait(). Sums progress only inside comm_progress(), comm_wait() and the other operations, so
 * long computations in between should call comm_progress() now and then. -EBUSY: COMM_REQUESTS_MAX
 * are under way.
 */
int comm_sum_start(struct comm *comm, void *values, size_t count, enum comm_element element,
		   unsigned *ret_request);
int comm_progress(struct comm *comm);
int comm_wait(struct comm *comm, unsigned request);
/* Both at once. */
int comm_sum(struct comm *comm, void *values, size_t count, enum comm_element element);

/* bytes[size] of rank `root` to all others. */
int comm_broadcast(struct comm *comm, void *bytes, size_t size, unsigned root);
/*
 * mine[size] of every rank, in order, to all: ret_all[world][size]. Also a barrier. size below
 * 2^31.
 */
int comm_gather(struct comm *comm, const void *mine, size_t size, void *ret_all);
/*
 * Ends every rank, this one with exit status 1. For failures that the others cannot know of, after
 * the message has been written.
 */
_Noreturn void comm_abort(struct comm *comm);
