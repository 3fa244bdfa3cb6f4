/* collective.h over the trainer's communication. Queued work runs in the same order on every rank, for all queue and wait for the same. */
#include "collective.h"
#include "queue.h"

#include <errno.h>
#include <stdlib.h>

struct collective {
	struct comm *comm;
};

int collective_open(struct comm *comm, struct collective **ret_collective, char *error)
{
	struct collective *collective = malloc(sizeof(*collective));

	if (!collective)
		return -ENOMEM;
	collective->comm = comm;
	*ret_collective = collective;
	return 0;
}

void collective_close(struct collective *collective)
{
	free(collective);
}

struct sum {
	struct comm *comm;
	float *values;
	uint64_t count;
};

static void run_sum(const void *arguments)
{
	const struct sum *sum = arguments;

	if (comm_sum(sum->comm, sum->values, sum->count, COMM_FLOAT) < 0)
		comm_abort(sum->comm);
}

int collective_sum(struct collective *collective, float *values, uint64_t count, gpu_stream stream)
{
	struct sum sum = {collective->comm, values, count};

	return emulation_queue(stream, run_sum, &sum, sizeof(sum));
}

const char *collective_error(const struct collective *collective)
{
	return comm_error(collective->comm);
}
