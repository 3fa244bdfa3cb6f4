/*
 * collective.h on the host. All-reduces are queued like other work and carried out by comm.h when
 * the stream reaches them, which is at once if it waits for no event, else as late as possible;
 * those of 16-bit values in fp32. At the end the ranks of each
 * communicator compare the order in which they have run the sums of all communicators: with NCCL,
 * ranks that interleave two of them differently may wait for each other forever.
 */
#include "trainer/device/cuda/ranks/collective.h"

#include "format/base/half.h"
#include "tests/gpu/emulation/queue.h"
#include "trainer/device/comm/carrier.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct collective {
	struct comm *comm;
	struct collective *other; /* collective_watch(), or NULL */
	bool connected;
	int result; /* first failure of the reductions that have run */
	char error[COMM_ERROR_MAX];
};

/* FNV-1a hash of the sums that have run, and the number of communicators in use. */
static uint64_t order = 0xcbf29ce484222325;
static unsigned in_use;

static void record_order(const struct collective *collective, size_t count)
{
	order = (order ^ (count * 4 + (collective->other != NULL))) * 0x100000001b3;
}

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
	collective->connected = true;
	in_use++;
	return 0;
}

static _Noreturn void abort_for_order(struct comm *comm, unsigned other)
{
	char reason[COMM_ERROR_MAX];

	snprintf(reason, sizeof(reason), "rank %u has run its sums in another order than rank %u",
		 other, comm->rank);
	fprintf(stderr, "%s\n", reason);
	comm_abort(comm, reason);
}

/* Ends the program: a test must not pass with ranks that would deadlock. */
static void compare_order(struct collective *collective)
{
	struct comm *comm = collective->comm;
	uint64_t *all = calloc(comm->world, sizeof(*all));

	if (all && comm_gather(comm, &order, sizeof(order), all) == 0)
		for (unsigned rank = 0; rank < comm->world; rank++)
			if (all[rank] != order)
				abort_for_order(comm, rank);
	free(all);
}

void collective_free(struct collective *collective)
{
	if (!collective)
		return;
	if (collective->connected) {
		if (collective->result == 0)
			compare_order(collective);
		emulation_run_when_polled(--in_use == 0);
	}
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
	enum comm_operation operation;
};

static void check_sum(struct collective *collective, int r)
{
	if (r == 0 || collective->result < 0)
		return;
	collective->result = -ECOMM;
	snprintf(collective->error, sizeof(collective->error), "%s", comm_error(collective->comm));
}

/* Not counted: like NCCL's, operations count when they are queued. */
static int run_now(struct comm *comm, enum comm_operation operation, void *values, size_t count,
		   enum comm_element element)
{
	unsigned request;
	int r = comm->ops->start(comm, operation, values, count, element, &request);

	return r < 0 ? r : comm_wait(comm, request);
}

static void run_sum(const void *arguments)
{
	const struct sum *sum = arguments;

	record_order(sum->collective, sum->range.count);
	check_sum(sum->collective, run_now(sum->collective->comm, sum->operation, sum->range.values,
					   sum->range.count, sum->element));
}

static int queue(struct collective *collective, const struct collective_range *range,
		 enum comm_element element, enum comm_operation operation, gpu_stream stream)
{
	struct sum sum = {collective, *range, element, operation};

	comm_count_sent(collective->comm, operation, range->count, element);
	int r = emulation_queue(stream, run_sum, &sum, sizeof(sum));
	if (r == 0)
		emulation_run_ready(stream);
	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	return r;
}

int collective_sum(struct collective *collective, const struct collective_range *ranges,
		   uint32_t count, enum comm_element element, gpu_stream stream)
{
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = queue(collective, &ranges[i], element, COMM_SUM, stream);
	return r;
}

int collective_reduce_scatter(struct collective *collective, void *values, size_t count,
			      enum comm_element element, gpu_stream stream)
{
	return queue(collective, &(struct collective_range){values, count}, element,
		     COMM_REDUCE_SCATTER, stream);
}

int collective_all_gather(struct collective *collective, void *values, size_t count,
			  enum comm_element element, gpu_stream stream)
{
	return queue(collective, &(struct collective_range){values, count}, element,
		     COMM_ALL_GATHER, stream);
}

struct sum_activations {
	struct collective *collective;
	void *values;
	size_t count;
	enum cuda_element element;
};

static void run_sum_narrow(const struct sum_activations *sum)
{
	bool half = sum->element == CUDA_F16;
	uint16_t *bits = sum->values;
	float *wide = malloc(sum->count * sizeof(float));
	int r = wide ? 0 : -ENOMEM;

	for (size_t i = 0; i < sum->count && r == 0; i++)
		wide[i] = half ? half_to_float(bits[i]) : bfloat_to_float(bits[i]);
	if (r == 0)
		r = run_now(sum->collective->comm, COMM_SUM, wide, sum->count, COMM_FLOAT);
	for (size_t i = 0; i < sum->count && r == 0; i++)
		bits[i] = half ? float_to_half(wide[i]) : float_to_bfloat(wide[i]);
	free(wide);
	check_sum(sum->collective, r);
}

static void run_sum_activations(const void *arguments)
{
	const struct sum_activations *sum = arguments;
	struct collective *collective = sum->collective;

	record_order(collective, sum->count);
	if (sum->element != CUDA_F32)
		run_sum_narrow(sum);
	else
		check_sum(collective,
			  run_now(collective->comm, COMM_SUM, sum->values, sum->count, COMM_FLOAT));
}

int collective_sum_activations(struct collective *collective, void *values, size_t count,
			       enum cuda_element element, gpu_stream stream)
{
	struct sum_activations sum = {collective, values, count, element};

	comm_count_sent(collective->comm, COMM_SUM, count * cuda_element_size(element), COMM_BYTE);
	int r = emulation_queue(stream, run_sum_activations, &sum, sizeof(sum));

	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	return r;
}

void collective_watch(struct collective *collective, struct collective *other)
{
	collective->other = other;
}

int collective_wait(struct collective *collective, gpu_event event)
{
	int r = gpu_event_synchronize(event);

	if (r < 0)
		snprintf(collective->error, sizeof(collective->error), "%s", gpu_error());
	if (r == 0 && collective->result == 0 && collective->other &&
	    collective->other->result < 0) {
		collective->result = collective->other->result;
		snprintf(collective->error, sizeof(collective->error), "%s",
			 collective->other->error);
	}
	return r < 0 ? r : collective->result;
}
