/*
 * Coefficients of several images without an index, decoded from the tops of their scans side by
 * side: each is one Huffman stream, and four of them take hardly longer than one. For images whose
 * rows are asked for soon afterwards. Only what is certain to be what jpeg_sequential.h would have
 * made is kept, so that whoever finds nothing here reads the image that way, errors included. One
 * object belongs to one thread and keeps its buffers. Scans are untrusted: work is bounded by their
 * bytes. What is kept between calls are coefficients and the frame that they were decoded by; the
 * file is not looked at again, whose headers may say something else by then. data is a name, never
 * followed once the image was decoded.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/jpeg/jpeg_streams.h"
#include "format/codec/scratch.h"

#include <stdbool.h>

enum {
	JPEG_AHEAD_MAX = 2 * JPEG_STREAMS, /* so that images of unequal length even out */
	JPEG_AHEAD_BLOCKS_MAX = 1 << 17,   /* that are kept, of all images together: 16 MiB */
	JPEG_AHEAD_BYTES_MAX = 3 << 20,    /* of a scan, that its rows are likely to take */
};

struct jpeg_ahead_image {
	/* What the caller fills in: */
	struct jpeg_frame frame;
	/* from `tables` below */
	const struct jpeg_table *dc[JPEG_COMPONENTS_MAX], *ac[JPEG_COMPONENTS_MAX];
	const uint8_t *data; /* of the file, for the caller to know it by */
	size_t size;
	struct jpeg_mcus kept;
	/* What comes of it: */
	bool done;
	int16_t *coefficients; /* of those, row by row, in coded order */
	/* On the way: */
	struct jpeg_cycle cycle;
	struct scratch scan, chunk; /* unstuffed bytes; the blocks that are being decoded */
	size_t bytes;               /* of the scan, that its rows are likely to take */
	uint32_t chunk_blocks;
	uint32_t left;        /* blocks from the chunk on */
	uint32_t row, column; /* MCU that the chunk begins with */
	int16_t predictors[JPEG_COMPONENTS_MAX];
};

struct jpeg_ahead {
	struct jpeg_ahead_image images[JPEG_AHEAD_MAX];
	uint32_t count;
	uint64_t blocks; /* that they keep */
	struct scratch coefficients;
	struct jpeg_tables tables; /* of the images */
};

void jpeg_ahead_init(struct jpeg_ahead *ahead);
void jpeg_ahead_deinit(struct jpeg_ahead *ahead);
/* Forgets all images. */
void jpeg_ahead_begin(struct jpeg_ahead *ahead);
/* The next image, to be filled in, then added; NULL: there are as many as can be. */
struct jpeg_ahead_image *jpeg_ahead_next(struct jpeg_ahead *ahead);
/* Adds it, unless it has restart markers, which lead to its rows faster, or is too large. */
void jpeg_ahead_add(struct jpeg_ahead *ahead);
/* Decodes them, the longest first, if they are two or more. */
void jpeg_ahead_run(struct jpeg_ahead *ahead);
