/*
 * collective.h on the host. All-reduces are queued like other work and carried out by comm.h when
 * the stream reaches them.
 */
#include "trainer/device/cuda/ranks/collective.h"

#include "tests/gpu/emulation/queue.h"
#include "trainer/device/comm/carrier.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct collective {
	struct comm *comm;
	int result; /* first failure of the reductions that have run */
	char error[COMM_ERROR_MAX];
};

/* 1 MiB, as in the CPU backend, so that small nets have several buckets */
const size_t collective_elements = 1 << 18;

int collective_new(struct comm *comm, struct collective **ret_collective, char *error)
{
	struct collective *collective = calloc(1, sizeof(*collective));

	snprintf(error, DEVICE_ERROR_MAX, "%s", collective ? "" : "out of memory");
	if (!collective)
		return -ENOMEM;
	collective->comm = comm;
	*ret_collective = collective;
	return 0;
}

int collective_connect(struct collective *collective, char *error)
{
	emulation_run_when_polled(false);
	return 0;
}

void collective_free(struct collective *collective)
{
	if (collective)
		emulation_run_when_polled(true);
	free(collective);
}

const char *collective_name(const struct collective *collective)
{
	return "emulated sums over ranks";
}

const char *collective_error(const struct collective *collective)
{
	return collective->error;
}

struct sum {
	struct collective *collective;
	struct collective_range range;
	enum comm_element element;
};

/* A sum that is not counted: like NCCL's, it counts when it is queued. */
static int sum_now(const struct sum *sum)
{
	struct comm *comm = sum->collective->comm;
	unsigned request;
	int r = comm->ops->start(comm, COMM_SUM, sum->range.values, sum->range.count, sum->element,
				 &request);

	return r < 0 ? r : comm_wait(comm, request);
}

static void run_sum(const void *arguments)
{
	const struct sum *sum = arguments;
	struct collective *collective = sum->collective;
	int r = sum_now(sum);

	if (r == 0 || collective->result < 0)
		return;
	collective->result = -ECOMM;
	snprintf(collective->error, sizeof(collective->error), "%s", comm_error(collective->comm));
}

int collective_sum(struct collective *collective, const struct collective_range *ranges,
		   uint32_t count, enum comm_element element, gpu_stream stream)
{
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++) {
		struct sum sum = {collective, ranges[i], element};

		comm_count_sent(collective->comm, COMM_SUM, ranges[i].count, element);
		r = emulation_queue(stream, run_sum, &sum, sizeof(sum));
	}
	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	return r;
}

int collective_wait(struct collective *collective, gpu_event event)
{
	int r = gpu_event_synchronize(event);

	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	return r < 0 ? r : collective->result;
}
