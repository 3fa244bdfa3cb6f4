/*
 * Our own decoder of baseline JPEGs: a region of the image, at full scale, to RGB. Pixels equal libjpeg-turbo's (JDCT_ISLOW,
 * fancy upsampling) bit for bit. Rows above the region are entropy-decoded and dropped, nothing below it is read. One object belongs to one thread and keeps
 * its buffers from image to image.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct jpeg_baseline;

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder);
void jpeg_baseline_free(struct jpeg_baseline *decoder);

/*
 * Decodes width x height pixels from (x, y) of a stored image that must be image_width x image_height. The result holds exactly the
 * region, rows of 3 * width bytes, and is valid until the next call. -ENOTSUP: a kind of JPEG that it does not read; -EBADMSG: damaged as far as
 * the region needs it, or other dimensions (in both cases libjpeg-turbo decides what to make of it); -EINVAL: region outside the image; -ENOMEM.
 */
int jpeg_baseline_decode(struct jpeg_baseline *decoder, const uint8_t *data, size_t size, uint32_t image_width,
			 uint32_t image_height, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
			 const uint8_t **ret_pixels);
