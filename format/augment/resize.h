/*
 * Resizes an image of 8-bit interleaved pixels outside a pipeline. Uses the filter of the
 * pipeline's resize transform, so that packimg's stored pixels and the daemon's output agree.
 * resize/resize.h describes the filter and has the interface for pipelines.
 *
 * A struct resize belongs to one thread. It allocates memory only when a job is larger than all
 * before.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { RESIZE_SIDE_MAX = 65535 }; /* pixels per side, of source and target */

struct resize;

int resize_new(struct resize **ret_resize);
void resize_free(struct resize *resize);

struct resize_picture {
	const uint8_t
		*data; /* height rows of width * channels bytes; bytes between rows are not read */
	size_t stride; /* bytes between row starts */
	uint32_t width, height, channels;
	/* The region to resize, in pixels from the left and top edges. */
	double x, y, extent_width, extent_height;
};

/*
 * Resamples the region to width x height with the same number of channels. Returns -EINVAL if the
 * region leaves the picture or a limit is exceeded, -ENOMEM if out of memory.
 */
int resize_image(struct resize *resize, const struct resize_picture *picture, uint32_t width,
		 uint32_t height, uint8_t *pixels, size_t stride);
