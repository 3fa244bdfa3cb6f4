#include "format/codec/raster.h"

#include <string.h>

enum {
	RUNS_NUMBER_BYTES = 3, /* bytes of a number at most; 21 bits, more than any width */
};

static inline uint32_t element_at(const uint8_t *pixels, size_t element_size)
{
	return element_size == 1 ? pixels[0] : (uint32_t)pixels[0] | (uint32_t)pixels[1] << 8;
}

/* Returns the elements from `x` on that are equal, at least 1. */
static uint32_t run_length(const uint8_t *row, uint32_t x, uint32_t width, size_t element_size)
{
	uint32_t value = element_at(row + x * element_size, element_size), end = x + 1;

	while (end < width && element_at(row + end * element_size, element_size) == value)
		end++;
	return end - x;
}

static size_t number_size(uint32_t number)
{
	return number < 0x80 ? 1 : number < 0x4000 ? 2 : 3;
}

/* Writes a number, the low 7 bits first. The top bit of a byte says that another follows. */
static uint8_t *put_number(uint8_t *output, uint32_t number)
{
	for (; number >= 0x80; number >>= 7)
		*output++ = (uint8_t)(number | 0x80);
	*output++ = (uint8_t)number;
	return output;
}

static uint32_t count_runs(const uint8_t *row, uint32_t width, size_t element_size)
{
	uint32_t count = 0;

	for (uint32_t x = 0; x < width; count++)
		x += run_length(row, x, width, element_size);
	return count;
}

size_t runs_encode(const uint8_t *pixels, uint32_t width, uint32_t rows, size_t element_size,
		   uint8_t *output, size_t room)
{
	size_t stride = width * element_size;
	const uint8_t *end = output + room;
	uint8_t *at = output;

	for (uint32_t y = 0; y < rows; y++, pixels += stride) {
		bool repeats = y > 0 && memcmp(pixels, pixels - stride, stride) == 0;
		uint32_t count = repeats ? 0 : count_runs(pixels, width, element_size);

		if ((size_t)(end - at) < number_size(count))
			return 0;
		at = put_number(at, count);
		for (uint32_t x = 0; count > 0; count--) {
			uint32_t length = run_length(pixels, x, width, element_size);

			if ((size_t)(end - at) < number_size(length) + element_size)
				return 0;
			at = put_number(at, length);
			memcpy(at, pixels + x * element_size, element_size);
			at += element_size;
			x += length;
		}
	}
	return (size_t)(at - output);
}

/* Reads a number and moves *at behind it. Returns false if the data end or it takes more bytes. */
static inline bool take_number(const uint8_t **at, const uint8_t *end, uint32_t *ret_number)
{
	uint32_t number = 0;

	for (unsigned i = 0; i < RUNS_NUMBER_BYTES && *at < end; i++) {
		uint8_t byte = *(*at)++;

		number |= (uint32_t)(byte & 0x7f) << 7 * i;
		if (byte < 0x80) {
			*ret_number = number;
			return true;
		}
	}
	return false;
}

static inline void fill_run(uint8_t *pixels, uint32_t length, const uint8_t *value,
			    size_t element_size)
{
	if (element_size == 1) {
		memset(pixels, value[0], length);
		return;
	}
	for (uint32_t i = 0; i < length; i++)
		memcpy(pixels + 2 * i, value, 2);
}

/* Decodes `count` runs to a row. */
static const char *take_row(const uint8_t **at, const uint8_t *end, uint32_t count, uint32_t width,
			    size_t element_size, uint8_t *row)
{
	uint32_t x = 0, length;

	for (; count > 0; count--) {
		if (!take_number(at, end, &length) || (size_t)(end - *at) < element_size)
			return "its runs end early";
		if (length == 0 || length > width - x)
			return "the lengths of its runs do not add up to the width";
		fill_run(row + x * element_size, length, *at, element_size);
		*at += element_size;
		x += length;
	}
	return x == width ? NULL : "the lengths of its runs do not add up to the width";
}

const char *runs_decode(const uint8_t *data, size_t size, uint32_t width, uint32_t rows,
			size_t element_size, uint8_t *pixels, uint32_t *ret_row)
{
	const uint8_t *end = data + size;
	size_t stride = width * element_size;
	uint32_t count;

	for (uint32_t y = 0; y < rows; y++, pixels += stride) {
		const char *fault = NULL;

		*ret_row = y;
		if (!take_number(&data, end, &count))
			return "its number of runs is cut off or has more than 3 bytes";
		if (count > 0)
			fault = take_row(&data, end, count, width, element_size, pixels);
		else if (y == 0)
			fault = "it repeats a row above the band";
		else
			memcpy(pixels, pixels - stride, stride);
		if (fault)
			return fault;
	}
	return data == end ? NULL : "bytes follow it";
}
