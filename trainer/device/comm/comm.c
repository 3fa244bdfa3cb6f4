/* Selects the transport, validates arguments, and implements the operations for a single rank. */
#include "format/base/text/sentence.h"
#include "trainer/device/comm/carrier.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int comm_open_alone(struct comm **ret_comm, char *error)
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
static int load_mpi(struct comm **ret_comm, char *error)
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
#define load_mpi comm_mpi_open
#endif

/* The number of ranks that MPI's launcher says; NULL if it does not. */
static const char *mpi_world(void)
{
	const char *size = getenv("OMPI_COMM_WORLD_SIZE");

	return size ? size : getenv("PMI_SIZE");
}

#ifdef HAVE_MPI
static int open_mpi(struct comm **ret_comm, char *error)
{
	const char *size = mpi_world();
	int r = load_mpi(ret_comm, error);

	if (r < 0 || (*ret_comm)->world > 1 || !size || strcmp(size, "1") == 0)
		return r;
	comm_close(*ret_comm);
	return sentence_fail(
		error, COMM_ERROR_MAX, -ENOTSUP,
		"launched as one of %s ranks, but MPI finds none of the others: the launcher is "
		"not of the MPI that this program was built with; torchrun and srun --mpi=none "
		"need no MPI",
		size);
}
#else
static int open_mpi(struct comm **ret_comm, char *error)
{
	const char *size = mpi_world();

	if (size && strcmp(size, "1") == 0)
		return comm_open_alone(ret_comm, error);
	return sentence_fail(error, COMM_ERROR_MAX, -ENOTSUP,
			     "launched as one of %s ranks, but built without MPI: install "
			     "libopenmpi-dev and build again, or launch it by torchrun, or by srun "
			     "--mpi=none",
			     size ? size : "several");
}
#endif

/* A launcher is known by environment variables that are all set. The first row decides. */
static const struct launcher {
	const char *variables[4];
	int (*open)(struct comm **ret_comm, char *error);
} launchers[] = {
	/* torchrun itself may run under mpirun or srun, once on each machine */
	{{"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"}, comm_tcp_open},
	{{"OMPI_COMM_WORLD_SIZE"}, open_mpi}, /* Open MPI's mpirun */
	{{"PMI_SIZE"}, open_mpi},             /* MPICH's, and Slurm's PMI-2 */
	{{"PMIX_RANK"}, open_mpi},            /* any with PMIx */
	{{"RANK", "WORLD_SIZE", "MASTER_ADDR"}, comm_tcp_open},
	{{"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, comm_tcp_open},
};

static bool has_launched(const struct launcher *launcher)
{
	for (size_t i = 0; i < 4 && launcher->variables[i]; i++)
		if (!getenv(launcher->variables[i]))
			return false;
	return true;
}

int comm_open(struct comm **ret_comm, char *error)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (has_launched(&launchers[i]))
			return launchers[i].open(ret_comm, error);
	return comm_open_alone(ret_comm, error);
}

int comm_split(struct comm *comm, unsigned group, struct comm **ret_comm)
{
	int r = comm->ops ? comm->ops->split(comm, group, ret_comm)
			  : comm_open_alone(ret_comm, comm->error);

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

void comm_set_lost(struct comm *comm)
{
	for (; comm && !comm->ended; comm = comm->parent)
		comm->ended = COMM_LOST;
}

bool comm_await_end(struct comm *comm, unsigned seconds)
{
	return comm->ops && comm->ops->await_end(comm, seconds);
}

void comm_abort(struct comm *comm, const char *reason)
{
	if (comm->ops)
		comm->ops->abort(comm, reason);
	_Exit(EXIT_FAILURE);
}
