/* Sums over ranks on the CPU, and when they happen in a step. */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>

/*
 * Elements per bucket (1 MiB): large enough to make the start of a sum cheap, small enough for most
 * to start early.
 */
#define BUCKET_ELEMENTS ((size_t)1 << 18)

/* The ranks that a step sums over; NULL if none, as in evaluation. */
static struct comm *ranks_of(const struct cpu_graph *graph)
{
	const struct device *device = &graph->device->base;

	return device_world(device) > 1 && cpu_training(graph) && !graph->warms_up
		       ? device->options.comm
		       : NULL;
}

/* On failure, copies comm_error() to the device's error string. */
static int ranks_check(struct cpu_graph *graph, int r)
{
	if (r < 0)
		return device_fail(&graph->device->base, -ECOMM, "%s",
				   comm_error(graph->device->base.options.comm));
	return 0;
}

int cpu_ranks_plan(struct cpu_graph *graph)
{
	return ranks_of(graph) ? buckets_plan(&graph->ranks.buckets, graph->graph, BUCKET_ELEMENTS)
			       : 0;
}

int cpu_ranks_begin(struct cpu_graph *graph)
{
	const struct device_node *loss = graph->graph->loss;
	struct cpu_ranks *ranks = &graph->ranks;
	struct comm *comm = ranks_of(graph);

	const int32_t *labels = graph->targets;

	ranks->samples[0] = ranks->samples[1] = 0;
	ranks->started = 0;
	if (!loss)
		return 0;
	for (uint32_t i = 0; i < loss->x->shape.n; i++)
		ranks->samples[0] += labels[i] >= 0 && labels[i] < (int32_t)loss->x->shape.c;
	ranks->samples[1] =
		device_loss_is_weighted(&loss->loss) ? cpu_loss_weight(graph) : ranks->samples[0];
	return comm ? ranks_check(graph, comm_sum_start(comm, ranks->samples, 2, COMM_DOUBLE,
							&ranks->samples_request))
		    : 0;
}

int cpu_ranks_divisor(struct cpu_graph *graph, double *ret_divisor, double *ret_samples)
{
	struct comm *comm = ranks_of(graph);
	int r = comm ? ranks_check(graph, comm_wait(comm, graph->ranks.samples_request)) : 0;

	*ret_divisor = graph->ranks.samples[1];
	*ret_samples = graph->ranks.samples[0];
	return r;
}

int cpu_ranks_sum(struct cpu_graph *graph, double *values, size_t count)
{
	struct comm *comm = ranks_of(graph);

	return comm ? ranks_check(graph, comm_sum(comm, values, count, COMM_DOUBLE)) : 0;
}

int cpu_ranks_loss(struct cpu_graph *graph, double loss, uint32_t top1, uint32_t top5)
{
	struct cpu_ranks *ranks = &graph->ranks;
	struct comm *comm = ranks_of(graph);

	ranks->results[0] = loss;
	ranks->results[1] = top1;
	ranks->results[2] = top5;
	return comm ? ranks_check(graph, comm_sum_start(comm, ranks->results, 3, COMM_DOUBLE,
							&ranks->results_request))
		    : 0;
}

int cpu_ranks_passed(struct cpu_graph *graph, uint32_t node)
{
	struct cpu_ranks *ranks = &graph->ranks;
	const struct buckets *buckets = &ranks->buckets;
	struct comm *comm = ranks_of(graph);
	int r = 0;

	if (!comm)
		return 0;
	while (r == 0 && ranks->started < buckets->count &&
	       buckets->items[ranks->started].node >= node) {
		const struct bucket *bucket = &buckets->items[ranks->started];

		r = comm_sum_start(comm, graph->params->slots[DEVICE_GRAD] + bucket->offset,
				   bucket->count, COMM_FLOAT, &ranks->requests[ranks->started]);
		ranks->started += r == 0;
	}
	if (r == 0)
		r = comm_progress(comm);
	return ranks_check(graph, r);
}

int cpu_ranks_gradients(struct cpu_graph *graph)
{
	struct cpu_ranks *ranks = &graph->ranks;
	int r = 0;

	for (uint32_t i = 0; i < ranks->started && r == 0; i++)
		r = ranks_check(graph, comm_wait(ranks_of(graph), ranks->requests[i]));
	return r;
}

int cpu_ranks_results(struct cpu_graph *graph, struct device_results *results)
{
	const struct cpu_ranks *ranks = &graph->ranks;
	struct comm *comm = ranks_of(graph);
	int r = 0;

	if (!graph->graph->loss)
		return 0;
	if (comm)
		r = ranks_check(graph, comm_wait(comm, ranks->results_request));
	results->samples = (uint32_t)ranks->samples[0];
	results->loss = ranks->samples[1] > 0 ? ranks->results[0] / ranks->samples[1] : 0;
	results->top1 = (uint32_t)ranks->results[1];
	results->top5 = (uint32_t)ranks->results[2];
	return r;
}
