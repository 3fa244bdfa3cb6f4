/* Averages of optimizers/averages.h; counterpart of cuda/kernels/update.cu. */
#include "trainer/device/cpu/cpu.h"

#include <string.h>

struct average_job {
	struct cpu_device *device;
	struct cpu_params *cpu;
	enum device_slot slot;
	float share;
	bool returns;
};

static void average_task(void *context, uint32_t task, unsigned thread)
{
	const struct average_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	float *average = cpu_chunk_slot(job->cpu, chunk, job->slot);
	float *w = cpu_chunk_slot(job->cpu, chunk, DEVICE_VALUE);
	bool trains = device_param_trains(chunk->param);

	if (!trains && !device_param_has(chunk->param, job->slot))
		return;
	job->device->loops.kernels->average(average, w, chunk->count, 1 - job->share);
	if (job->returns && trains)
		memcpy(w, average, chunk->count * sizeof(float));
}

void cpu_average(struct cpu_device *device, struct device_params *params, enum device_slot slot,
		 float share, bool returns)
{
	struct average_job job = {device, params->backend, slot, share, returns};

	if (!job.cpu->slots[slot] || share == 0)
		return;
	thread_pool_run(&device->thread_pool, job.cpu->chunk_count, average_task, &job);
	job.cpu->weights_version++;
	job.cpu->buffers_version++;
}
