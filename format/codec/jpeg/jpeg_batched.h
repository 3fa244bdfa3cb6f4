/*
 * Decodes the coefficients of several images without an index ahead, side by side from the tops of
 * their scans. Each image is one Huffman stream, and four streams take hardly longer than one.
 * Meant for images whose rows are requested soon afterwards. Keeps a result only if it certainly
 * equals that of jpeg_sequential.h. For an image without a result, the caller uses
 * jpeg_sequential.h, which reports the errors.
 *
 * One object belongs to one thread and keeps its buffers. Scans are untrusted: their size bounds
 * the work. Between calls the object keeps the coefficients and the frame that they were decoded
 * with. It does not read the file again, whose headers may have changed. After decoding, data only
 * identifies an image and is never dereferenced.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/jpeg/jpeg_streams.h"
#include "format/codec/scratch.h"

#include <stdbool.h>

enum {
	/* a multiple of JPEG_STREAMS, so that lanes stay busy when images differ in length */
	JPEG_BATCHED_MAX = 2 * JPEG_STREAMS,
	JPEG_BATCHED_BLOCKS_MAX = 1 << 17, /* limit of the blocks kept, over all images: 16 MiB */
	/* limit of the estimated scan bytes up to the last row kept of an image */
	JPEG_BATCHED_BYTES_MAX = 3 << 20,
};

struct jpeg_batched_image {
	/* Filled in by the caller: */
	struct jpeg_frame frame;
	/* tables from `tables` below */
	const struct jpeg_table *dc[JPEG_COMPONENTS_MAX], *ac[JPEG_COMPONENTS_MAX];
	const uint8_t *data; /* the file; identifies the image for the caller */
	size_t size;
	bool indexed; /* was decoded by an index */
	struct jpeg_mcus kept;
	/* Results: */
	bool done;
	int16_t *coefficients; /* coefficients of the kept MCUs, row by row, in coded order */
	/* State while decoding: */
	struct jpeg_cycle cycle;
	struct scratch scan, chunk; /* unstuffed bytes; blocks being decoded */
	size_t bytes;               /* estimated scan bytes up to the last row kept */
	uint32_t chunk_blocks;
	uint32_t left;        /* blocks not yet processed, including the chunk */
	uint32_t row, column; /* MCU at which the chunk begins */
	int16_t predictors[JPEG_COMPONENTS_MAX];
};

struct jpeg_batched {
	struct jpeg_batched_image images[JPEG_BATCHED_MAX];
	uint32_t count;
	uint64_t blocks; /* number of blocks kept, over all images */
	struct scratch coefficients;
	struct jpeg_tables tables; /* tables of the images */
};

void jpeg_batched_init(struct jpeg_batched *batch);
void jpeg_batched_deinit(struct jpeg_batched *batch);
/* Forgets all images. */
void jpeg_batched_begin(struct jpeg_batched *batch);
/* Returns the next image, to be filled in and then added; NULL if JPEG_BATCHED_MAX were added. */
struct jpeg_batched_image *jpeg_batched_next(struct jpeg_batched *batch);
/*
 * Adds the image of jpeg_batched_next(), unless it is too large or has restart markers. With
 * restart markers, jpeg_sequential.h skips to the rows faster.
 */
void jpeg_batched_add(struct jpeg_batched *batch);
/* Decodes the images, the longest first, if there are at least two. */
void jpeg_batched_run(struct jpeg_batched *batch);
