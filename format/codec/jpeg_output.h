/*
 * Destination manager for libjpeg: one buffer that doubles when full and is reused for the next
 * image. Embedded in its owner, one per compressor, one thread. Raises out-of-memory through the
 * compressor's trap.
 */
#pragma once

#include "format/codec/jpeg_common.h"

struct jpeg_output {
	struct jpeg_destination_mgr
		manager; /* must be first: libjpeg passes back a pointer to it */
	uint8_t *data;
	size_t size; /* allocated */
};

/*
 * Initialises the manager. Returns 0 or -ENOMEM. Then set it as dest of a compressor whose error
 * manager is a jpeg_trap.
 */
int jpeg_output_init(struct jpeg_output *output);
void jpeg_output_deinit(struct jpeg_output *output);
/* Returns the size in bytes of the image finished last. */
size_t jpeg_output_used(const struct jpeg_output *output);
