/*
 * Implements collective.h with NCCL. Declares NCCL's interface itself, from the documentation of
 * NCCL 2; these functions and values have been stable since 2.13. Building thus needs neither
 * NCCL's header nor its library, and the trainer starts without NCCL.
 */
#include "trainer/device/cuda/ranks/collective.h"

#include "trainer/device/cuda/load.h"
#include "trainer/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NCCL_NAME "libnccl.so.2"
#define NCCL_PACKAGE                                                                               \
	"NCCL 2 (libnccl2 of NVIDIA's repository, or nvidia-nccl-cu13 of PyPI, which has it in "   \
	"nvidia/nccl/lib)"
/* First version whose ncclGetLastError() gives details; capturing needs only 2.9. */
#define NCCL_VERSION_MIN 21300

#define WAIT_NS 50000 /* between two polls: far below a step, and cheap for a CPU */

typedef struct ncclComm *ncclComm_t;

typedef struct {
	char internal[128];
} ncclUniqueId;

enum { NCCL_SUCCESS = 0, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 }; /* ncclResult_t */
/* ncclDataType_t */
enum { NCCL_UINT8 = 1, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0 }; /* ncclRedOp_t */

/* Enumerations are passed as int. */
struct nccl {
	int (*ncclGetVersion)(int *version);
	int (*ncclGetUniqueId)(ncclUniqueId *id);
	int (*ncclCommInitRank)(ncclComm_t *comm, int world, ncclUniqueId id, int rank);
	int (*ncclAllReduce)(const void *from, void *to, size_t count, int type, int operation,
			     ncclComm_t comm, gpu_stream stream);
	int (*ncclReduceScatter)(const void *from, void *to, size_t count, int type, int operation,
				 ncclComm_t comm, gpu_stream stream);
	int (*ncclAllGather)(const void *from, void *to, size_t count, int type, ncclComm_t comm,
			     gpu_stream stream);
	int (*ncclGroupStart)(void);
	int (*ncclGroupEnd)(void);
	int (*ncclCommGetAsyncError)(ncclComm_t comm, int *status);
	int (*ncclCommAbort)(ncclComm_t comm);
	int (*ncclCommDestroy)(ncclComm_t comm);
	const char *(*ncclGetErrorString)(int status);
	const char *(*ncclGetLastError)(ncclComm_t comm);
};

struct collective {
	struct nccl nccl;
	struct comm *comm;
	ncclComm_t ranks;         /* NULL if not connected */
	struct collective *other; /* collective_watch(), or NULL */
	bool failed;
	char name[32];
	char error[DEVICE_ERROR_MAX];
};

const size_t collective_elements = COLLECTIVE_NCCL_ELEMENTS;

#define LOAD(function)                                                                             \
	ret_nccl->function = (__typeof__(ret_nccl->function))dlsym(library, #function);            \
	if (!ret_nccl->function)                                                                   \
		return load_no_function(NCCL_NAME, #function, error);

static int nccl_load_functions(void *library, struct nccl *ret_nccl, char *error)
{
	LOAD(ncclGetUniqueId)
	LOAD(ncclCommInitRank)
	LOAD(ncclAllReduce)
	LOAD(ncclReduceScatter)
	LOAD(ncclAllGather)
	LOAD(ncclGroupStart)
	LOAD(ncclGroupEnd)
	LOAD(ncclCommGetAsyncError)
	LOAD(ncclCommAbort)
	LOAD(ncclCommDestroy)
	LOAD(ncclGetErrorString)
	LOAD(ncclGetLastError)
	return 0;
}

/*
 * By default NCCL registers the buffers of captured sums, and may then choose another algorithm,
 * with another summation order, than for sums that are launched. A resumed run launches its first
 * steps, so its bits would differ from those of an uninterrupted run.
 */
static void nccl_sum_alike(void)
{
	setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

static int nccl_load(struct nccl *ret_nccl, int *ret_version, char *error)
{
	void *library;

	nccl_sum_alike();
	library = load_library(NCCL_NAME);
	*ret_version = 0;
	if (!library)
		return load_not_found(NCCL_NAME, NCCL_PACKAGE, error);
	LOAD(ncclGetVersion)
	ret_nccl->ncclGetVersion(ret_version);
	if (*ret_version >= NCCL_VERSION_MIN)
		return nccl_load_functions(library, ret_nccl, error);
	snprintf(error, DEVICE_ERROR_MAX,
		 "NCCL %d.%d.%d is installed, 2.13 or newer is needed: install " NCCL_PACKAGE
		 ", or name the folder of a newer one by " LOAD_FOLDERS,
		 *ret_version / 10000, *ret_version / 100 % 100, *ret_version % 100);
	return -ENODEV;
}

int collective_new(struct comm *comm, struct collective **ret_collective, char *error)
{
	struct collective *collective = calloc(1, sizeof(*collective));
	int version;

	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	if (!collective)
		return -ENOMEM;
	collective->comm = comm;
	int r = nccl_load(&collective->nccl, &version, error);
	if (r < 0) {
		free(collective);
		return r;
	}
	snprintf(collective->name, sizeof(collective->name), "NCCL %d.%d.%d", version / 10000,
		 version / 100 % 100, version % 100);
	*error = 0;
	*ret_collective = collective;
	return 0;
}

/* Returns 0, or -ECOMM with NCCL's text for a status. */
static int nccl_check(struct collective *collective, int status, const char *call)
{
	const struct nccl *nccl = &collective->nccl;

	if (status == NCCL_SUCCESS || status == NCCL_IN_PROGRESS)
		return 0;
	const char *more = nccl->ncclGetLastError(collective->ranks);
	collective->failed = true;
	if (status == NCCL_REMOTE_ERROR)
		comm_set_lost(collective->comm);
	snprintf(collective->error, sizeof(collective->error),
		 "rank %u of %u: %s: %s%s%s; NCCL_DEBUG=WARN tells more", collective->comm->rank,
		 collective->comm->world, call, nccl->ncclGetErrorString(status),
		 more && *more ? ": " : "", more ? more : "");
	return -ECOMM;
}

/* Broadcast by rank 0: how to connect, or that it failed. */
struct connect_message {
	ncclUniqueId id;
	int status;
};

static int nccl_connect(struct collective *collective)
{
	struct comm *comm = collective->comm;
	struct connect_message invitation = {.status = NCCL_SUCCESS};

	if (comm->rank == 0)
		invitation.status = collective->nccl.ncclGetUniqueId(&invitation.id);
	int r = comm_broadcast(comm, &invitation, sizeof(invitation), 0);
	if (r < 0) {
		snprintf(collective->error, sizeof(collective->error), "%s", comm_error(comm));
		return r;
	}
	r = nccl_check(collective, invitation.status, "ncclGetUniqueId on rank 0");
	if (r < 0)
		return r;
	return nccl_check(collective,
			  collective->nccl.ncclCommInitRank(&collective->ranks, (int)comm->world,
							    invitation.id, (int)comm->rank),
			  "ncclCommInitRank");
}

int collective_connect(struct collective *collective, char *error)
{
	int r = nccl_connect(collective);

	snprintf(error, DEVICE_ERROR_MAX, "%s", collective->error);
	return r;
}

void collective_free(struct collective *collective)
{
	if (!collective)
		return;
	if (collective->ranks && (collective->failed || collective->comm->ended))
		collective->nccl.ncclCommAbort(collective->ranks);
	else if (collective->ranks)
		collective->nccl.ncclCommDestroy(collective->ranks);
	free(collective);
}

const char *collective_name(const struct collective *collective)
{
	return collective->name;
}

const char *collective_error(const struct collective *collective)
{
	return collective->error;
}

static int nccl_type(enum comm_element element)
{
	return element == COMM_FLOAT    ? NCCL_FLOAT32
	       : element == COMM_DOUBLE ? NCCL_FLOAT64
					: NCCL_UINT8;
}

/* This rank's part of values[world][count]: NCCL works in place if it reads or writes there. */
static void *nccl_part(const struct collective *collective, void *values, size_t count,
		       enum comm_element element)
{
	size_t size = element == COMM_FLOAT ? sizeof(float) : element == COMM_DOUBLE ? 8 : 1;

	return (char *)values + collective->comm->rank * count * size;
}

int collective_reduce_scatter(struct collective *collective, void *values, size_t count,
			      enum comm_element element, gpu_stream stream)
{
	comm_count_sent(collective->comm, COMM_REDUCE_SCATTER, count, element);
	return nccl_check(collective,
			  collective->nccl.ncclReduceScatter(
				  values, nccl_part(collective, values, count, element), count,
				  nccl_type(element), NCCL_SUM, collective->ranks, stream),
			  "ncclReduceScatter");
}

int collective_all_gather(struct collective *collective, void *values, size_t count,
			  enum comm_element element, gpu_stream stream)
{
	comm_count_sent(collective->comm, COMM_ALL_GATHER, count, element);
	return nccl_check(collective,
			  collective->nccl.ncclAllGather(
				  nccl_part(collective, values, count, element), values, count,
				  nccl_type(element), collective->ranks, stream),
			  "ncclAllGather");
}

/* The group makes several ranges one launch; it must be ended even after an error. */
static int nccl_sum(struct collective *collective, const struct collective_range *ranges,
		    uint32_t count, int type, gpu_stream stream)
{
	const struct nccl *nccl = &collective->nccl;
	int r = nccl_check(collective, nccl->ncclGroupStart(), "ncclGroupStart");

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = nccl_check(collective,
			       nccl->ncclAllReduce(ranges[i].values, ranges[i].values,
						   ranges[i].count, type, NCCL_SUM,
						   collective->ranks, stream),
			       "ncclAllReduce");
	int ended = nccl->ncclGroupEnd();
	return r < 0 ? r : nccl_check(collective, ended, "ncclGroupEnd");
}

int collective_sum(struct collective *collective, const struct collective_range *ranges,
		   uint32_t count, enum comm_element element, gpu_stream stream)
{
	for (uint32_t i = 0; i < count; i++)
		comm_count_sent(collective->comm, COMM_SUM, ranges[i].count, element);
	return nccl_sum(collective, ranges, count,
			element == COMM_FLOAT ? NCCL_FLOAT32 : NCCL_FLOAT64, stream);
}

int collective_sum_activations(struct collective *collective, void *values, size_t count,
			       enum cuda_element element, gpu_stream stream)
{
	static const int types[] = {
		[CUDA_F32] = NCCL_FLOAT32, [CUDA_F16] = NCCL_FLOAT16, [CUDA_BF16] = NCCL_BFLOAT16};

	comm_count_sent(collective->comm, COMM_SUM, count * cuda_element_size(element), COMM_BYTE);
	return nccl_sum(collective, &(struct collective_range){values, count}, 1, types[element],
			stream);
}

void collective_watch(struct collective *collective, struct collective *other)
{
	collective->other = other;
}

/* comm.h learns first that a rank is gone, also if it was on this machine. */
static int nccl_check_queued(struct collective *collective)
{
	struct comm *comm = collective->comm;
	int status = NCCL_SUCCESS;

	if (comm_progress(comm) < 0) {
		collective->failed = true;
		snprintf(collective->error, sizeof(collective->error), "%s", comm_error(comm));
		return -ECOMM;
	}
	int r = nccl_check(collective,
			   collective->nccl.ncclCommGetAsyncError(collective->ranks, &status),
			   "ncclCommGetAsyncError");

	return r < 0 ? r : nccl_check(collective, status, "adding up over ranks");
}

static int nccl_check_both(struct collective *collective)
{
	struct collective *other = collective->other;
	int r = nccl_check_queued(collective);

	if (r < 0 || !other)
		return r;
	r = nccl_check_queued(other);
	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", other->error);
	return r;
}

/*
 * A sum waits forever for a dead rank. NCCL reports the death only when polled, and not of a rank
 * on the same machine (NVIDIA/nccl, issue 279). That comes by comm.h, or, under MPI, the launcher
 * ends all ranks.
 */
int collective_wait(struct collective *collective, gpu_event event)
{
	const struct timespec pause = {.tv_nsec = WAIT_NS};
	int r;

	while ((r = gpu_event_query(event)) == -EAGAIN) {
		r = nccl_check_both(collective);
		if (r < 0)
			return r;
		nanosleep(&pause, NULL);
	}
	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	return r < 0 ? r : nccl_check_both(collective);
}
