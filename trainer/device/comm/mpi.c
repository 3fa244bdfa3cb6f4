/* Transport of ranks over MPI. */
#include "format/base/text/sentence.h"
#include "trainer/device/comm/carrier.h"

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BROADCAST_BYTES ((size_t)1 << 30) /* limit per MPI call, since MPI counts in int */

struct mpi_request {
	bool used;
	MPI_Request request; /* MPI_REQUEST_NULL when complete */
	/* of a reduce-scatter: where MPI writes this rank's part, and where it belongs */
	void *written, *part;
	size_t size; /* of the part in bytes */
};

struct comm_mpi {
	struct comm base;
	MPI_Comm ranks;
	bool split; /* from another communicator */
	struct mpi_request requests[COMM_REQUESTS_MAX];
};

static int mpi_fail(struct comm *comm, int status, const char *what)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0;

	MPI_Error_string(status, text, &length);
	return sentence_fail(comm->error, COMM_ERROR_MAX, -EIO,
			     "rank %u of %u: MPI could not %s: %s", comm->rank, comm->world, what,
			     text);
}

static void mpi_close(struct comm *comm)
{
	struct comm_mpi *mpi = (struct comm_mpi *)comm;

	MPI_Comm_free(&mpi->ranks);
	if (!mpi->split)
		MPI_Finalize();
	free(mpi);
}

static MPI_Datatype mpi_type(enum comm_element element)
{
	return element == COMM_FLOAT ? MPI_FLOAT : element == COMM_DOUBLE ? MPI_DOUBLE : MPI_BYTE;
}

static int mpi_start(struct comm *comm, enum comm_operation operation, void *values, size_t count,
		     enum comm_element element, unsigned *ret_request)
{
	struct comm_mpi *mpi = (struct comm_mpi *)comm;
	struct mpi_request *request = mpi->requests;
	MPI_Datatype type = mpi_type(element);
	int n = (int)count, status;

	while (request < mpi->requests + COMM_REQUESTS_MAX && request->used)
		request++;
	if (request == mpi->requests + COMM_REQUESTS_MAX)
		return sentence_fail(comm->error, COMM_ERROR_MAX, -EBUSY,
				     "%d sums are under way already", COMM_REQUESTS_MAX);
	request->written = NULL;
	if (operation == COMM_SUM) {
		status = MPI_Iallreduce(MPI_IN_PLACE, values, n, type, MPI_SUM, mpi->ranks,
					&request->request);
	} else if (operation == COMM_REDUCE_SCATTER) {
		/* in place means that MPI writes the part where the values begin */
		request->written = values;
		request->size = count * comm_element_size(element);
		request->part = (char *)values + comm->rank * request->size;
		status = MPI_Ireduce_scatter_block(MPI_IN_PLACE, values, n, type, MPI_SUM,
						   mpi->ranks, &request->request);
	} else {
		status = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, n, type,
					mpi->ranks, &request->request);
	}
	if (status != MPI_SUCCESS)
		return mpi_fail(comm, status, "start a sum");
	request->used = true;
	*ret_request = (unsigned)(request - mpi->requests);
	return 0;
}

/* Tests one request; this makes MPI progress all of them. */
static int mpi_progress(struct comm *comm)
{
	struct comm_mpi *mpi = (struct comm_mpi *)comm;

	for (unsigned i = 0; i < COMM_REQUESTS_MAX; i++) {
		int done;

		if (!mpi->requests[i].used || mpi->requests[i].request == MPI_REQUEST_NULL)
			continue;
		int status = MPI_Test(&mpi->requests[i].request, &done, MPI_STATUS_IGNORE);
		return status == MPI_SUCCESS ? 0 : mpi_fail(comm, status, "carry out a sum");
	}
	return 0;
}

static int mpi_wait(struct comm *comm, unsigned number)
{
	struct mpi_request *request = &((struct comm_mpi *)comm)->requests[number];
	int status = MPI_Wait(&request->request, MPI_STATUS_IGNORE);

	request->used = false;
	if (status == MPI_SUCCESS && request->written)
		memmove(request->part, request->written, request->size);
	return status == MPI_SUCCESS ? 0 : mpi_fail(comm, status, "carry out a sum");
}

static int mpi_broadcast(struct comm *comm, void *bytes, size_t size, unsigned root)
{
	struct comm_mpi *mpi = (struct comm_mpi *)comm;

	for (size_t at = 0; at < size; at += BROADCAST_BYTES) {
		size_t part = size - at < BROADCAST_BYTES ? size - at : BROADCAST_BYTES;
		int status =
			MPI_Bcast((char *)bytes + at, (int)part, MPI_BYTE, (int)root, mpi->ranks);

		if (status != MPI_SUCCESS)
			return mpi_fail(comm, status, "broadcast");
	}
	return 0;
}

static int mpi_gather(struct comm *comm, const void *mine, size_t size, void *ret_all)
{
	struct comm_mpi *mpi = (struct comm_mpi *)comm;
	int status =
		MPI_Allgather(mine, (int)size, MPI_BYTE, ret_all, (int)size, MPI_BYTE, mpi->ranks);

	return status == MPI_SUCCESS ? 0 : mpi_fail(comm, status, "gather");
}

/* When another rank ends the run, MPI ends this process, by a signal. */
static bool mpi_await_end(struct comm *comm, unsigned seconds)
{
	return sleep(seconds) > 0;
}

static void mpi_abort(struct comm *comm, const char *reason)
{
	MPI_Abort(((struct comm_mpi *)comm)->ranks, EXIT_FAILURE);
}

static int mpi_split(struct comm *comm, unsigned group, struct comm **ret_comm);

static const struct comm_ops mpi_ops = {
	.close = mpi_close,
	.split = mpi_split,
	.start = mpi_start,
	.progress = mpi_progress,
	.wait = mpi_wait,
	.broadcast = mpi_broadcast,
	.gather = mpi_gather,
	.await_end = mpi_await_end,
	.abort = mpi_abort,
};

/* Takes over `ranks`. NULL if out of memory. */
static struct comm_mpi *mpi_new(MPI_Comm ranks)
{
	struct comm_mpi *mpi = calloc(1, sizeof(*mpi));
	int rank = 0, world = 1;

	if (!mpi)
		return NULL;
	for (unsigned i = 0; i < COMM_REQUESTS_MAX; i++)
		mpi->requests[i].request = MPI_REQUEST_NULL;
	mpi->ranks = ranks;
	MPI_Comm_set_errhandler(mpi->ranks, MPI_ERRORS_RETURN);
	MPI_Comm_rank(mpi->ranks, &rank);
	MPI_Comm_size(mpi->ranks, &world);
	mpi->base.rank = (unsigned)rank;
	mpi->base.world = (unsigned)world;
	mpi->base.ops = &mpi_ops;
	return mpi;
}

static int mpi_split(struct comm *comm, unsigned group, struct comm **ret_comm)
{
	MPI_Comm ranks;
	int status = MPI_Comm_split(((struct comm_mpi *)comm)->ranks, (int)group, (int)comm->rank,
				    &ranks);

	if (status != MPI_SUCCESS)
		return mpi_fail(comm, status, "split the ranks");
	struct comm_mpi *mpi = mpi_new(ranks);
	if (!mpi) {
		MPI_Comm_free(&ranks);
		return sentence_fail(comm->error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	}
	mpi->split = true;
	*ret_comm = &mpi->base;
	return 0;
}

/*
 * Collects the CPU affinities of this machine's ranks: computes their union, and the number of
 * ranks that may run on this rank's CPUs.
 */
static int compare_affinities(struct comm *comm, MPI_Comm local)
{
	cpu_set_t *sets = calloc(comm->local_world, sizeof(*sets)), common;

	if (!sets)
		return MPI_ERR_NO_MEM;
	if (sched_getaffinity(0, sizeof(*sets), &sets[comm->local_rank]) < 0)
		CPU_ZERO(&sets[comm->local_rank]);
	int status = MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sets, sizeof(*sets),
				   MPI_BYTE, local);
	comm->sharers = 0;
	for (unsigned i = 0; i < comm->local_world; i++) {
		CPU_OR(&comm->cpus, &comm->cpus, &sets[i]);
		CPU_AND(&common, &sets[i], &sets[comm->local_rank]);
		comm->sharers += i == comm->local_rank || CPU_COUNT(&common);
	}
	free(sets);
	return status;
}

/* Sets the fields of struct comm that describe the ranks of this machine. */
static int find_place(struct comm *comm, MPI_Comm ranks)
{
	MPI_Comm local;
	int rank = 0, world = 1;

	comm->leader = comm->rank;
	int status = MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, (int)comm->rank,
					 MPI_INFO_NULL, &local);
	if (status != MPI_SUCCESS)
		return status;
	MPI_Comm_rank(local, &rank);
	MPI_Comm_size(local, &world);
	comm->local_rank = (unsigned)rank;
	comm->local_world = (unsigned)world;
	status = MPI_Bcast(&comm->leader, 1, MPI_UNSIGNED, 0, local);
	if (status == MPI_SUCCESS)
		status = compare_affinities(comm, local);
	MPI_Comm_free(&local);
	return status;
}

int comm_mpi_open(struct comm **ret_comm, char *error)
{
	MPI_Comm ranks;
	int provided;

	/*
	 * A waiting rank yields its CPU to the loader and to ranks that share it. By default Open
	 * MPI spins unless it knows that there are more ranks than CPUs; with two ranks on a
	 * two-CPU machine under light other load, spinning reduced the step rate by 25 %.
	 */
	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
	/*
	 * Until a communicator has MPI_ERRORS_RETURN, MPI aborts the process on an error and prints
	 * its own message.
	 */
	MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
	MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
	struct comm_mpi *mpi = mpi_new(ranks);
	if (!mpi)
		return sentence_fail(error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	int status = find_place(&mpi->base, mpi->ranks);
	if (status != MPI_SUCCESS) {
		int r = mpi_fail(&mpi->base, status, "find the ranks of this machine");

		sentence_write(error, COMM_ERROR_MAX, "%s", mpi->base.error);
		mpi_close(&mpi->base);
		return r;
	}
	*ret_comm = &mpi->base;
	return 0;
}
