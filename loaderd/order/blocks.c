#include "loaderd/order/blocks.h"

#include <assert.h>

void block_order_init(struct block_order *order, const struct block_sizes *sizes, uint64_t count,
		      uint64_t seed, uint64_t pass)
{
	uint64_t blocks = count / sizes->samples + (count % sizes->samples != 0);
	*order = (struct block_order){
		.sizes = *sizes,
		.count = count,
		.block_count = blocks,
		.seed = seed,
		.pass = pass,
		.missing = blocks * sizes->samples - count,
	};
	permutation_init(&order->blocks, blocks, seed, pass, 0, RANDOM_BLOCKS);
	order->short_slot = permutation_find(&order->blocks, blocks - 1);
}

/*
 * Every block is given b places, so that those of a group begin at a multiple of g * b. The last
 * block has none for the samples that it lacks: points behind it move up by as many.
 */
static uint64_t move_up(const struct block_order *order, uint64_t point, uint64_t end)
{
	return point < end - order->missing ? point : point + order->missing;
}

uint64_t block_order_at(const struct block_order *order, uint64_t point)
{
	const uint64_t each = order->sizes.samples, group_blocks = order->sizes.blocks;
	const uint64_t group_size = each * group_blocks;
	assert(point < order->count);
	uint64_t short_group = order->short_slot / group_blocks;
	uint64_t padded = move_up(order, point, (short_group + 1) * group_size);
	uint64_t group = padded / group_size, first_block = group * group_blocks;
	uint64_t blocks = order->block_count - first_block;
	uint64_t size = (blocks < group_blocks ? blocks : group_blocks) * each;
	if (group == short_group)
		size -= order->missing;

	struct permutation within;
	permutation_init(&within, size, order->seed, order->pass, group, RANDOM_GROUPS);
	uint64_t place = permutation_at(&within, padded % group_size);
	if (group == short_group)
		place = move_up(order, place, (order->short_slot - first_block + 1) * each);
	return permutation_at(&order->blocks, first_block + place / each) * each + place % each;
}
