/* Sums over ranks on the CPU, and when they happen in a step. */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>

/*
 * Elements per bucket (1 MiB): large enough to make the start of a sum cheap, small enough for most
 * to start early.
 */
#define BUCKET_ELEMENTS ((size_t)1 << 18)

/* The ranks that a step sums over; NULL if none, as in evaluation. */
static struct comm *ranks_of(const struct cpu_exec *exec)
{
	const struct device *device = &exec->device->base;

	return device_world(device) > 1 && cpu_training(exec) && !exec->warms_up
		       ? device->options.comm
		       : NULL;
}

/* On failure, copies comm_error() to the device's error string. */
static int ranks_check(struct cpu_exec *exec, int r)
{
	if (r < 0)
		return device_fail(&exec->device->base, -ECOMM, "%s",
				   comm_error(exec->device->base.options.comm));
	return 0;
}

int cpu_ranks_plan(struct cpu_exec *exec)
{
	return ranks_of(exec) ? buckets_plan(&exec->ranks.buckets, exec->graph, BUCKET_ELEMENTS)
			      : 0;
}

int cpu_ranks_begin(struct cpu_exec *exec)
{
	const struct device_node *loss = exec->graph->loss;
	struct cpu_ranks *ranks = &exec->ranks;
	struct comm *comm = ranks_of(exec);

	const int32_t *labels = exec->targets;

	ranks->samples[0] = ranks->samples[1] = 0;
	ranks->started = 0;
	if (!loss)
		return 0;
	for (uint32_t i = 0; i < loss->x->shape.n; i++)
		ranks->samples[0] += labels[i] >= 0 && labels[i] < (int32_t)loss->x->shape.c;
	ranks->samples[1] =
		device_loss_is_weighted(&loss->loss) ? cpu_loss_weight(exec) : ranks->samples[0];
	return comm ? ranks_check(exec, comm_sum_start(comm, ranks->samples, 2, COMM_DOUBLE,
						       &ranks->samples_request))
		    : 0;
}

int cpu_ranks_divisor(struct cpu_exec *exec, double *ret_divisor, double *ret_samples)
{
	struct comm *comm = ranks_of(exec);
	int r = comm ? ranks_check(exec, comm_wait(comm, exec->ranks.samples_request)) : 0;

	*ret_divisor = exec->ranks.samples[1];
	*ret_samples = exec->ranks.samples[0];
	return r;
}

int cpu_ranks_sum(struct cpu_exec *exec, double *values, size_t count)
{
	struct comm *comm = ranks_of(exec);

	return comm ? ranks_check(exec, comm_sum(comm, values, count, COMM_DOUBLE)) : 0;
}

int cpu_ranks_loss(struct cpu_exec *exec, double loss, uint32_t top1, uint32_t top5)
{
	struct cpu_ranks *ranks = &exec->ranks;
	struct comm *comm = ranks_of(exec);

	ranks->results[0] = loss;
	ranks->results[1] = top1;
	ranks->results[2] = top5;
	return comm ? ranks_check(exec, comm_sum_start(comm, ranks->results, 3, COMM_DOUBLE,
						       &ranks->results_request))
		    : 0;
}

int cpu_ranks_passed(struct cpu_exec *exec, uint32_t node)
{
	struct cpu_ranks *ranks = &exec->ranks;
	const struct buckets *buckets = &ranks->buckets;
	struct comm *comm = ranks_of(exec);
	int r = 0;

	if (!comm)
		return 0;
	while (r == 0 && ranks->started < buckets->count &&
	       buckets->items[ranks->started].node >= node) {
		const struct bucket *bucket = &buckets->items[ranks->started];

		r = comm_sum_start(comm, exec->params->slots[DEVICE_GRAD] + bucket->offset,
				   bucket->count, COMM_FLOAT, &ranks->requests[ranks->started]);
		ranks->started += r == 0;
	}
	if (r == 0)
		r = comm_progress(comm);
	return ranks_check(exec, r);
}

int cpu_ranks_gradients(struct cpu_exec *exec)
{
	struct cpu_ranks *ranks = &exec->ranks;
	int r = 0;

	for (uint32_t i = 0; i < ranks->started && r == 0; i++)
		r = ranks_check(exec, comm_wait(ranks_of(exec), ranks->requests[i]));
	return r;
}

int cpu_ranks_results(struct cpu_exec *exec, struct device_results *results)
{
	const struct cpu_ranks *ranks = &exec->ranks;
	struct comm *comm = ranks_of(exec);
	int r = 0;

	if (!exec->graph->loss)
		return 0;
	if (comm)
		r = ranks_check(exec, comm_wait(comm, ranks->results_request));
	results->samples = (uint32_t)ranks->samples[0];
	results->loss = ranks->samples[1] > 0 ? ranks->results[0] / ranks->samples[1] : 0;
	results->top1 = (uint32_t)ranks->results[1];
	results->top5 = (uint32_t)ranks->results[2];
	return r;
}

/* ---- tensor parallelism ---- */

static int group_check(struct cpu_device *device, const struct device_params *params, int r)
{
	return r < 0 ? device_fail(&device->base, -ECOMM, "%s", comm_error(params->group)) : 0;
}

/* Ranks sum 16-bit values in fp32. */
void cpu_group_plan(struct cpu_exec *exec, const struct device_node *node)
{
	const struct device_value *summed = device_node_sums_result(node)     ? node->y
					    : device_node_sums_gradient(node) ? node->x
									      : NULL;

	if (summed && exec->device->element != ELEMENT_F32)
		cpu_need_scratchpad(exec, device_shape_elements(summed->shape) * sizeof(float));
}

int cpu_group_sum(struct cpu_exec *exec, void *data, const struct device_value *value,
		  enum element element)
{
	const struct device_params *params = exec->graph->params;
	const struct kernels *kernels = exec->device->loops.kernels;
	size_t count = device_shape_elements(value->shape);
	float *values = element == ELEMENT_F32 ? data : cpu_block(exec, exec->scratchpad_block);

	if (exec->warms_up)
		return 0;
	if (element != ELEMENT_F32)
		kernels->convert(values, ELEMENT_F32, data, element, count);
	int r = group_check(exec->device, params,
			    comm_sum(params->group, values, count, COMM_FLOAT));
	if (r == 0 && element != ELEMENT_F32)
		kernels->convert(data, element, values, ELEMENT_F32, count);
	return r;
}

int cpu_group_sum_split(struct cpu_device *device, const struct device_params *params,
			double *value)
{
	return params->group
		       ? group_check(device, params, comm_sum(params->group, value, 1, COMM_DOUBLE))
		       : 0;
}
