/*
 * Arbitrary indexes for a valid or damaged file. Even without checksums, decoding must end soon,
 * with an error or with pixels, and without invalid memory accesses (checked by sanitizers). The
 * input starts with the changes to make to a valid index.
 */
#include "format/codec/jpeg/jpeg_baseline.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_case.h"

#include <string.h>

enum { INDEX_MAX = 1 << 12, HEADER = 12 };

static struct jpeg_baseline *decoder;
static uint8_t buffer[INDEX_MAX], columns[JPEG_CASE_COLUMNS_MAX];
static volatile uint8_t sink;

/* Applies changes to a valid index. A change takes 3 bytes: offset, value, and kind of change. */
static size_t damage(uint8_t *index, size_t size, const uint8_t *data, uint32_t count)
{
	for (; count > 0; count--, data += 3) {
		size_t at = size > HEADER ? HEADER + data[0] % (size - HEADER) : 0;
		size_t length = size - at < 16 ? size - at : 16;

		switch (data[2] % 8) {
		case 0: /* offset anywhere, including the header */
			index[data[0] % size] ^= data[1];
			break;
		case 1:
			index[at] = data[1];
			break;
		case 2:
			memset(index + at, data[1], length);
			break;
		case 3: /* copy bytes of another row */
			memmove(index + at, index + HEADER + data[1] % (size - HEADER - length + 1),
				length);
			break;
		case 4: /* change a high byte, so that the value points far away */
			index[at + 1 < size ? at + 1 : at] = data[1];
			break;
		case 5: /* largest values: the end of the scan or beyond */
			memset(index + at, 0xff, length < 4 ? length : 4);
			break;
		case 6:
			size = data[1] % 2 ? size - data[1] % (size - 1) : size;
			break;
		default: /* flip a bit */
			index[at] ^= (uint8_t)(1u << data[1] % 8);
			break;
		}
		if (size <= HEADER)
			break;
	}
	return size;
}

static void decode(const struct jpeg_source *source, uint32_t x, uint32_t y, uint32_t width,
		   uint32_t height)
{
	const struct jpeg_region region = {*source, x, y, width, height};
	struct jpeg_rows rows;
	uint8_t sum = 0;

	if (jpeg_baseline_begin(decoder, &region, true, &rows) < 0 ||
	    jpeg_baseline_rows(decoder, height, NULL) < 0)
		return;
	for (size_t i = 0; i < (size_t)3 * width * height; i++)
		sum = (uint8_t)(sum + rows.data[i]);
	sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jpeg_case this;
	const uint8_t *index, *changes = data + 1;
	size_t index_size;
	uint32_t count;

	if ((!decoder && jpeg_baseline_new(&decoder) < 0) || size == 0)
		return 0;
	count = data[0] % 8;
	if (1 + 3 * (size_t)count > size)
		return 0;
	jpeg_case_build(&this, changes + 3 * count, size - 1 - 3 * count);
	struct jpeg_source source = {
		this.file,       this.size,       NULL, 0, this.width, this.height,
		this.components, this.denominator};
	if (data[0] & 8) {
		source.index = columns;
		source.index_size = jpeg_case_columns(&this, columns);
		if (source.index_size == 0)
			return 0;
	}
	if (jpeg_baseline_index(decoder, &source, &index, &index_size) < 0 ||
	    index_size > INDEX_MAX)
		return 0;
	memcpy(buffer, index, index_size);
	source.index_size = damage(buffer, index_size, changes, count);
	/* index at the end of the buffer, so that the sanitizer detects overreads */
	source.index = memmove(buffer + INDEX_MAX - source.index_size, buffer, source.index_size);
	decode(&source, 0, 0, this.scaled_width, this.scaled_height);
	decode(&source, this.x, this.y, this.region_width, this.region_height);
	return 0;
}
