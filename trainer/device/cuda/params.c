/* Parameters in device memory: slots, copies for operations, and the chunk table of the update. */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCALE_MIN 0x1p-16
#define SCALE_MAX 0x1p24

static struct cuda_device *device_of(const struct device_params *params)
{
	return (struct cuda_device *)params->device;
}

static struct cuda_params *store_of(const struct device_params *params)
{
	return params->backend;
}

static bool scales_loss(const struct device_params *params)
{
	return params->device->info.precision == DEVICE_FP16;
}

/* Size of the last dimension. */
static uint32_t columns_of(const struct device_param *param)
{
	switch (param->spec.kind) {
	case DEVICE_CONV_WEIGHT:
		return param->shape[3];
	case DEVICE_LINEAR_WEIGHT:
	case DEVICE_EMBEDDING:
		return param->shape[1];
	case DEVICE_VECTOR:
	case DEVICE_BUFFER:
		break;
	}
	return param->shape[0];
}

float *cuda_param_slot(const struct device_param *param, enum device_slot slot)
{
	float *base = store_of(param->store)->slots[slot];

	return base ? base + shards_offset(param, slot, 0) : NULL;
}

/* A divided weight of all ranks in cuda_params.weights; NULL if DEVICE_VALUE has it. */
static void *cuda_weights(const struct device_param *param)
{
	const struct cuda_params *cuda = store_of(param->store);

	if (!cuda->weights)
		return NULL;
	return (char *)cuda->weights +
	       param->offset * cuda_element_size(device_of(param->store)->element);
}

void *cuda_param_copy(const struct device_param *param)
{
	const struct cuda_copy *copy = &store_of(param->store)->copies[param->index];

	return copy->channels ? copy->data : cuda_param_slot(param, DEVICE_VALUE);
}

/* ---- allocation ---- */

void cuda_params_release(struct device_params *params)
{
	struct cuda_params *cuda = params->backend;

	if (!cuda)
		return;
	for (int i = 0; i < DEVICE_SLOTS; i++)
		gpu_free(cuda->slots[i]);
	for (size_t i = 0; cuda->copies && i < params->count; i++)
		if (!cuda->copies[i].shared)
			gpu_free(cuda->copies[i].data);
	gpu_free(cuda->weights);
	gpu_free(cuda->sums);
	gpu_free(cuda->tensor_sums);
	gpu_free(cuda->state);
	gpu_free(cuda->chunks);
	gpu_free(cuda->partial);
	gpu_free(cuda->decision);
	cuda_matrices_free(cuda->matrices);
	free(cuda->copies);
	free(cuda->host_chunks);
	free(cuda);
	params->backend = NULL;
}

/* Allocates slots, zero-filled. */
static int params_allocate_slots(struct device_params *params)
{
	struct cuda_params *cuda = params->backend;
	int r = 0;

	for (enum device_slot slot = 0; slot < DEVICE_SLOTS && r == 0; slot++) {
		uint64_t bytes = (device_params_elements(params, slot) + 16) * sizeof(float);

		if (!device_params_have(params, slot))
			continue;
		cuda->slots[slot] = cuda_allocate(&r, bytes);
		if (r == 0)
			r = gpu_fill(cuda->slots[slot], 0, bytes, device_of(params)->compute);
	}
	return r;
}

static struct device_range own_part(const struct device_param *param)
{
	return shards_part(param, param->store->shards.rank);
}

static uint32_t chunks_of(const struct device_param *param)
{
	return (uint32_t)((own_part(param).count + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX);
}

/* A chunk from element `first` of a parameter on. */
static struct update_chunk params_chunk(const struct cuda_params *cuda,
					const struct device_param *param, size_t first)
{
	const struct device_params *params = param->store;
	const struct cuda_copy *copy = &cuda->copies[param->index];
	struct device_range part = own_part(param);
	size_t rest = part.first + part.count - first;
	size_t offset = shards_offset(param, DEVICE_STATE, first);
	bool divided = shards_divide(param);
	struct update_chunk chunk = {
		.offset = offset,
		.value_shift = shards_offset(param, DEVICE_VALUE, first) - offset,
		.gradient_shift = shards_offset(param, DEVICE_GRAD, first) - offset,
		/* matrices and shards exclude each other */
		.rest_offset = params->shards.world > 1 ? offset : param->rest_offset + first,
		.count = (uint32_t)(rest < UPDATE_CHUNK_MAX ? rest : UPDATE_CHUNK_MAX),
		.first = (uint32_t)first,
		.begin = (uint32_t)part.first,
		.param = (uint32_t)param->index,
		.divided = divided,
		.split = device_param_is_split(param),
		.copy = copy->data,
		.columns = columns_of(param),
		.row = device_param_row(param),
		.matrix = device_param_matrix(param),
		.chunks = chunks_of(param),
		.copy_columns = copy->channels,
		.group = param->spec.group,
		.lr_factor = param->spec.lr_factor,
		.start = param->spec.start,
		.trained = param->spec.kind != DEVICE_BUFFER && !param->spec.frozen,
		.frozen = param->spec.frozen,
	};

	/* cuda_shards_gather() makes the other copies, of all ranks' parts */
	if (divided) {
		chunk.copy = cuda_weights(param);
		chunk.copy_columns = chunk.columns;
	}
	return chunk;
}

static void params_fill_chunks(struct cuda_params *cuda, const struct device_params *params)
{
	struct update_chunk *chunk = cuda->host_chunks;

	for (size_t i = 0; i < params->count; i++) {
		struct device_range part = own_part(params->items[i]);

		for (size_t at = 0; at < part.count; at += UPDATE_CHUNK_MAX)
			*chunk++ = params_chunk(cuda, params->items[i], part.first + at);
	}
}

/* Buffers of a sharded store. */
static int params_allocate_shards(struct device_params *params)
{
	const struct device_shards *shards = &params->shards;
	struct cuda_device *device = device_of(params);
	struct cuda_params *cuda = params->backend;
	uint64_t bytes = (shards->divided + 16) * cuda_element_size(device->element);
	int r = 0;

	if (shards->world > 1 || params->group)
		cuda->sums = cuda_allocate(&r, UPDATE_SUMS * sizeof(*cuda->sums));
	if (shards->world < 2)
		return r;
	cuda->tensor_sums =
		cuda_allocate(&r, (params->count + 1) * UPDATE_NORMS * sizeof(*cuda->tensor_sums));
	if (!shards->divides_values || shards->gathers)
		return r;
	cuda->weights = cuda_allocate(&r, bytes);
	if (r == 0)
		r = gpu_fill(cuda->weights, 0, bytes, device->compute);
	params->copies_bytes += shards->divided * cuda_element_size(device->element);
	return r;
}

static int params_allocate_update(struct device_params *params)
{
	struct cuda_params *cuda = params->backend;
	int r = 0;

	for (size_t i = 0; i < params->count; i++)
		cuda->chunk_count += chunks_of(params->items[i]);
	cuda->copies = calloc(params->count + 1, sizeof(*cuda->copies));
	cuda->host_chunks = calloc(cuda->chunk_count + 1, sizeof(*cuda->host_chunks));
	if (!cuda->copies || !cuda->host_chunks)
		return -ENOMEM;
	cuda->chunks = cuda_allocate(&r, (cuda->chunk_count + 1) * sizeof(*cuda->chunks));
	cuda->partial =
		cuda_allocate(&r, (cuda->chunk_count + 1) * UPDATE_NORMS * sizeof(*cuda->partial));
	cuda->decision = cuda_allocate(&r, sizeof(*cuda->decision));
	cuda->state = cuda_allocate(&r, sizeof(*cuda->state));
	if (r == 0)
		r = params_allocate_shards(params);
	params_fill_chunks(cuda, params);
	return r;
}

int cuda_params_allocate(struct device_params *params)
{
	struct device_params_state first = {.loss_scale = STEP_SCALE_FIRST};
	struct cuda_params *cuda = calloc(1, sizeof(*cuda));

	if (!cuda)
		return -ENOMEM;
	params->backend = cuda;
	cuda->fresh = true;
	cuda->version = 1;
	int r = params_allocate_slots(params);
	if (r == 0)
		r = params_allocate_update(params);
	if (r == 0)
		r = cuda_set_state(params, &first);
	else
		cuda_check(device_of(params), r, "memory for the parameters");
	if (r == 0)
		r = cuda_matrices_new(params, &cuda->matrices);
	if (r < 0)
		cuda_params_release(params);
	return r;
}

/* ---- copies ---- */

int cuda_param_refresh(const struct device_param *param)
{
	struct cuda_device *device = device_of(param->store);
	const struct cuda_copy *copy = &store_of(param->store)->copies[param->index];
	uint32_t columns = columns_of(param);
	bool divided = device_param_is_sharded(param, DEVICE_VALUE);

	if (!copy->channels || copy->shared)
		return 0;
	return elementwise_copy(&device->kernels,
				&(struct elementwise_copy){
					.from = divided ? cuda_weights(param)
							: cuda_param_slot(param, DEVICE_VALUE),
					.to = copy->data,
					.rows = param->elements / columns,
					.from_columns = columns,
					.to_columns = copy->channels,
					.from_element = divided ? device->element : CUDA_F32,
					.to_element = device->element,
				});
}

int cuda_param_prepare(struct device_param *param, uint32_t channels)
{
	struct cuda_device *device = device_of(param->store);
	struct cuda_copy *copy = &store_of(param->store)->copies[param->index];
	uint32_t columns = columns_of(param), has = copy->channels ? copy->channels : columns;
	uint64_t bytes = param->elements / columns * channels * cuda_element_size(device->element);

	if (copy->channels == channels ||
	    (!copy->channels && device->element == CUDA_F32 && channels == columns))
		return 0;
	if (copy->channels)
		return device_fail(&device->base, -ENOTSUP,
				   "parameter %s is wanted with %u channels by one graph and with "
				   "%u by another",
				   param->name, channels, has);
	copy->shared = channels == columns && device_param_is_sharded(param, DEVICE_VALUE);
	if (copy->shared) {
		copy->data = cuda_weights(param);
		copy->channels = channels;
		return 0;
	}
	int r = gpu_allocate(bytes, &copy->data);
	if (r < 0)
		return cuda_check(device, r, param->name);
	copy->channels = channels;
	param->store->copies_bytes += bytes;
	return cuda_check(device, cuda_param_refresh(param), param->name);
}

int cuda_params_publish(struct device_params *params)
{
	struct cuda_params *cuda = params->backend;
	struct cuda_device *device = device_of(params);

	/* needed even without new copies: parameters may have been frozen or unfrozen */
	params_fill_chunks(cuda, params);
	int r = cuda_copy_in(device, cuda->chunks, cuda->host_chunks,
			     cuda->chunk_count * sizeof(*cuda->chunks));
	return cuda_check(device, r, "the table of parameters");
}

/* ---- reading and writing ---- */

/* Scaled copy of values, to be freed after the transfer; NULL if out of memory. */
static float *params_scale_values(const float *values, size_t count, double scale)
{
	float *scaled = malloc(count * sizeof(float));

	for (size_t i = 0; scaled && i < count; i++)
		scaled[i] = (float)((double)values[i] * scale);
	return scaled;
}

/* Called before the caller writes a gradient: if no gradients are summed yet, zeroes all others. */
static int params_begin_gradients(struct device_params *params)
{
	struct cuda_params *cuda = params->backend;

	if (!cuda->fresh)
		return 0;
	cuda->fresh = false;
	return gpu_fill(cuda->slots[DEVICE_GRAD], 0,
			device_params_elements(params, DEVICE_GRAD) * sizeof(float),
			device_of(params)->compute);
}

/* Address of a parameter's part in a slot. */
static float *part_at(const struct device_param *param, enum device_slot slot,
		      const struct device_range *part)
{
	return store_of(param->store)->slots[slot] + shards_offset(param, slot, part->first);
}

/* Copies a divided weight's values to cuda_params.weights, by way of a buffer for them. */
static int params_write_weights(const struct device_param *param, const float *values)
{
	struct cuda_device *device = device_of(param->store);
	uint64_t bytes = param->elements * sizeof(float);
	uint32_t columns = columns_of(param);
	int r = 0;
	void *buffer = cuda_allocate(&r, bytes);

	if (r == 0)
		r = gpu_copy_in(buffer, values, bytes, device->compute);
	if (r == 0)
		r = elementwise_copy(&device->kernels, &(struct elementwise_copy){
							       .from = buffer,
							       .to = cuda_weights(param),
							       .rows = param->elements / columns,
							       .from_columns = columns,
							       .to_columns = columns,
							       .from_element = CUDA_F32,
							       .to_element = device->element,
						       });
	if (r == 0)
		r = gpu_stream_synchronize(device->compute);
	gpu_free(buffer);
	return r;
}

int cuda_param_write(struct device_param *param, enum device_slot slot,
		     const struct device_range *part, const float *values)
{
	struct device_params *params = param->store;
	struct cuda_device *device = device_of(params);
	float *scaled = NULL;
	double scale = 1;
	int r = 0;

	store_of(params)->version++;
	if (slot == DEVICE_GRAD) {
		r = cuda_loss_scale(params, &scale);
		if (r == 0)
			r = params_begin_gradients(params);
	}
	if (r == 0 && scale != 1) {
		scaled = params_scale_values(values, param->elements, scale);
		r = scaled ? 0 : -ENOMEM;
	}
	if (r == 0 && part->count)
		r = gpu_copy_in(part_at(param, slot, part),
				(scaled ? scaled : values) + part->first,
				part->count * sizeof(float), device->compute);
	if (r == 0 && slot == DEVICE_VALUE && cuda_weights(param) && shards_divide(param))
		r = params_write_weights(param, values);
	if (r == 0 && slot == DEVICE_VALUE)
		r = cuda_param_refresh(param);
	if (r == 0)
		r = gpu_stream_synchronize(device->compute);
	free(scaled);
	return cuda_check(device, r, param->name);
}

int cuda_param_read(struct device_param *param, enum device_slot slot,
		    const struct device_range *part, float *ret_values)
{
	struct cuda_device *device = device_of(param->store);
	double scale = 1;
	int r = 0;

	if (slot == DEVICE_GRAD)
		r = cuda_loss_scale(param->store, &scale);
	if (r == 0 && part->count)
		r = cuda_copy_out(device, ret_values + part->first, part_at(param, slot, part),
				  part->count * sizeof(float));
	else if (r == 0)
		r = gpu_stream_synchronize(device->compute);
	for (size_t i = 0; r == 0 && scale != 1 && i < part->count; i++)
		ret_values[part->first + i] = (float)((double)ret_values[part->first + i] / scale);
	return cuda_check(device, r, param->name);
}

void cuda_drop_gradients(struct device_params *params)
{
	store_of(params)->fresh = true;
}

int cuda_get_state(struct device_params *params, struct device_params_state *ret_state)
{
	struct cuda_device *device = device_of(params);

	return cuda_check(
		device,
		cuda_copy_out(device, ret_state, store_of(params)->state, sizeof(*ret_state)),
		"counters of the parameters");
}

int cuda_set_state(struct device_params *params, const struct device_params_state *state)
{
	struct cuda_device *device = device_of(params);
	struct device_params_state own = *state;

	if (!scales_loss(params))
		own.loss_scale = 1;
	return cuda_check(device, cuda_copy_in(device, store_of(params)->state, &own, sizeof(own)),
			  "counters of the parameters");
}

int cuda_loss_scale(struct device_params *params, double *ret_scale)
{
	struct device_params_state state = {.loss_scale = 1};
	int r = scales_loss(params) ? cuda_get_state(params, &state) : 0;

	*ret_scale = state.loss_scale;
	return r;
}

int cuda_add_part(struct device_params *params, const struct bucket *bucket, const float *gradients)
{
	const struct device_shards *shards = &params->shards;
	struct cuda_device *device = device_of(params);
	struct kernel_device kernels = device->kernels;
	size_t each = bucket->count / shards->world;

	kernels.stream = device->reduce;
	return elementwise_copy(&kernels, &(struct elementwise_copy){
						  .from = gradients + shards->rank * each,
						  .to = store_of(params)->slots[DEVICE_GRAD] +
							bucket->offset / shards->world,
						  .rows = each / SHARD_ALIGN,
						  .from_columns = SHARD_ALIGN,
						  .to_columns = SHARD_ALIGN,
						  .from_element = CUDA_F32,
						  .to_element = CUDA_F32,
						  .add = true,
					  });
}

int cuda_copy_part(struct device_params *params, const struct device_range *bucket, void *to)
{
	struct cuda_device *device = device_of(params);
	struct kernel_device kernels = device->kernels;
	size_t each = bucket->count / params->shards.world;

	kernels.stream = device->reduce;
	return elementwise_copy(&kernels, &(struct elementwise_copy){
						  .from = store_of(params)->slots[DEVICE_VALUE] +
							  bucket->first / params->shards.world,
						  .to = to,
						  .rows = each / SHARD_ALIGN,
						  .from_columns = SHARD_ALIGN,
						  .to_columns = SHARD_ALIGN,
						  .from_element = CUDA_F32,
						  .to_element = device->element,
					  });
}

/* ---- update ---- */

struct update cuda_describe_update(struct device_params *params,
				   const struct step_arguments *arguments,
				   struct device_results *results)
{
	const struct cuda_params *cuda = params->backend;
	bool scales = scales_loss(params);
	struct update update = {
		.chunks = cuda->chunks,
		.chunk_count = cuda->chunk_count,
		.copy_element = device_of(params)->element,
		.optimizer = params->optimizer,
		.step = arguments,
		.state = cuda->state,
		.results = results,
		.scaling = {.growth = scales ? STEP_SCALE_GROWTH : 1,
			    .backoff = scales ? STEP_SCALE_BACKOFF : 1,
			    .min = scales ? SCALE_MIN : 1,
			    .max = scales ? SCALE_MAX : 1,
			    .interval = STEP_SCALE_INTERVAL},
		.partial = cuda->partial,
		.decision = cuda->decision,
		.sums = cuda->sums,
		.tensor_sums = cuda->tensor_sums,
	};

	memcpy(update.slots, cuda->slots, sizeof(update.slots));
	return update;
}

/* Norm and decision. Sets the device's error on failure, like the next function. */
static int params_decide(struct device_params *params, const struct update *update)
{
	struct cuda_device *device = device_of(params);

	if (update->sums) {
		int r = cuda_check(device, update_squares(&device->kernels, update), "update");

		if (r == 0)
			r = cuda_shards_sum(params, update->sums, params->group ? 2 : 1);
		if (r == 0 && params->group)
			r = params->shards.world > 1
				    ? cuda_ranks_sum_group(device, update->sums + 1, 2)
				    : cuda_ranks_sum_group(device, update->sums + 2, 1);
		if (r < 0)
			return r;
	}
	return cuda_check(device, update_decide(&device->kernels, update), "update");
}

/* Of a sharded store: norms of tensors for by_tensor optimizers. */
static int params_measure(struct device_params *params, const struct update *update)
{
	struct cuda_device *device = device_of(params);
	size_t count = params->count * UPDATE_NORMS;

	if (!update->tensor_sums || !(DEVICE_OPTIMIZERS_BY_TENSOR >> params->optimizer.kind & 1))
		return 0;
	int r = gpu_fill(update->tensor_sums, 0, count * sizeof(double), device->compute);

	if (r == 0)
		r = update_measure(&device->kernels, update);
	return r < 0 ? cuda_check(device, r, "update")
		     : cuda_shards_sum(params, update->tensor_sums, count);
}

int cuda_queue_update(struct device_params *params, const struct step_arguments *arguments,
		      struct device_results *results)
{
	struct cuda_device *device = device_of(params);
	struct update update = cuda_describe_update(params, arguments, results);
	int r = params_decide(params, &update);

	if (r == 0)
		r = cuda_check(device, update_prepare(&device->kernels, &update), "update");
	if (r == 0)
		r = params_measure(params, &update);
	if (r == 0)
		r = cuda_queue_matrices(params, &update);
	if (r < 0)
		return r;
	r = update_apply(&device->kernels, &update);
	if (r == 0)
		r = update_average(&device->kernels, &update);
	return r < 0 ? cuda_check(device, r, "update") : cuda_shards_gather(params);
}

int cuda_queue_perturb(struct device_params *params, const struct step_arguments *arguments,
		       struct device_results *results)
{
	struct cuda_device *device = device_of(params);
	struct update update = cuda_describe_update(params, arguments, results);
	int r = params_decide(params, &update);

	if (r == 0)
		r = cuda_check(device, update_perturb(&device->kernels, &update), "perturbation");
	return r < 0 ? r : cuda_shards_gather(params);
}

int cuda_queue_restore(struct device_params *params)
{
	struct update update = cuda_describe_update(params, NULL, NULL);

	return cuda_check(device_of(params), update_restore(&device_of(params)->kernels, &update),
			  "update");
}
