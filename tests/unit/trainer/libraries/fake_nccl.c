/*
 * A libnccl.so.2 for tests of nccl.c: one rank, whose sums are counted. The environment's
 * FAKE_NCCL_VERSION is its version; if FAKE_NCCL_SUMS is set, a rank fails after that many sums.
 */
#include <stdlib.h>

struct id {
	char internal[128];
};

#define EXPORT      __attribute__((visibility("default")))
#define ASYNC_ERROR 6 /* ncclRemoteError */

static int grouped, sums;

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(struct id *id);
EXPORT int ncclCommInitRank(void **comm, int world, struct id id, int rank);
EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
			 void *comm, void *stream);
EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation,
			     void *comm, void *stream);
EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm,
			 void *stream);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);
EXPORT int ncclCommGetAsyncError(void *comm, int *status);
EXPORT int ncclCommAbort(void *comm);
EXPORT int ncclCommDestroy(void *comm);
EXPORT const char *ncclGetErrorString(int status);
EXPORT const char *ncclGetLastError(void *comm);

int ncclGetVersion(int *version)
{
	*version = atoi(getenv("FAKE_NCCL_VERSION"));
	return 0;
}

int ncclGetUniqueId(struct id *id)
{
	id->internal[127] = 'x';
	return 0;
}

int ncclCommInitRank(void **comm, int world, struct id id, int rank)
{
	*comm = &sums;
	return world == 1 && rank == 0 && id.internal[127] == 'x' ? 0 : 4;
}

/* Types 6 to 9 are half, float, double and bfloat16. Accepts only sums in place and inside a group.
 */
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *comm,
		  void *stream)
{
	if (!from || from != to || comm != &sums || operation != 0 || !grouped || type < 6 ||
	    type > 9)
		return 4;
	sums++;
	return 0;
}

/* Accepts only sums of floats in place: of one rank, the part is the whole. */
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, void *comm,
		      void *stream)
{
	if (!from || from != to || !count || comm != &sums || operation != 0 || type != 7)
		return 4;
	sums++;
	return 0;
}

/* Types 1 and 7 are bytes and float. */
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	if (!from || from != to || !count || comm != &sums || (type != 1 && type != 7))
		return 4;
	sums++;
	return 0;
}

int ncclGroupStart(void)
{
	grouped++;
	return 0;
}

int ncclGroupEnd(void)
{
	grouped--;
	return 0;
}

int ncclCommGetAsyncError(void *comm, int *status)
{
	const char *max = getenv("FAKE_NCCL_SUMS");

	*status = max && sums > atoi(max) ? ASYNC_ERROR : 0;
	return 0;
}

int ncclCommAbort(void *comm)
{
	return 0;
}

int ncclCommDestroy(void *comm)
{
	return 0;
}

const char *ncclGetErrorString(int status)
{
	return status == ASYNC_ERROR ? "remote process exited" : "invalid argument";
}

const char *ncclGetLastError(void *comm)
{
	return "";
}
