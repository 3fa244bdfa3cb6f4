/*
 * Where libjpeg puts a JPEG that is made: one buffer that doubles as it fills and stays for the
 * next image. Embedded in its owner, one per compressor, one thread. Running out of memory is
 * raised through the compressor's trap.
 */
#pragma once

#include "format/codec/jpeg_common.h"

struct jpeg_output {
	struct jpeg_destination_mgr manager; /* first: libjpeg hands back a pointer to it */
	uint8_t *data;
	size_t size; /* allocated */
};

/*
 * 0 or -ENOMEM. The manager is then a compressor's dest, whose error manager must be a jpeg_trap.
 */
int jpeg_output_init(struct jpeg_output *output);
void jpeg_output_deinit(struct jpeg_output *output);
/* Bytes of the image that was just finished. */
size_t jpeg_output_used(const struct jpeg_output *output);
