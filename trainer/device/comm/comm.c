/* Selects the transport, validates arguments, and implements the operations for a single rank. */
#include "format/base/text/sentence.h"
#include "trainer/device/comm/carrier.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * True if a launcher's environment is set: Open MPI's mpirun, then MPICH's and Slurm's (PMI), then
 * any launcher with PMIx.
 */
static bool launched(void)
{
	return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

static int open_alone(struct comm **ret_comm, char *error)
{
	struct comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return sentence_fail(error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	comm->world = comm->local_world = comm->sharers = 1;
	sched_getaffinity(0, sizeof(comm->cpus), &comm->cpus);
	*ret_comm = comm;
	return 0;
}

#ifdef MPI_MODULE
/*
 * The module is mpi.c, not linked against MPI: it uses the libmpi that is loaded before it with
 * RTLD_GLOBAL, as Open MPI's own modules do. 40 is the soname version of Open MPI 3, 4 and 5.
 */
static int open_mpi(struct comm **ret_comm, char *error)
{
	void *mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
	void *module = mpi ? dlopen(MPI_MODULE, RTLD_NOW | RTLD_LOCAL) : NULL;
	__typeof__(&comm_mpi_open) open =
		module ? (__typeof__(open))dlsym(module, "comm_mpi_open") : NULL;

	if (open)
		return open(ret_comm, error);
	return sentence_fail(error, COMM_ERROR_MAX, -ENOTSUP,
			     "launched as a rank, but MPI cannot be loaded: %s. Install Open MPI 4 "
			     "(libopenmpi3), or run it without mpirun",
			     dlerror());
}
#elif defined(HAVE_MPI)
#define open_mpi comm_mpi_open
#endif

int comm_open(struct comm **ret_comm, char *error)
{
	const char *size = getenv("OMPI_COMM_WORLD_SIZE");

	if (!launched())
		return open_alone(ret_comm, error);
	if (!size)
		size = getenv("PMI_SIZE");
#ifdef HAVE_MPI
	int r = open_mpi(ret_comm, error);

	if (r < 0 || (*ret_comm)->world > 1 || !size || strcmp(size, "1") == 0)
		return r;
	comm_close(*ret_comm);
	return sentence_fail(
		error, COMM_ERROR_MAX, -ENOTSUP,
		"launched as one of %s ranks, but MPI finds none of the others: the launcher "
		"is not of the MPI that this program was built with",
		size);
#else
	if (size && strcmp(size, "1") == 0)
		return open_alone(ret_comm, error);
	return sentence_fail(
		error, COMM_ERROR_MAX, -ENOTSUP,
		"launched as one of %s ranks, but built without MPI: install libopenmpi-dev "
		"and build again, or run it without mpirun",
		size ? size : "several");
#endif
}

int comm_split(struct comm *comm, unsigned group, struct comm **ret_comm)
{
	int r = comm->ops ? comm->ops->split(comm, group, ret_comm)
			  : open_alone(ret_comm, comm->error);

	if (r < 0)
		return r;
	(*ret_comm)->parent = comm;
	(*ret_comm)->local_rank = comm->local_rank;
	(*ret_comm)->local_world = comm->local_world;
	(*ret_comm)->leader = comm->leader;
	(*ret_comm)->sharers = comm->sharers;
	(*ret_comm)->cpus = comm->cpus;
	return 0;
}

void comm_close(struct comm *comm)
{
	if (comm && comm->ops)
		comm->ops->close(comm);
	else
		free(comm);
}

const char *comm_error(const struct comm *comm)
{
	return comm->error;
}

size_t comm_element_size(enum comm_element element)
{
	return element == COMM_FLOAT ? sizeof(float) : element == COMM_DOUBLE ? sizeof(double) : 1;
}

void comm_sent_add(struct comm_sent *sent, const struct comm_sent *more, int factor)
{
	/* unsigned arithmetic also subtracts */
	sent->sums += (uint64_t)factor * more->sums;
	sent->reduce_scatters += (uint64_t)factor * more->reduce_scatters;
	sent->all_gathers += (uint64_t)factor * more->all_gathers;
}

void comm_count_sent(struct comm *comm, enum comm_operation operation, size_t count,
		     enum comm_element element)
{
	uint64_t bytes = (uint64_t)count * comm_element_size(element);
	struct comm_sent more = {0};

	if (operation == COMM_SUM)
		more.sums = 2 * bytes * (comm->world - 1) / comm->world;
	else if (operation == COMM_REDUCE_SCATTER)
		more.reduce_scatters = bytes * (comm->world - 1);
	else
		more.all_gathers = bytes * (comm->world - 1);
	for (; comm; comm = comm->parent)
		comm_sent_add(&comm->sent, &more, 1);
}

/* parts: how often values[count] are there. */
static int comm_start(struct comm *comm, enum comm_operation operation, void *values, size_t count,
		      unsigned parts, enum comm_element element, unsigned *ret_request)
{
	*ret_request = 0;
	if (count > COMM_COUNT_MAX / parts)
		return sentence_fail(comm->error, COMM_ERROR_MAX, -EINVAL,
				     "%u times %zu elements are above the %zu of one operation",
				     parts, count, COMM_COUNT_MAX);
	if (!comm->ops)
		return 0;
	int r = comm->ops->start(comm, operation, values, count, element, ret_request);
	if (r == 0)
		comm_count_sent(comm, operation, count, element);
	return r;
}

int comm_sum_start(struct comm *comm, void *values, size_t count, enum comm_element element,
		   unsigned *ret_request)
{
	return comm_start(comm, COMM_SUM, values, count, 1, element, ret_request);
}

int comm_reduce_scatter_start(struct comm *comm, void *values, size_t count,
			      enum comm_element element, unsigned *ret_request)
{
	return comm_start(comm, COMM_REDUCE_SCATTER, values, count, comm->world, element,
			  ret_request);
}

int comm_all_gather_start(struct comm *comm, void *values, size_t count, enum comm_element element,
			  unsigned *ret_request)
{
	return comm_start(comm, COMM_ALL_GATHER, values, count, comm->world, element, ret_request);
}

int comm_progress(struct comm *comm)
{
	return comm->ops ? comm->ops->progress(comm) : 0;
}

int comm_wait(struct comm *comm, unsigned request)
{
	return comm->ops ? comm->ops->wait(comm, request) : 0;
}

int comm_sum(struct comm *comm, void *values, size_t count, enum comm_element element)
{
	unsigned request;
	int r = comm_sum_start(comm, values, count, element, &request);

	return r < 0 ? r : comm_wait(comm, request);
}

int comm_broadcast(struct comm *comm, void *bytes, size_t size, unsigned root)
{
	return comm->ops ? comm->ops->broadcast(comm, bytes, size, root) : 0;
}

int comm_gather(struct comm *comm, const void *mine, size_t size, void *ret_all)
{
	if (comm->ops)
		return comm->ops->gather(comm, mine, size, ret_all);
	memcpy(ret_all, mine, size);
	return 0;
}

void comm_abort(struct comm *comm)
{
	if (comm->ops)
		comm->ops->abort(comm);
	_Exit(EXIT_FAILURE);
}
