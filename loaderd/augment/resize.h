/*
 * Resizing of a picture of 8-bit interleaved pixels by itself, as the pipeline's resize does it:
 * what packimg stores and what the daemon delivers are made by one filter (resize/resize.h has it,
 * and all that a pipeline needs besides).
 *
 * A struct resize belongs to one thread and allocates only when it meets a larger job than before.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { RESIZE_SIDE_MAX = 65535 }; /* pixels, either side of source and target */

struct resize;

int resize_new(struct resize **ret_resize);
void resize_free(struct resize *resize);

struct resize_picture {
	const uint8_t *data; /* height rows of width * channels bytes; nothing else is read */
	size_t stride;       /* bytes from row to row */
	uint32_t width, height, channels;
	/* the part that is resized, in pixels from the first one's edge */
	double x, y, extent_width, extent_height;
};

/*
 * Resamples a picture to width x height with its channels. 0; -EINVAL when the part leaves the
 * picture or a limit; -ENOMEM.
 */
int resize_image(struct resize *resize, const struct resize_picture *picture, uint32_t width,
		 uint32_t height, uint8_t *pixels, size_t stride);
