/*
 * Gathers of weights in a step (trainer/device/gathers.h): queued on the stream of sums in the
 * program's order; an event makes the first operation that reads a bucket wait for it. The part of
 * this rank is converted from the store's values, so the store keeps no 16-bit copies.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/shards.h"

int cuda_gathers_plan(struct cuda_exec *exec)
{
	int r = 0;

	for (uint32_t i = 0; i < exec->program->op_count; i++) {
		const struct cuda_op *op = &exec->program->ops[i];

		if (op->kind == CUDA_OP_GATHER && !exec->gathers.gathered[op->gather.bucket])
			exec->gathers.gathered[op->gather.bucket] = cuda_event(&r, false);
	}
	return r;
}

void cuda_gathers_release(struct cuda_exec *exec)
{
	for (uint32_t i = 0; i < DEVICE_SHARD_BUCKETS_MAX; i++)
		gpu_event_free(exec->gathers.gathered[i]);
}

int cuda_gather(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct device_shards *shards = &exec->graph->params->shards;
	const struct device_range *bucket = &shards->buckets[op->gather.bucket];
	struct cuda_device *device = exec->device;
	char *memory = cuda_tensor_data(exec, op->operands[CUDA_Y]);
	size_t each = bucket->count / shards->world;
	size_t size = cuda_element_size(exec->program->element);

	/* a warm-up's ranks do not meet; zeros, unlike what memory has, are finite */
	if (exec->graph->options.mode == DEVICE_TRAIN && (exec->variant & CUDA_VARIANT_WARMS_UP))
		return gpu_fill(memory, 0, bucket->count * size, device->compute);
	int r = cuda_ranks_fork(device);
	if (r == 0)
		r = cuda_copy_part(exec->graph->params, bucket,
				   memory + shards->rank * each * size);
	if (r < 0)
		return r;
	bool narrow = exec->program->element != CUDA_F32;
	r = collective_all_gather(device->collective, memory, narrow ? each * size : each,
				  narrow ? COMM_BYTE : COMM_FLOAT, device->reduce);
	if (r < 0)
		return device_fail(&device->base, r, "%s", collective_error(device->collective));
	exec->gathers.awaited[op->gather.bucket] = true;
	return gpu_event_record(exec->gathers.gathered[op->gather.bucket], device->reduce);
}

int cuda_gathers_before(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W];
	int r = 0;

	if (!w || w->storage != CUDA_IN_BUCKET)
		return 0;
	uint32_t bucket = shards_bucket(w->param);
	if (exec->gathers.awaited[bucket])
		r = gpu_stream_wait(exec->device->compute, exec->gathers.gathered[bucket]);
	exec->gathers.awaited[bucket] = false;
	return cuda_check(exec->device, r, "waiting for weights");
}
