#include "format/codec/raster.h"

#include <string.h>

enum {
	RUNS_NUMBER_BYTES = 3, /* maximum bytes of a number: 21 bits, more than any width */
};

static inline uint32_t element_at(const uint8_t *pixels, size_t element_size)
{
	return element_size == 1 ? pixels[0] : (uint32_t)pixels[0] | (uint32_t)pixels[1] << 8;
}

/* Returns the number of equal elements from `x` on, at least 1. */
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

/*
 * Reads a number and advances *at. Returns false if the data ends early or the number is longer
 * than RUNS_NUMBER_BYTES.
 */
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

/*
 * Fills `size` bytes with an element. May overwrite the rest of the row, `room` bytes in all, which
 * the next runs fill.
 */
static inline void fill_run(uint8_t *pixels, size_t size, size_t room, const uint8_t *value,
			    size_t element_size)
{
	uint64_t element = element_at(value, element_size);
	uint64_t word = element * (element_size == 1 ? 0x0101010101010101 : 0x0001000100010001);
	const uint64_t words[8] = {word, word, word, word, word, word, word, word};
	size_t at = 0;

	for (; at < size && room - at >= sizeof(words); at += sizeof(words))
		memcpy(pixels + at, words, sizeof(words));
	for (; at < size; at += element_size)
		memcpy(pixels + at, value, element_size);
}

/* Decodes `count` runs to a row. element_size is a constant where this is inlined. */
static inline const char *take_runs(const uint8_t **at, const uint8_t *end, uint32_t count,
				    uint32_t width, size_t element_size, uint8_t *row)
{
	uint32_t x = 0, length;

	for (; count > 0; count--) {
		if (!take_number(at, end, &length) || (size_t)(end - *at) < element_size)
			return "its runs end early";
		if (length == 0 || length > width - x)
			return "the lengths of its runs do not add up to the width";
		fill_run(row + x * element_size, length * element_size, (width - x) * element_size,
			 *at, element_size);
		*at += element_size;
		x += length;
	}
	return x == width ? NULL : "the lengths of its runs do not add up to the width";
}

static const char *take_row(const uint8_t **at, const uint8_t *end, uint32_t count, uint32_t width,
			    size_t element_size, uint8_t *row)
{
	return element_size == 1 ? take_runs(at, end, count, width, 1, row)
				 : take_runs(at, end, count, width, 2, row);
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
