/*
 * Our own decoder of baseline JPEGs: a region of the image, at full scale, to RGB. Pixels equal libjpeg-turbo's (JDCT_ISLOW,
 * fancy upsampling) bit for bit. With an index into the scan it begins at the region's first row, decodes several rows at once and leaves each at
 * the region's right edge; without one it decodes from the top and drops the rows above. Nothing below the region is read. One object belongs to
 * one thread and keeps its buffers from image to image.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct jpeg_baseline;

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder);
void jpeg_baseline_free(struct jpeg_baseline *decoder);

struct jpeg_source {
	const uint8_t *data;      /* the file */
	size_t size;
	const uint8_t *index;     /* side data as jpeg_baseline_index makes it; NULL: none */
	size_t index_size;
	uint32_t width, height;   /* that the image must have, pixels as stored */
	uint32_t components;      /* likewise */
};

/*
 * Decodes width x height pixels from (x, y). The result holds exactly the region, rows of 3 * width bytes, and is valid until the
 * next call. -ENOTSUP: a kind of JPEG that it does not read; -EBADMSG: damaged as far as the region needs it, other dimensions, or an index that
 * does not fit (libjpeg-turbo may decide what to make of it); -EINVAL: region outside the image; -ENOMEM.
 */
int jpeg_baseline_decode(struct jpeg_baseline *decoder, const struct jpeg_source *source, uint32_t x, uint32_t y,
			 uint32_t width, uint32_t height, const uint8_t **ret_pixels);

/*
 * Decodes the whole scan once and makes its index (SPEC.md, "JPEG index"), valid until the next call. source->index is ignored. -ENOTSUP: a kind of
 * JPEG that has none (restart intervals among them: they carry their own); -EBADMSG: damaged.
 */
int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source, const uint8_t **ret_index,
			size_t *ret_size);
