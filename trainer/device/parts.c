#include "trainer/device/parts.h"
#include "trainer/device/shards.h"

#include <errno.h>

/* Ranks divide tensors from this number of elements each, so that the index stays short. */
#define PARTS_MIN 4096

static const struct device_part nothing = {.slices = 1, .blocks = 1};

unsigned device_params_ranks(const struct device_params *params, unsigned *ret_rank)
{
	const struct comm *comm = params->device->options.comm, *group = params->group;
	unsigned slices = device_params_group(params);

	*ret_rank = (comm ? comm->rank * slices : 0) + (group ? group->rank : 0);
	return device_world(params->device) * slices;
}

/* A range of slice `slice` of a parameter. */
static struct device_part part_of(const struct device_param *param, unsigned slice,
				  struct device_range range)
{
	struct device_part part = nothing;

	if (device_param_is_split(param)) {
		part.slices = device_params_group(param->store);
		part.slice = slice;
		part.blocks = device_param_split_blocks(param);
	}
	part.first = range.first;
	part.count = range.count;
	return part;
}

/* The range that copy `index` of several equal ones writes. */
static struct device_range share_range(struct device_range range, size_t copies, size_t index)
{
	size_t each = (range.count + copies - 1) / copies;
	size_t first = index * each, last = first + each;

	first = first < range.count ? first : range.count;
	last = last < range.count ? last : range.count;
	return (struct device_range){range.first + first, last - first};
}

struct device_part device_param_saved_part(const struct device_param *param, enum device_slot slot,
					   unsigned rank)
{
	const struct device_params *params = param->store;
	unsigned slices = device_params_group(params);
	unsigned data_rank = rank / slices, slice = rank % slices;
	struct device_range range = {0, param->elements};
	size_t copies = 1, index = 0;

	if (device_param_is_sharded(param, slot)) {
		range = shards_part(param, data_rank);
	} else {
		copies = device_world(params->device);
		index = data_rank;
	}
	if (!device_param_is_split(param)) {
		copies *= slices;
		index = index * slices + slice;
	}
	if (param->spec.kind != DEVICE_BUFFER && range.count >= copies * PARTS_MIN)
		range = share_range(range, copies, index);
	else if (index)
		range.count = 0;
	return part_of(param, slice, range);
}

struct device_part device_param_needed_part(const struct device_param *param, enum device_slot slot)
{
	const struct device_params *params = param->store;
	struct device_range range = {0, param->elements};
	/* where ranks keep copies of all values, backends make these from what is written */
	bool whole =
		slot == DEVICE_VALUE && params->device->copies_weights && !params->shards.gathers;

	if (device_param_is_sharded(param, slot) && !whole)
		range = shards_part(param, params->shards.rank);
	return part_of(param, params->group ? params->group->rank : 0, range);
}

int device_param_read_part(struct device_param *param, enum device_slot slot,
			   const struct device_part *part, float *ret_values)
{
	struct device_range range = {part->first, part->count};

	if (!device_param_has(param, slot))
		return -ENOENT;
	return param->store->device->ops->param_read(param, slot, &range, ret_values);
}

int device_param_write_part(struct device_param *param, enum device_slot slot, const float *values)
{
	struct device_range range = {0, param->elements};

	if (!device_param_has(param, slot))
		return -ENOENT;
	if (device_param_is_sharded(param, slot))
		range = shards_part(param, param->store->shards.rank);
	return param->store->device->ops->param_write(param, slot, &range, values);
}
