/*
 * The ranges of a file that hold the stored bytes of one sample: of its first image, and of the
 * further images that a feed delivers. Ranges that lie close together become one, so that a sample
 * whose images follow one another is read at once.
 */
#pragma once

#include "format/base/schema.h"
#include "format/packimg.h"

#include <stdint.h>

enum {
	IO_PARTS_MAX = 1 + SCHEMA_IMAGES_MAX, /* images of a sample */
	/*
	 * Alignment of offset, length and memory for O_DIRECT: the largest that usual devices
	 * require.
	 */
	IO_BLOCK = 4096,
	/* To read so many bytes too many costs less than another read. */
	IO_GAP_MAX = 64 << 10,
};

struct io_extent {
	uint64_t begin, end; /* offsets in the file; begin is a multiple of IO_BLOCK */
};

/*
 * Returns the range of an image's data, with its side data if these begin less than IO_BLOCK behind
 * the data. *ret_side_offset: offset of the side data in the file, or 0 if the range does not
 * contain them.
 */
struct io_extent io_extent_of(const struct packimg_sample *image, uint64_t *ret_side_offset);
/*
 * Merges `count` ranges of one file, at most IO_PARTS_MAX, of which the distance is less than
 * IO_GAP_MAX. Returns the number of ranges left, in the file's order. of[i]: where range i went.
 */
uint32_t io_extents_merge(struct io_extent *extents, uint32_t count, uint8_t *of);
