/* collective.h over NCCL, which is loaded when ranks need it; of its interface only these few functions, by their documented types. */
#include "collective.h"
#include "device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY	    "libnccl.so.2"
#define NCCL_FLOAT  7 /* ncclFloat32 */
#define NCCL_SUM    0
#define NCCL_OLDEST 21800 /* 2.18: collectives may be captured with others of the step's streams */

struct nccl_id {
	char internal[128];
};

struct collective {
	void *library, *ranks;
	int (*get_version)(int *version);
	int (*get_unique_id)(struct nccl_id *id);
	int (*init_rank)(void **ret_ranks, int world, struct nccl_id id, int rank);
	int (*all_reduce)(const void *from, void *to, size_t count, int element, int operation,
			  void *ranks, gpu_stream stream);
	int (*destroy)(void *ranks);
	const char *(*get_error)(int status);
	char error[256];
};

/* The name of the first function that the library has not got; NULL: all are there. */
static const char *find_functions(struct collective *nccl)
{
	const struct {
		const char *name;
		void *to;
	} functions[] = {
		{"ncclGetVersion", &nccl->get_version},
		{"ncclGetUniqueId", &nccl->get_unique_id},
		{"ncclCommInitRank", &nccl->init_rank},
		{"ncclAllReduce", &nccl->all_reduce},
		{"ncclCommDestroy", &nccl->destroy},
		{"ncclGetErrorString", &nccl->get_error},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(nccl->library, functions[i].name);

		if (!function)
			return functions[i].name;
		memcpy(functions[i].to, &function, sizeof(function));
	}
	return NULL;
}

static int load(struct collective *nccl, char *error)
{
	const char *missing;
	int version = 0;

	nccl->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!nccl->library) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "several GPUs need NCCL: %s; install it (libnccl2, or nvidia-nccl from "
			 "PyPI) and put its folder into LD_LIBRARY_PATH",
			 dlerror());
		return -ENODEV;
	}
	missing = find_functions(nccl);
	if (missing) {
		snprintf(error, DEVICE_ERROR_MAX, "%s has no %s; install NCCL 2.18 or newer",
			 LIBRARY, missing);
		return -ENODEV;
	}
	if (nccl->get_version(&version) || version < NCCL_OLDEST) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "%s is version %d.%d.%d; install NCCL 2.18 or newer", LIBRARY,
			 version / 10000, version / 100 % 100, version % 100);
		return -ENODEV;
	}
	return 0;
}

/* Rank 0's id tells the others where to meet. */
static int connect(struct collective *nccl, struct comm *comm, char *error)
{
	struct nccl_id id = {0};
	int status = comm->rank == 0 ? nccl->get_unique_id(&id) : 0;
	int r = comm_broadcast(comm, &id, sizeof(id), 0);

	if (r < 0) {
		snprintf(error, DEVICE_ERROR_MAX, "%s", comm_error(comm));
		return -ECOMM;
	}
	if (!status)
		status = nccl->init_rank(&nccl->ranks, (int)comm->world, id, (int)comm->rank);
	if (status) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "NCCL could not connect the ranks' GPUs: %s; NCCL_DEBUG=INFO says more",
			 nccl->get_error(status));
		return -ECOMM;
	}
	return 0;
}

/* A rank without the library must not leave the others waiting for it. */
static int agree(struct comm *comm, int r, char *error)
{
	double failed = r < 0;

	if (comm_sum(comm, &failed, 1, COMM_DOUBLE) < 0) {
		snprintf(error, DEVICE_ERROR_MAX, "%s", comm_error(comm));
		return -ECOMM;
	}
	if (r == 0 && failed > 0) {
		snprintf(error, DEVICE_ERROR_MAX, "NCCL could not be loaded on another rank");
		return -ENODEV;
	}
	return r;
}

int collective_open(struct comm *comm, struct collective **ret_collective, char *error)
{
	struct collective *nccl = calloc(1, sizeof(*nccl));
	int r;

	if (!nccl)
		return -ENOMEM;
	r = agree(comm, load(nccl, error), error);
	if (r == 0)
		r = connect(nccl, comm, error);
	if (r < 0) {
		collective_close(nccl);
		return r;
	}
	*ret_collective = nccl;
	return 0;
}

void collective_close(struct collective *nccl)
{
	if (!nccl)
		return;
	if (nccl->ranks)
		nccl->destroy(nccl->ranks);
	if (nccl->library)
		dlclose(nccl->library);
	free(nccl);
}

int collective_sum(struct collective *nccl, float *values, uint64_t count, gpu_stream stream)
{
	int status = nccl->all_reduce(values, values, count, NCCL_FLOAT, NCCL_SUM, nccl->ranks,
				      stream);

	if (!status)
		return 0;
	snprintf(nccl->error, sizeof(nccl->error), "NCCL: %s", nccl->get_error(status));
	return -EIO;
}

const char *collective_error(const struct collective *nccl)
{
	return nccl->error;
}
