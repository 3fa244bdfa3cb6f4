/* Sums over ranks on the CPU, and when they happen in a step. */
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- gradients in buckets ---- */

/* True if backward writes gradients to memory of their bucket, and the store keeps only parts. */
static bool ranks_divide(const struct cpu_exec *exec)
{
	return ranks_of(exec) && shards_divide_slot(exec->graph->params, DEVICE_GRAD);
}

static bool ranks_in_bucket(const struct bucket *bucket, const struct device_param *param)
{
	return param->offset >= bucket->offset && param->offset < bucket->offset + bucket->count;
}

/* The first step of backward that writes a gradient of the bucket. */
static uint32_t ranks_first_step(const struct cpu_exec *exec, const struct bucket *bucket)
{
	for (uint32_t i = exec->graph->node_count; i-- > bucket->node;) {
		const struct device_node *node = exec->graph->nodes[i];

		for (int j = 0; j < DEVICE_NODE_PARAMS; j++)
			if (node->backward && device_param_trains(node->params[j]) &&
			    ranks_in_bucket(bucket, node->params[j]))
				return exec->nodes[i].backward_step;
	}
	return exec->nodes[bucket->node].backward_step;
}

/*
 * Memory of a bucket is taken from its first gradient until the next bucket is complete: then its
 * sum is waited for.
 */
static int ranks_add_blocks(struct cpu_exec *exec)
{
	struct cpu_ranks *ranks = &exec->ranks;
	const struct buckets *buckets = &ranks->buckets;

	for (uint32_t i = 0; i < buckets->count; i++) {
		const struct bucket *bucket = &buckets->items[i];
		uint32_t last = i + 1 < buckets->count
					? exec->nodes[buckets->items[i + 1].node].backward_step
					: exec->end;

		ranks->blocks[i] = CPU_NO_BLOCK;
		if (!bucket->scatters)
			continue;
		int r = cpu_add_block(exec, bucket->count * sizeof(float),
				      ranks_first_step(exec, bucket), &ranks->blocks[i]);
		if (r < 0)
			return r;
		arena_extend(&exec->arena, ranks->blocks[i], last);
	}
	return 0;
}

int cpu_ranks_plan(struct cpu_exec *exec)
{
	const struct device *device = &exec->device->base;
	int r = ranks_of(exec)
			? buckets_plan(&exec->ranks.buckets, exec->graph, device->bucket_elements)
			: 0;

	return r == 0 && ranks_divide(exec) ? ranks_add_blocks(exec) : r;
}

int cpu_ranks_bind(struct cpu_exec *exec)
{
	struct cpu_ranks *ranks = &exec->ranks;
	const struct device_params *params = exec->graph->params;

	if (!ranks_divide(exec))
		return 0;
	ranks->gradients = calloc(params->count + 1, sizeof(*ranks->gradients));
	if (!ranks->gradients)
		return -ENOMEM;
	for (uint32_t b = 0; b < ranks->buckets.count; b++) {
		const struct bucket *bucket = &ranks->buckets.items[b];

		ranks->memory[b] = cpu_block(exec, ranks->blocks[b]);
		for (size_t i = 0; i < params->count && ranks->memory[b]; i++)
			if (ranks_in_bucket(bucket, params->items[i]))
				ranks->gradients[i] = ranks->memory[b] +
						      (params->items[i]->offset - bucket->offset);
	}
	exec->params->gradients = ranks->gradients;
	return 0;
}

void cpu_ranks_release(struct cpu_exec *exec)
{
	if (exec->ranks.gradients && exec->params->gradients == exec->ranks.gradients)
		exec->params->gradients = NULL;
	free(exec->ranks.gradients);
}

void cpu_ranks_begin_backward(struct cpu_exec *exec)
{
	exec->ranks.started = exec->ranks.done = 0;
	if (!exec->ranks.gradients)
		return;
	exec->params->gradients = exec->ranks.gradients;
	cpu_begin_gradients(exec->graph->params);
}

/* Zeroes gradients of a bucket's memory that backward has not written. */
static void ranks_zero_untouched(struct cpu_exec *exec, uint32_t index)
{
	const struct device_params *params = exec->graph->params;
	const struct bucket *bucket = &exec->ranks.buckets.items[index];

	for (size_t i = 0; i < params->count; i++)
		if (ranks_in_bucket(bucket, params->items[i]) && exec->params->fresh[i])
			memset(exec->ranks.gradients[i], 0,
			       params->items[i]->elements * sizeof(float));
}

/* Adds this rank's part of a bucket's memory to the store. */
static void ranks_keep_part(struct cpu_exec *exec, uint32_t index)
{
	const struct device_shards *shards = &exec->graph->params->shards;
	const struct bucket *bucket = &exec->ranks.buckets.items[index];
	size_t each = bucket->count / shards->world;

	loops_add(&exec->device->loops,
		  exec->params->slots[DEVICE_GRAD] + bucket->offset / shards->world,
		  exec->ranks.memory[index] + shards->rank * each, ELEMENT_F32, each);
}

/* Waits for the first `until` buckets. */
static int ranks_finish(struct cpu_exec *exec, uint32_t until)
{
	struct cpu_ranks *ranks = &exec->ranks;

	for (; ranks->done < until; ranks->done++) {
		unsigned request = ranks->requests[ranks->done];

		if (request == CPU_NO_REQUEST)
			continue;
		int r = ranks_check(exec, comm_wait(ranks_of(exec), request));
		if (r < 0)
			return r;
		if (ranks->memory[ranks->done])
			ranks_keep_part(exec, ranks->done);
	}
	return 0;
}

/* Starts to sum a complete bucket, if it is due in this step. */
static int ranks_start(struct cpu_exec *exec, uint32_t index)
{
	struct cpu_ranks *ranks = &exec->ranks;
	const struct bucket *bucket = &ranks->buckets.items[index];
	float *values = exec->params->slots[DEVICE_GRAD] + bucket->offset;
	unsigned *request = &ranks->requests[index];
	struct comm *comm = ranks_of(exec);

	*request = CPU_NO_REQUEST;
	int r = ranks->gradients ? ranks_finish(exec, index) : 0;
	if (r < 0)
		return r;
	if (ranks->memory[index]) {
		ranks_zero_untouched(exec, index);
		values = ranks->memory[index];
	} else if (!exec->updates) {
		return 0;
	} else if (!bucket->scatters) {
		size_t offset = shards_whole_offset(exec->graph->params, bucket->offset);

		values = exec->params->slots[DEVICE_GRAD] + offset;
	}
	return ranks_check(
		exec, bucket->scatters
			      ? comm_reduce_scatter_start(comm, values, bucket->count / comm->world,
							  COMM_FLOAT, request)
			      : comm_sum_start(comm, values, bucket->count, COMM_FLOAT, request));
}

int cpu_ranks_begin(struct cpu_exec *exec)
{
	const struct device_node *loss = exec->graph->loss;
	struct cpu_ranks *ranks = &exec->ranks;
	struct comm *comm = ranks_of(exec);

	const int32_t *labels = exec->targets;

	ranks->samples[0] = ranks->samples[1] = 0;
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

	if (!comm || (!exec->updates && !ranks->gradients))
		return 0;
	while (r == 0 && ranks->started < buckets->count &&
	       buckets->items[ranks->started].node >= node) {
		r = ranks_start(exec, ranks->started);
		ranks->started += r == 0;
	}
	return r < 0 ? r : ranks_check(exec, comm_progress(comm));
}

int cpu_ranks_gradients(struct cpu_exec *exec)
{
	return ranks_of(exec) ? ranks_finish(exec, exec->ranks.started) : 0;
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
