/* Parameter stores: the part common to all backends. */
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct device_optimizer device_optimizers[] = {
#define ROW(constant, name, norms, states, ...) {#name, states, {__VA_ARGS__}},
	DEVICE_OPTIMIZERS(ROW)
#undef ROW
};

int device_params_new(struct device *device, struct device_params **ret_params)
{
	struct device_params *params = calloc(1, sizeof(*params));

	if (!params)
		return -ENOMEM;
	params->device = device;
	*ret_params = params;
	return 0;
}

void device_params_free(struct device_params *params)
{
	if (!params)
		return;
	if (params->allocated)
		params->device->ops->params_release(params);
	for (size_t i = 0; i < params->count; i++)
		free(params->items[i]);
	free(params->items);
	free(params);
}

void device_params_divide(struct device_params *params)
{
	struct comm *group = params->device->options.group;

	params->group = group && group->world > 1 ? group : NULL;
}

unsigned device_params_group(const struct device_params *params)
{
	return params->group ? params->group->world : 1;
}

bool device_param_is_split(const struct device_param *param)
{
	return param->spec.split_dimension && param->store->group;
}

static int check_spec(struct device_params *params, const struct device_param_spec *spec,
		      size_t *ret_elements)
{
	struct device *device = params->device;
	static const unsigned of_kinds[] = {[DEVICE_CONV_WEIGHT] = 4,
					    [DEVICE_LINEAR_WEIGHT] = 2,
					    [DEVICE_VECTOR] = 1,
					    [DEVICE_BUFFER] = 1,
					    [DEVICE_EMBEDDING] = 2};
	unsigned dimensions = (unsigned)spec->kind <= DEVICE_EMBEDDING ? of_kinds[spec->kind] : 0;
	uint64_t elements = 1;

	if (!spec->name || !*spec->name || strlen(spec->name) >= DEVICE_NAME_MAX)
		return device_fail(device, -EINVAL, "a parameter's name must have 1 to %d bytes",
				   DEVICE_NAME_MAX - 1);
	if (!dimensions)
		return device_fail(device, -EINVAL, "parameter %s: kind %d is not known",
				   spec->name, (int)spec->kind);
	if (spec->group >= DEVICE_GROUPS_MAX)
		return device_fail(device, -EINVAL, "parameter %s: group %u is not below %d",
				   spec->name, spec->group, DEVICE_GROUPS_MAX);
	if (spec->start >= DEVICE_STARTS_MAX)
		return device_fail(device, -EINVAL, "parameter %s: start %u is not below %d",
				   spec->name, spec->start, DEVICE_STARTS_MAX);
	for (unsigned i = 0; i < 4; i++) {
		if (i < dimensions ? !spec->shape[i] : spec->shape[i])
			return device_fail(device, -EINVAL,
					   "parameter %s: dimension %u is %u; this kind has %u",
					   spec->name, i, spec->shape[i], dimensions);
		if (i < dimensions)
			elements *= spec->shape[i];
		if (elements > INT32_MAX)
			return device_fail(device, -EINVAL,
					   "parameter %s has more than 2^31 - 1 elements",
					   spec->name);
	}
	if (device_params_find(params, spec->name))
		return device_fail(device, -EEXIST, "parameter %s was declared before", spec->name);
	*ret_elements = elements;
	return 0;
}

/* Computes the shape of this rank's part. */
static int check_split(struct device_params *params, const struct device_param_spec *spec,
		       uint32_t *ret_shape)
{
	uint32_t dimension = spec->split_dimension, ranges = spec->split_ranges;
	uint32_t world = device_params_group(params);

	memcpy(ret_shape, spec->shape, sizeof(spec->shape));
	if (!dimension || !params->group)
		return 0;
	ranges = ranges ? ranges : 1;
	if (dimension > 4 || !spec->shape[dimension - 1] ||
	    spec->shape[dimension - 1] % ((uint64_t)ranges * world))
		return device_fail(params->device, -EINVAL,
				   "parameter %s: dimension %u of length %u cannot be split into "
				   "%u range%s for each of %u ranks",
				   spec->name, dimension,
				   dimension <= 4 ? spec->shape[dimension - 1] : 0, ranges,
				   ranges == 1 ? "" : "s", world);
	ret_shape[dimension - 1] /= world;
	return 0;
}

int device_param_add(struct device_params *params, const struct device_param_spec *spec,
		     struct device_param **ret_param)
{
	uint32_t shape[4];
	size_t elements = 0;

	if (params->allocated)
		return device_fail(params->device, -EBUSY,
				   "the store is closed to further parameters");
	int r = check_spec(params, spec, &elements);
	if (r == 0)
		r = check_split(params, spec, shape);
	if (r < 0)
		return r;
	if (params->count == params->capacity) {
		size_t capacity = params->capacity ? params->capacity * 2 : 64;
		struct device_param **items =
			realloc(params->items, capacity * sizeof(struct device_param *));
		if (!items)
			return -ENOMEM;
		params->items = items;
		params->capacity = capacity;
	}
	struct device_param *param = calloc(1, sizeof(*param));
	if (!param)
		return -ENOMEM;
	param->store = params;
	param->spec = *spec;
	strcpy(param->name, spec->name);
	param->spec.name = param->name;
	if (param->spec.lr_factor == 0)
		param->spec.lr_factor = 1;
	param->index = params->count;
	memcpy(param->shape, shape, sizeof(shape));
	param->elements = elements;
	if (device_param_is_split(param))
		param->elements /= device_params_group(params);
	params->items[params->count++] = param;
	*ret_param = param;
	return 0;
}

void device_param_freeze(struct device_param *param, bool frozen)
{
	param->spec.frozen = frozen;
}

void device_param_set_start(struct device_param *param, uint32_t start)
{
	param->spec.start = start;
}

void device_param_set_outer(struct device_param *param)
{
	param->spec.outer = true;
}

int device_param_scale_rate(struct device_param *param, float lr_factor)
{
	struct device_params *params = param->store;

	if (params->allocated)
		return device_fail(params->device, -EBUSY,
				   "parameter %s: its store is allocated already", param->name);
	if (!(lr_factor > 0))
		return device_fail(params->device, -EINVAL,
				   "parameter %s: the factor %g on its learning rate is not above "
				   "0",
				   param->name, (double)lr_factor);
	param->spec.lr_factor = lr_factor;
	return 0;
}

size_t device_param_room(const struct device_param *param)
{
	return (param->elements + 15) / 16 * 16;
}

static int check_optimizer(const struct device_params *params,
			   const struct device_optimizer_spec *optimizer)
{
	struct device *device = params->device;
	bool by_matrix, shards = optimizer->shard && device_world(device) > 1;

	if (optimizer->kind >= DEVICE_OPTIMIZER_COUNT)
		return device_fail(device, -EINVAL, "optimizer %d is not known",
				   (int)optimizer->kind);
	by_matrix = DEVICE_OPTIMIZERS_BY_MATRIX >> optimizer->kind & 1;
	if (by_matrix && !optimizer->ns_steps)
		return device_fail(device, -EINVAL, "optimizer %s: ns_steps is 0",
				   device_optimizers[optimizer->kind].name);
	if (shards && (by_matrix || optimizer->centralize))
		return device_fail(device, -ENOTSUP,
				   "%s needs whole gradients, of which a sharded store has parts",
				   by_matrix ? device_optimizers[optimizer->kind].name
					     : "the centralization of gradients");
	return 0;
}

/* Sets offsets in the order of declaration. */
static void place(struct device_params *params)
{
	size_t offset = 0, rest = 0;

	for (size_t i = 0; i < params->count; i++) {
		struct device_param *param = params->items[i];

		param->offset = offset;
		param->rest_offset = rest;
		offset += device_param_room(param);
		rest += device_param_matrix(param) ? 0 : device_param_room(param);
	}
}

int device_params_allocate(struct device_params *params,
			   const struct device_optimizer_spec *optimizer)
{
	struct device *device = params->device;

	if (params->allocated)
		return device_fail(device, -EBUSY, "the store is allocated already");
	int r = optimizer ? check_optimizer(params, optimizer) : 0;
	if (r < 0)
		return r;
	params->has_optimizer = optimizer;
	if (optimizer)
		params->optimizer = *optimizer;
	params->shards.world = 1;
	if (optimizer && optimizer->shard && device_world(device) > 1) {
		params->shards.world = device->options.comm->world;
		params->shards.rank = device->options.comm->rank;
		params->shards.gathers = optimizer->shard >= DEVICE_SHARD_PARAMETERS;
		params->shards.divides_values = device->copies_weights || params->shards.gathers;
		shards_plan(params, device->bucket_elements);
	} else {
		place(params);
	}
	r = device->ops->params_allocate(params);
	params->allocated = r == 0;
	return r;
}

size_t device_params_count(const struct device_params *params)
{
	return params->count;
}

struct device_param *device_params_at(const struct device_params *params, size_t index)
{
	return index < params->count ? params->items[index] : NULL;
}

struct device_param *device_params_find(const struct device_params *params, const char *name)
{
	for (size_t i = 0; i < params->count; i++)
		if (strcmp(params->items[i]->name, name) == 0)
			return params->items[i];
	return NULL;
}

const struct device_param_spec *device_param_spec(const struct device_param *param)
{
	return &param->spec;
}

size_t device_param_elements(const struct device_param *param)
{
	size_t elements = param->elements;

	return device_param_is_split(param) ? elements * device_params_group(param->store)
					    : elements;
}

bool device_param_trains(const struct device_param *param)
{
	return param && !param->spec.frozen && param->spec.kind != DEVICE_BUFFER;
}

uint32_t device_param_row(const struct device_param *param)
{
	const uint32_t *shape = param->shape;

	return shape[1] && param->spec.kind != DEVICE_EMBEDDING
		       ? (uint32_t)(param->elements / shape[0])
		       : 0;
}

uint32_t device_param_matrix(const struct device_param *param)
{
	const struct device_params *params = param->store;

	if (!params->has_optimizer ||
	    !(DEVICE_OPTIMIZERS_BY_MATRIX >> params->optimizer.kind & 1) || param->spec.outer)
		return 0;
	return device_param_row(param) ? param->shape[0] : 0;
}

size_t device_params_largest(const struct device_params *params)
{
	size_t elements = 1;

	for (size_t i = 0; i < params->count; i++)
		if (device_param_elements(params->items[i]) > elements)
			elements = device_param_elements(params->items[i]);
	return elements;
}

const struct device_optimizer *device_params_optimizer(const struct device_params *params)
{
	return params->has_optimizer ? &device_optimizers[params->optimizer.kind] : NULL;
}

bool device_params_have(const struct device_params *params, enum device_slot slot)
{
	const struct device_optimizer *optimizer = device_params_optimizer(params);

	if (slot == DEVICE_VALUE || !optimizer)
		return slot == DEVICE_VALUE;
	if (slot == DEVICE_EMA)
		return params->optimizer.ema;
	if (slot == DEVICE_UNPERTURBED)
		return params->optimizer.perturbs;
#define KEPT(constant, name, ...)                                                                  \
	if (slot == DEVICE_##constant)                                                             \
		return params->optimizer.name;
	DEVICE_AVERAGES(KEPT)
#undef KEPT
	return slot == DEVICE_GRAD || slot < DEVICE_STATE + optimizer->states;
}

static bool slot_lacks_matrices(enum device_slot slot)
{
	return slot >= DEVICE_STATE + DEVICE_MATRIX_STATES &&
	       slot < DEVICE_STATE + DEVICE_STATES_MAX;
}

bool device_param_takes(const struct device_param *param, enum device_slot slot)
{
	return device_params_have(param->store, slot) &&
	       !(slot_lacks_matrices(slot) && device_param_matrix(param));
}

size_t device_param_offset(const struct device_param *param, enum device_slot slot)
{
	return slot_lacks_matrices(slot) ? param->rest_offset : param->offset;
}

size_t device_params_elements(const struct device_params *params, enum device_slot slot)
{
	const struct device_shards *shards = &params->shards;
	size_t elements = 0;

	if (shards_divide_slot(params, slot))
		return shards->elements - shards->divided + shards->divided / shards->world;
	if (shards->world > 1)
		return shards->elements;
	for (size_t i = 0; i < params->count; i++)
		if (device_param_takes(params->items[i], slot))
			elements += device_param_room(params->items[i]);
	return elements;
}

bool device_slot_lasts(enum device_slot slot)
{
	return slot != DEVICE_GRAD && slot != DEVICE_UNPERTURBED;
}

bool device_param_has(const struct device_param *param, enum device_slot slot)
{
	bool of_buffers = slot == DEVICE_VALUE || slot == DEVICE_EMA;

#define OF_BUFFERS(constant, name, prefix, buffers, ...)                                           \
	if (slot == DEVICE_##constant)                                                             \
		of_buffers = buffers;
	DEVICE_AVERAGES(OF_BUFFERS)
#undef OF_BUFFERS
	return device_param_takes(param, slot) && (of_buffers || param->spec.kind != DEVICE_BUFFER);
}

static int check_slot(const struct device_param *param, enum device_slot slot)
{
	const struct device_params *params = param->store;

	if (!params->allocated)
		return device_fail(params->device, -EINVAL, "the parameters are not allocated yet");
	return device_param_has(param, slot) ? 0 : -ENOENT;
}

static int check_comm(const struct device_params *params, const struct comm *comm, int r)
{
	return r < 0 ? device_fail(params->device, r, "%s", comm_error(comm)) : 0;
}

/* ---- shards: ranges of what this rank has of a tensor ---- */

bool device_param_is_divided(const struct device_param *param, enum device_slot slot)
{
	return device_param_is_split(param) || device_param_is_sharded(param, slot);
}

/* Writes this rank's range; values[param->elements]. */
static int write_own(struct device_param *param, enum device_slot slot, const float *values)
{
	struct device_range range = {0, param->elements};

	if (device_param_is_sharded(param, slot))
		range = shards_part(param, param->store->shards.rank);
	return param->store->device->ops->param_write(param, slot, &range, values);
}

/* Collects the ranks' ranges on all ranks; ret_values[param->elements]. */
static int read_own(struct device_param *param, enum device_slot slot, float *ret_values)
{
	struct device *device = param->store->device;
	const struct device_shards *shards = &param->store->shards;
	bool sharded = device_param_is_sharded(param, slot);
	struct device_range range = {0, param->elements};

	if (sharded)
		range = shards_part(param, shards->rank);
	int r = device->ops->param_read(param, slot, &range, ret_values);
	/* after a failure, too: the other ranks take part */
	for (unsigned rank = 0; rank < shards->world && sharded; rank++) {
		struct device_range theirs = shards_part(param, rank);
		int sent = theirs.count
				   ? comm_broadcast(device->options.comm, ret_values + theirs.first,
						    theirs.count * sizeof(float), rank)
				   : 0;

		if (sent < 0)
			return check_comm(param->store, device->options.comm, sent);
	}
	return r;
}

/* ---- parts of split tensors, over the group ---- */

/*
 * Where a rank's part lies in the whole tensor: `blocks` of equal length, equally far apart. Each
 * range of the split dimension has one for each index of the dimensions before it.
 */
struct split_layout {
	size_t blocks, length, apart;
};

size_t device_param_split_blocks(const struct device_param *param)
{
	const struct device_param_spec *spec = &param->spec;
	size_t blocks = spec->split_ranges ? spec->split_ranges : 1;

	for (uint32_t i = 0; i + 1 < spec->split_dimension; i++)
		blocks *= spec->shape[i];
	return blocks;
}

static struct split_layout split_layout(const struct device_param *param)
{
	struct split_layout layout = {.blocks = device_param_split_blocks(param)};

	layout.length = param->elements / layout.blocks;
	layout.apart = layout.length * param->store->group->world;
	return layout;
}

/* Writes this rank's part of the whole tensor. */
static int write_part(struct device_param *param, enum device_slot slot, const float *values)
{
	if (!device_param_is_split(param))
		return write_own(param, slot, values);
	struct split_layout layout = split_layout(param);
	float *part = malloc(param->elements * sizeof(float));
	if (!part)
		return -ENOMEM;
	values += param->store->group->rank * layout.length;
	for (size_t i = 0; i < layout.blocks; i++)
		memcpy(part + i * layout.length, values + i * layout.apart,
		       layout.length * sizeof(float));
	int r = write_own(param, slot, part);
	free(part);
	return r;
}

/* Collects the whole tensor. Takes part even after a failure, since the other ranks wait for it. */
static int read_parts(struct device_param *param, enum device_slot slot, float *ret_values)
{
	if (!device_param_is_split(param))
		return read_own(param, slot, ret_values);
	struct split_layout layout = split_layout(param);
	struct comm *group = param->store->group;
	size_t size = param->elements * sizeof(float), length = layout.length;
	float *parts = calloc(group->world + 1, size);
	if (!parts)
		return -ENOMEM;
	float *all = parts + param->elements;
	int r = read_own(param, slot, parts);
	int gathered = check_comm(param->store, group, comm_gather(group, parts, size, all));
	for (size_t i = 0; i < group->world * layout.blocks && gathered == 0; i++)
		memcpy(ret_values + i % layout.blocks * layout.apart + i / layout.blocks * length,
		       all + i * length, length * sizeof(float));
	free(parts);
	return r < 0 ? r : gathered;
}

/* ---- rank 0 alone, and the others that follow it ---- */

/* What rank 0 sends to ranks in device_params_follow(). */
struct shared_access {
	uint32_t param; /* index; past the end: no more follow */
	uint32_t slot;
	bool writes;
};

/* Sends bytes of rank 0 to all ranks: to its group, whose ranks send them to the other groups. */
static int share(const struct device_params *params, void *bytes, size_t size)
{
	struct comm *comm = params->device->options.comm, *group = params->group;

	if (group && comm->rank == 0) {
		int r = check_comm(params, group, comm_broadcast(group, bytes, size, 0));

		if (r < 0)
			return r;
	}
	return check_comm(params, comm, comm_broadcast(comm, bytes, size, 0));
}

static int share_access(const struct device_params *params, struct shared_access *access)
{
	return share(params, access, sizeof(*access));
}

/* Takes rank 0's values on all ranks, of the whole tensor. */
static int write_shared(struct device_param *param, enum device_slot slot, float *values)
{
	int r = share(param->store, values, device_param_elements(param) * sizeof(float));

	return r < 0 ? r : write_part(param, slot, values);
}

int device_param_write(struct device_param *param, enum device_slot slot, const float *values)
{
	struct device_params *params = param->store;
	int r = check_slot(param, slot);

	if (r < 0 || !params->leads || !device_param_is_divided(param, slot))
		return r < 0 ? r : write_part(param, slot, values);
	r = share_access(params, &(struct shared_access){(uint32_t)param->index, slot, true});
	/* the root of a broadcast only reads */
	return r < 0 ? r : write_shared(param, slot, (float *)values);
}

int device_param_read(struct device_param *param, enum device_slot slot, float *ret_values)
{
	struct device_params *params = param->store;
	int r = check_slot(param, slot);

	if (r == 0 && params->leads && device_param_is_divided(param, slot))
		r = share_access(params,
				 &(struct shared_access){(uint32_t)param->index, slot, false});
	return r < 0 ? r : read_parts(param, slot, ret_values);
}

static bool params_are_divided(const struct device_params *params)
{
	return params->group || params->shards.world > 1;
}

void device_params_lead(struct device_params *params)
{
	params->leads = params_are_divided(params);
}

int device_params_dismiss(struct device_params *params)
{
	if (!params->leads)
		return 0;
	params->leads = false;
	return share_access(params, &(struct shared_access){UINT32_MAX, 0, false});
}

int device_params_follow(struct device_params *params)
{
	struct shared_access access = {0, 0, false};
	int result = 0;

	if (!params_are_divided(params))
		return 0;
	float *values = malloc(device_params_largest(params) * sizeof(float));
	if (!values)
		return -ENOMEM;
	for (;;) {
		int r = share_access(params, &access);

		if (r < 0 || access.param >= params->count) {
			free(values);
			return r < 0 ? r : result;
		}
		struct device_param *param = params->items[access.param];
		r = access.writes ? write_shared(param, access.slot, values)
				  : read_parts(param, access.slot, values);
		result = result < 0 ? result : r;
	}
}

bool device_params_are_sharded(const struct device_params *params)
{
	return params->shards.world > 1;
}

bool device_params_are_gathered(const struct device_params *params)
{
	return params->shards.gathers;
}

int device_params_exchange(struct device_params *params, enum device_slot slot)
{
	if (!params->allocated || !device_params_have(params, slot) ||
	    (slot != DEVICE_EMA && slot != DEVICE_SWA))
		return device_fail(params->device, -EINVAL,
				   "the parameters have no average %d to exchange values with",
				   (int)slot);
	return params->device->ops->params_exchange(params, slot);
}

uint64_t device_params_bytes(const struct device_params *params)
{
	uint64_t bytes = params->copies_bytes;

	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++)
		if (device_params_have(params, slot))
			bytes += device_params_elements(params, slot) * sizeof(float);
	return bytes;
}

void device_params_drop_gradients(struct device_params *params)
{
	if (params->allocated && params->has_optimizer)
		params->device->ops->drop_gradients(params);
}

int device_params_get_state(struct device_params *params, struct device_params_state *ret_state)
{
	return params->allocated ? params->device->ops->get_state(params, ret_state) : -EINVAL;
}

int device_params_set_state(struct device_params *params, const struct device_params_state *state)
{
	return params->allocated ? params->device->ops->set_state(params, state) : -EINVAL;
}
