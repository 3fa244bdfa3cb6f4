/* Reference kernels of resize; the kernels of all other instruction sets must equal them. */
#include "format/augment/resize/resize_cubic.h"
#include "format/augment/resize/resize_kernels.h"

#include <string.h>

#include "format/augment/resize/resize_cubic.inc"
#include "format/augment/resize/resize_float.inc"
#include "format/augment/resize/resize_table.inc"

static size_t resize_prepare(struct resize_pass *pass)
{
	pass->row_size_min = 0;
	return 0;
}

static void resize_pack(struct resize_pass *pass)
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

static void resize_horizontal(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
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

/* Returns element i of an output row. Rounds off `shift` fractional bits of the sum. */
static int32_t vertical_element(const struct resize_terms *terms, uint32_t i, int shift)
{
	int32_t sum = 1 << (shift - 1);

	for (uint32_t k = 0; k < terms->count; k++)
		sum += (int16_t)terms->pairs[k][i] * (int16_t)terms->weights[k] +
		       (terms->pairs[k][i] >> 16) * (terms->weights[k] >> 16);
	return sum >> shift;
}

static void resize_vertical(const struct resize_terms *terms, uint32_t size, uint8_t *output,
			    bool stream)
{
	for (uint32_t i = 0; i < size; i++)
		output[i] = (uint8_t)vertical_element(terms, i, VERTICAL_SHIFT);
}

static int32_t saturate16(int32_t value)
{
	return value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
}

static uint8_t saturate8(int32_t value)
{
	return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

static int32_t multiply(int32_t value, int32_t factor)
{
	return (value * factor + (1 << 14)) >> 15;
}

static void resize_colour(const struct resize_terms planes[3], uint32_t count, uint32_t channels,
			  uint8_t *output)
{
	const int32_t half = 1 << (RESIZE_COLOUR_BITS - 1), middle = 128 << RESIZE_COLOUR_BITS;
	const int shift = VERTICAL_SHIFT - RESIZE_COLOUR_BITS; /* gives 8.7 fixed point */

	for (uint32_t i = 0; i < count; i++, output += channels) {
		int32_t y = vertical_element(&planes[0], i, shift) + half;
		int32_t cb = vertical_element(&planes[1], i, shift) - middle;
		int32_t cr = vertical_element(&planes[2], i, shift) - middle;
		int32_t red = cr + multiply(cr, RESIZE_RED_CR);
		int32_t green = multiply(cb, RESIZE_GREEN_CB) + multiply(cr, RESIZE_GREEN_CR) - cr;
		int32_t blue = 2 * cb + multiply(cb, RESIZE_BLUE_CB);

		output[0] = saturate8(saturate16(y + red) >> RESIZE_COLOUR_BITS);
		output[1] = saturate8(saturate16(y + green) >> RESIZE_COLOUR_BITS);
		output[2] = saturate8(saturate16(y + blue) >> RESIZE_COLOUR_BITS);
		if (channels == 4)
			output[3] = 0;
	}
}

const struct resize_kernels resize_kernels_c = RESIZE_KERNELS;
