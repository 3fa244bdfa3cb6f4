/* Reference kernels of resize; what the others must equal. */
#include "resize_kernels.h"

#include <string.h>

#include "resize_table.inc"

static size_t prepare(struct resize_pass *pass)
{
	pass->row_size_min = 0;
	return 0;
}

static void pack(struct resize_pass *pass)
{
}

static int32_t element(const struct resize_pass *pass, const uint8_t *row, uint32_t index)
{
	const struct resize_table *table = pass->table;
	uint32_t output = index / pass->target_channels;
	int channel = resize_channel(pass->source_channels, index % pass->target_channels);
	int32_t sum = 1 << (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS - 1);

	if (channel < 0)
		return 0;
	row += (size_t)table->start[output] * pass->source_channels + (unsigned)channel;
	for (uint32_t k = 0; k < table->taps; k++)
		sum += row[k * pass->source_channels] *
		       table->weight[(size_t)k * table->padded + output];
	return sum >> (RESIZE_WEIGHT_BITS - RESIZE_BETWEEN_BITS);
}

static void horizontal(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
		       const uint8_t *const rows[RESIZE_BAND], unsigned pair_count,
		       int32_t *const pairs[RESIZE_BAND / 2])
{
	uint32_t first = block * RESIZE_BLOCK;
	uint32_t size = block_count * RESIZE_BLOCK;
	uint32_t used = pass->elements - first < size ? pass->elements - first : size;

	for (unsigned pair = 0; pair < pair_count; pair++) {
		int32_t *output = pairs[pair];

		for (uint32_t i = 0; i < used; i++)
			output[i] = element(pass, rows[2 * pair], first + i) |
				    element(pass, rows[2 * pair + 1], first + i) << 16;
		memset(output + used, 0, (size - used) * sizeof(*output));
	}
}

static void vertical(const int32_t *const pairs[], const int32_t weights[], uint32_t pair_count,
		     uint32_t size, uint8_t *output)
{
	const int shift = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS;

	for (uint32_t i = 0; i < size; i++) {
		int32_t sum = 1 << (shift - 1);

		for (uint32_t k = 0; k < pair_count; k++)
			sum += (int16_t)pairs[k][i] * (int16_t)weights[k] +
			       (pairs[k][i] >> 16) * (weights[k] >> 16);
		output[i] = (uint8_t)(sum >> shift);
	}
}

const struct resize_kernels resize_kernels_c = {
	.build = table_build,
	.prepare = prepare,
	.pack = pack,
	.horizontal = horizontal,
	.vertical = vertical,
};
