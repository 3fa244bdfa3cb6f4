/* Perturbs values for SAM and restores them; counterpart of cuda/kernels/update.cu. */
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/optimizers/perturb.h"

#include <math.h>
#include <string.h>

struct perturb_job {
	struct cpu_params *cpu;
	float scale;
};

static void perturb_task(void *context, uint32_t task, unsigned thread)
{
	const struct perturb_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	float *w = cpu_chunk_slot(job->cpu, chunk, DEVICE_VALUE);
	const float *g = cpu_chunk_slot(job->cpu, chunk, DEVICE_GRAD);

	if (!device_param_trains(chunk->param))
		return;
	memcpy(cpu_chunk_slot(job->cpu, chunk, DEVICE_UNPERTURBED), w,
	       chunk->count * sizeof(float));
	for (size_t i = 0; i < chunk->count && !isnan(job->scale); i++)
		w[i] = perturb_element(w[i], g[i], job->scale);
}

static void restore_task(void *context, uint32_t task, unsigned thread)
{
	const struct perturb_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];

	if (device_param_trains(chunk->param))
		memcpy(cpu_chunk_slot(job->cpu, chunk, DEVICE_VALUE),
		       cpu_chunk_slot(job->cpu, chunk, DEVICE_UNPERTURBED),
		       chunk->count * sizeof(float));
}

void cpu_perturb(struct cpu_device *device, struct device_params *params, float scale)
{
	struct perturb_job job = {params->backend, scale};

	thread_pool_run(&device->thread_pool, job.cpu->chunk_count, perturb_task, &job);
	job.cpu->weights_version++;
}

void cpu_restore(struct cpu_device *device, struct device_params *params)
{
	struct perturb_job job = {params->backend, 0};

	thread_pool_run(&device->thread_pool, job.cpu->chunk_count, restore_task, &job);
	job.cpu->weights_version++;
}
