/* Several ranks, each with a GPU: what is summed over them, and when in a step. */
#include "cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Elements: 1 MiB, as on the CPU. buckets_plan() makes them larger for stores that would have too many. */
#define BUCKET_ELEMENTS ((size_t)1 << 18)

static bool training(const struct cuda_graph *graph)
{
	return graph->graph->options.mode == DEVICE_TRAIN;
}

/* ---- opening and planning ---- */

int cuda_ranks_open(struct cuda_device *device, char *error)
{
	int r;

	if (device_world(&device->base) == 1)
		return 0;
	r = collective_open(device->base.options.comm, &device->collective, error);
	if (r < 0)
		return r;
	r = gpu_stream_new(&device->reduce);
	if (r == 0)
		r = gpu_event_new(false, &device->ready);
	if (r == 0)
		r = gpu_event_new(false, &device->reduced);
	if (r < 0)
		snprintf(error, DEVICE_ERROR_MAX, "%s", gpu_error());
	return r;
}

void cuda_ranks_close(struct cuda_device *device)
{
	if (device->reduce)
		gpu_stream_synchronize(device->reduce);
	collective_close(device->collective);
	gpu_event_free(device->ready);
	gpu_event_free(device->reduced);
	gpu_stream_free(device->reduce);
}

static bool writes_into(const struct cuda_op *op, const struct bucket *bucket)
{
	for (int role = 0; role < CUDA_ROLES; role++) {
		const struct cuda_tensor *tensor = op->operands[role];

		if (tensor && tensor->storage == CUDA_IN_PARAMETER && tensor->slot == DEVICE_GRAD &&
		    cuda_op_writes(op, (enum cuda_role)role) &&
		    tensor->param->offset >= bucket->offset &&
		    tensor->param->offset < bucket->offset + bucket->count)
			return true;
	}
	return false;
}

/* Programs may differ between ranks, by the plans there are; the order of buckets follows from the graph alone, so none is started before the one ahead. */
int cuda_ranks_plan(struct cuda_graph *graph)
{
	const struct cuda_program *program = graph->program;
	int r;

	if (!graph->device->collective || !training(graph) || !graph->graph->params->has_optimizer)
		return 0;
	r = buckets_plan(&graph->buckets, graph->graph, BUCKET_ELEMENTS);
	if (r < 0)
		return r;
	graph->bucket_ends = calloc(graph->buckets.count + 1, sizeof(*graph->bucket_ends));
	if (!graph->bucket_ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < graph->buckets.count; i++) {
		if (i)
			graph->bucket_ends[i] = graph->bucket_ends[i - 1];
		for (uint32_t j = graph->bucket_ends[i]; j < program->op_count; j++)
			if (writes_into(&program->ops[j], &graph->buckets.items[i]))
				graph->bucket_ends[i] = j;
	}
	return 0;
}

/* ---- sums in device memory ---- */

static int start(struct cuda_graph *graph, float *values, uint64_t count)
{
	struct cuda_device *device = graph->device;
	int r = gpu_event_record(device->ready, device->compute);

	if (r == 0)
		r = gpu_stream_wait(device->reduce, device->ready);
	if (r < 0)
		return cuda_check(device, r, "a sum over ranks");
	r = collective_sum(device->collective, values, count, device->reduce);
	if (r < 0)
		return device_fail(&device->base, r, "a sum over ranks: %s",
				   collective_error(device->collective));
	return 0;
}

static int join(struct cuda_graph *graph)
{
	struct cuda_device *device = graph->device;
	int r = gpu_event_record(device->reduced, device->reduce);

	if (r == 0)
		r = gpu_stream_wait(device->compute, device->reduced);
	return cuda_check(device, r, "sums over ranks");
}

bool cuda_ranks_synchronize(const struct cuda_graph *graph, const struct device_norm *norm)
{
	return graph->device->collective && training(graph) && norm->synchronized;
}

int cuda_ranks_sum(struct cuda_graph *graph, float *values, uint64_t count)
{
	int r;

	if (!graph->device->collective)
		return 0;
	r = start(graph, values, count);
	return r < 0 ? r : join(graph);
}

int cuda_ranks_passed(struct cuda_graph *graph, uint32_t operation)
{
	const struct cuda_params *params = graph->graph->params->backend;
	const struct buckets *buckets = &graph->buckets;
	int r = 0;

	if (operation == 0)
		graph->buckets_started = 0;
	while (r == 0 && graph->buckets_started < buckets->count &&
	       graph->bucket_ends[graph->buckets_started] <= operation) {
		const struct bucket *bucket = &buckets->items[graph->buckets_started++];

		r = start(graph, params->slots[DEVICE_GRAD] + bucket->offset, bucket->count);
	}
	return r;
}

int cuda_ranks_gradients(struct cuda_graph *graph)
{
	return graph->buckets.count ? join(graph) : 0;
}

/* ---- sums on the host ---- */

static int sum_on_host(struct cuda_graph *graph, double *values, size_t count)
{
	struct comm *comm = graph->device->base.options.comm;

	if (comm_sum(comm, values, count, COMM_DOUBLE) < 0)
		return device_fail(&graph->device->base, -ECOMM, "%s", comm_error(comm));
	return 0;
}

int cuda_ranks_begin(struct cuda_graph *graph, struct step_arguments *arguments)
{
	double labelled = graph->labelled;
	int r;

	if (!graph->device->collective || !training(graph) || !graph->graph->loss)
		return 0;
	r = sum_on_host(graph, &labelled, 1);
	arguments->labelled = (uint32_t)labelled;
	return r;
}

int cuda_ranks_results(struct cuda_graph *graph, struct device_results *results)
{
	double sums[] = {results->loss * results->samples, results->samples, results->top1,
			 results->top5};
	int r = sum_on_host(graph, sums, 4);

	results->samples = (uint32_t)sums[1];
	results->loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
	results->top1 = (uint32_t)sums[2];
	results->top5 = (uint32_t)sums[3];
	return r;
}
