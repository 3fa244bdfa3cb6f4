/* Sharded stores on GPUs: what ranks exchange around an update, on the stream of sums. */
#include "trainer/device/shards.h"
#include "trainer/device/cuda/cuda.h"

#include <errno.h>

static struct cuda_device *device_of(const struct device_params *params)
{
	return (struct cuda_device *)params->device;
}

static int shards_fail(struct cuda_device *device, int r)
{
	return device_fail(&device->base, r, "%s", collective_error(device->collective));
}

int cuda_shards_sum(struct device_params *params, double *values, size_t count)
{
	struct cuda_device *device = device_of(params);

	if (params->shards.world < 2)
		return 0;
	int r = cuda_ranks_fork(device);
	if (r < 0)
		return r;
	r = collective_sum(device->collective, &(struct collective_range){values, count}, 1,
			   COMM_DOUBLE, device->reduce);
	return r < 0 ? shards_fail(device, r) : cuda_ranks_join(device);
}

/* Queues the exchange of one bucket. */
static int shards_gather_bucket(struct device_params *params, const struct device_range *bucket)
{
	struct cuda_device *device = device_of(params);
	struct cuda_params *cuda = params->backend;
	size_t size = cuda_element_size(cuda->weights ? device->element : CUDA_F32);
	char *weights = cuda->weights ? cuda->weights : (char *)cuda->slots[DEVICE_VALUE];
	size_t each = bucket->count / params->shards.world;

	return collective_all_gather(device->collective, weights + bucket->first * size,
				     cuda->weights ? each * size : each,
				     cuda->weights ? COMM_BYTE : COMM_FLOAT, device->reduce);
}

int cuda_shards_gather(struct device_params *params)
{
	const struct device_shards *shards = &params->shards;
	struct cuda_device *device = device_of(params);

	if (shards->world < 2 || shards->gathers)
		return 0;
	int r = cuda_ranks_fork(device);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < shards->count && r == 0; i++)
		r = shards_gather_bucket(params, &shards->buckets[i]);
	if (r < 0)
		return shards_fail(device, r);
	r = cuda_ranks_join(device);
	for (size_t i = 0; i < params->count && r == 0; i++)
		if (shards_divide(params->items[i]))
			r = cuda_check(device, cuda_param_refresh(params->items[i]),
				       params->items[i]->name);
	return r;
}

int cuda_params_exchange(struct device_params *params, enum device_slot slot)
{
	struct cuda_device *device = device_of(params);
	struct cuda_params *cuda = params->backend;
	struct update update = cuda_describe_update(params, NULL, NULL);

	update.average = slot;
	cuda->version++;
	int r = cuda_check(device, update_exchange(&device->kernels, &update), "an average");
	return r < 0 ? r : cuda_shards_gather(params);
}
