/* What can be said of image files from their bytes, without decoding: JPEG's end. And turning pixels. */
#include "image.h"
#include "text.h"

#include <errno.h>
#include <string.h>

/* Offset of the first scan's entropy-coded bytes; 0 when the markers do not lead to one. */
static size_t jpeg_scan_offset(const uint8_t *data, size_t size)
{
	size_t at = 2;

	while (at + 4 <= size) {
		size_t length;

		if (data[at] != 0xff)
			return 0;
		if (data[at + 1] == 0xff) { /* fill byte */
			at++;
			continue;
		}
		if (data[at + 1] == 0x01 || (data[at + 1] >= 0xd0 && data[at + 1] <= 0xd8)) {
			at += 2;
			continue;
		}
		length = (size_t)data[at + 2] << 8 | data[at + 3];
		if (length < 2 || length > size - at - 2)
			return 0;
		if (data[at + 1] == 0xda)
			return at + 2 + length;
		at += 2 + length;
	}
	return 0;
}

int jpeg_check_end(const uint8_t *data, size_t size, struct packimg_error *error)
{
	size_t scan = jpeg_scan_offset(data, size);
	const uint8_t *p = data + size;

	if (!scan)
		return text_error(error, -EBADMSG, "truncated JPEG: it ends before its first scan");
	/* Inside a scan an FF byte is always followed by 00 or a restart marker, so the last FFD9 can only be the end. */
	while ((p = memrchr(data + scan, 0xd9, (size_t)(p - data) - scan)))
		if (p > data + scan && p[-1] == 0xff)
			return 0;
	return text_error(error, -EBADMSG, "truncated JPEG: it has no end marker");
}

void image_orient(const uint8_t *source, uint32_t width, uint32_t height, uint32_t channels,
		  uint8_t orientation, uint8_t *target)
{
	/* Where the stored pixel (x, y) goes: orientation 2 and 4 mirror, 3 turns by half, 5..8 swap the axes. */
	bool swap = orientation >= 5;
	bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
	bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
	size_t upright_width = swap ? height : width, upright_height = swap ? width : height;

	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			size_t column = swap ? y : x, row = swap ? x : y;
			uint8_t *to;

			if (flip_x)
				column = upright_width - 1 - column;
			if (flip_y)
				row = upright_height - 1 - row;
			to = target + (row * upright_width + column) * channels;
			for (uint32_t c = 0; c < channels; c++)
				to[c] = *source++;
		}
	}
}
