/*
 * The ranks of a training run: processes that run the same steps, each on its part of every batch,
 * and sum their results.
 *
 * MPI (mpirun, srun) or TCP (torchrun, srun, MASTER_ADDR set by hand) transports host memory:
 * gradients and sums of the CPU backend, and common decisions of the trainer (run_vote()). A
 * backend with device memory takes rank and world from here, passes what its library needs to
 * connect (NCCL's unique id) through comm_broadcast(), and sums on the device itself. A process
 * that no launcher started is a single rank: operations complete immediately.
 *
 * Operations are collective: all ranks call the same ones in the same order with the same sizes,
 * even between a start and its wait. Sums, also scattered ones, are bitwise equal on every rank and
 * across runs of the same world. Owned by main, which opens it first and closes it last; use from
 * one thread. Functions return 0, or a negative errno after setting comm_error().
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMM_ERROR_MAX    1024              /* size of an error string, including the NUL */
#define COMM_REQUESTS_MAX 64                /* started operations in flight at a time */
#define COMM_COUNT_MAX    ((size_t)1 << 30) /* elements of one operation, of all ranks together */

enum comm_element { COMM_FLOAT = 0, COMM_DOUBLE, COMM_BYTE /* gathered only */ };
/* What is started and waited for. */
enum comm_operation { COMM_SUM, COMM_REDUCE_SCATTER, COMM_ALL_GATHER };

/*
 * Bytes that this rank has sent, by a ring's formula for n ranks (Patarasuk and Yuan 2009,
 * "Bandwidth optimal all-reduce algorithms"): (n - 1) / n of the values for a reduce-scatter or an
 * all-gather, and twice that for a sum. Transports may send more, for small values, or less.
 */
struct comm_sent {
	uint64_t sums, reduce_scatters, all_gathers;
};
/* Adds factor x more; factor is 1 or -1. */
void comm_sent_add(struct comm_sent *sent, const struct comm_sent *more, int factor);

/* Whether and how the run has ended before its time. Operations then fail. */
enum comm_end {
	COMM_RUNNING = 0,
	COMM_LOST,    /* another rank went away: the launcher may start the run again */
	COMM_ABORTED, /* another rank called comm_abort(); comm_error() has its reason */
};

struct comm_ops; /* operations of the transport (carrier.h) */

struct comm {
	unsigned rank, world;             /* among all ranks; world 1 for a single rank */
	unsigned local_rank, local_world; /* among the ranks of this machine; selects the GPU */
	unsigned leader;                  /* the rank with local_rank 0 on this machine */
	/*
	 * ranks of this machine, itself included, that may run on this rank's CPUs; 1 if the
	 * launcher binds ranks to disjoint CPUs
	 */
	unsigned sharers;
	cpu_set_t cpus;        /* union of the CPUs that this machine's ranks may run on */
	struct comm_sent sent; /* also of communicators that were split from it */
	enum comm_end ended;   /* MPI ends processes instead */
	bool ended_here;       /* by a rank of this machine, which has written the reason */
	/* private */
	struct comm *parent;        /* from which it was split, or NULL */
	const struct comm_ops *ops; /* NULL for a single rank */
	char error[COMM_ERROR_MAX];
};

/*
 * Connects to the other ranks; call before starting threads. -ENOTSUP if launched by MPI as one of
 * several ranks but built without it; -ETIMEDOUT if other ranks did not come, -ECONNRESET if one
 * went away. error has COMM_ERROR_MAX bytes.
 */
int comm_open(struct comm **ret_comm, char *error);
/*
 * Makes a communicator of the ranks that pass the same group, in the order of their ranks; all
 * ranks call it. Its rank and world count these ranks; the fields of the machine are those of
 * `comm`. Operations of the two are independent of each other. Close it before `comm`.
 */
int comm_split(struct comm *comm, unsigned group, struct comm **ret_comm);
/* Accepts NULL. Waits for the other ranks to close as well. */
void comm_close(struct comm *comm);
/* Error string of the last failure, or "". */
const char *comm_error(const struct comm *comm);

/*
 * Starts to sum values[count] over all ranks, in place; do not touch the values before comm_wait().
 * Operations progress only inside comm_progress(), comm_wait() and the other operations, so call
 * comm_progress() regularly during long computations. -EBUSY if COMM_REQUESTS_MAX are in flight.
 */
int comm_sum_start(struct comm *comm, void *values, size_t count, enum comm_element element,
		   unsigned *ret_request);
/*
 * Starts to sum values[world][count] over all ranks; rank r ends with the sum of part r, in place.
 * The other parts are undefined after comm_wait(). Else as comm_sum_start().
 */
int comm_reduce_scatter_start(struct comm *comm, void *values, size_t count,
			      enum comm_element element, unsigned *ret_request);
/*
 * Starts to send this rank's part of values[world][count] to all others, in place, so that all
 * parts are there after comm_wait(). Else as comm_sum_start().
 */
int comm_all_gather_start(struct comm *comm, void *values, size_t count, enum comm_element element,
			  unsigned *ret_request);
int comm_progress(struct comm *comm);
/*
 * Counts an operation that a backend transports by itself. count as in the function that starts it:
 * of reduce-scatters and all-gathers, of a rank's part; COMM_BYTE with bytes for other elements.
 */
void comm_count_sent(struct comm *comm, enum comm_operation operation, size_t count,
		     enum comm_element element);
int comm_wait(struct comm *comm, unsigned request);
/* Starts a sum and waits for it. */
int comm_sum(struct comm *comm, void *values, size_t count, enum comm_element element);

/* Sends bytes[size] of rank `root` to all others. */
int comm_broadcast(struct comm *comm, void *bytes, size_t size, unsigned root);
/*
 * Gathers mine[size] of every rank on all ranks, in order: ret_all[world][size]. Also a barrier.
 * size below 2^31.
 */
int comm_gather(struct comm *comm, const void *mine, size_t size, void *ret_all);
/*
 * For a backend that learns by itself that another rank went away. Also ends the communicators from
 * which this one was split. No effect if comm.h knows.
 */
void comm_set_lost(struct comm *comm);
/* Waits for another rank to end the run. False if the time is over. */
bool comm_await_end(struct comm *comm, unsigned seconds);
/*
 * Ends every rank; this one exits with status 1. For failures that other ranks cannot detect; write
 * the error message first. reason: the same message, for ranks on other machines.
 */
_Noreturn void comm_abort(struct comm *comm, const char *reason);
