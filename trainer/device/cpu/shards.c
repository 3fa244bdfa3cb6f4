/* Sharded stores on the CPU: what ranks exchange around an update. */
#include "trainer/device/shards.h"
#include "trainer/device/cpu/cpu.h"

#include <errno.h>

static int shards_check(struct device_params *params, int r)
{
	struct device *device = params->device;

	return r < 0 ? device_fail(device, -ECOMM, "%s", comm_error(device->options.comm)) : 0;
}

int cpu_shards_gather(struct device_params *params)
{
	const struct device_shards *shards = &params->shards;
	struct cpu_params *cpu = params->backend;
	struct comm *comm = params->device->options.comm;
	unsigned requests[DEVICE_SHARD_BUCKETS_MAX];
	int r = 0;

	if (shards->world < 2 || shards->gathers)
		return 0;
	for (uint32_t i = 0; i < shards->count && r == 0; i++)
		r = comm_all_gather_start(comm, cpu->slots[DEVICE_VALUE] + shards->buckets[i].first,
					  shards->buckets[i].count / shards->world, COMM_FLOAT,
					  &requests[i]);
	for (uint32_t i = 0; i < shards->count && r == 0; i++)
		r = comm_wait(comm, requests[i]);
	cpu->weights_version++;
	return shards_check(params, r);
}

int cpu_shards_sum(struct device_params *params, double *values, size_t count)
{
	struct comm *comm = params->device->options.comm;

	return params->shards.world < 2
		       ? 0
		       : shards_check(params, comm_sum(comm, values, count, COMM_DOUBLE));
}

struct exchange_job {
	struct cpu_params *cpu;
	enum device_slot slot;
};

static void exchange_task(void *context, uint32_t task, unsigned thread)
{
	const struct exchange_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	float *value = cpu_chunk_slot(job->cpu, chunk, DEVICE_VALUE);
	float *average = cpu_chunk_slot(job->cpu, chunk, job->slot);

	if (!device_param_has(chunk->param, job->slot))
		return;
	for (size_t i = 0; i < chunk->count; i++) {
		float own = value[i];

		value[i] = average[i];
		average[i] = own;
	}
}

int cpu_params_exchange(struct device_params *params, enum device_slot slot)
{
	struct cpu_params *cpu = params->backend;
	struct cpu_device *device = (struct cpu_device *)params->device;
	struct exchange_job job = {cpu, slot};

	thread_pool_run(&device->thread_pool, cpu->chunk_count, exchange_task, &job);
	cpu->weights_version++;
	cpu->buffers_version++;
	return cpu_shards_gather(params);
}
