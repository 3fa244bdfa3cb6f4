/*
 * Our own decoder of baseline JPEGs: a region of the image, at 1/1, 1/2, 1/4 or 1/8, to RGB. Pixels
 * equal libjpeg-turbo's (JDCT_ISLOW, fancy upsampling) bit for bit, save where coefficients are so
 * large, as no image of 8 bits has them, that 16 bits overflow between the passes of the inverse
 * DCT: there ours are still the same on every CPU, the library's are not. With an index into the
 * scan it begins at the region's first row, in each row at the last entry before the region,
 * decodes several rows at once and leaves each at the region's right edge; without one it decodes
 * from the top, or from the last restart marker before the region, and drops what is above: one
 * image after the other, or several side by side where it is told of them (jpeg_baseline_ahead):
 * samples then cost 114 us in place of 162 (short side 256) and 431 us in place of 551 (originals),
 * on one core. Nothing below the region is read. One object belongs to one thread and keeps its
 * buffers from image to image.
 *
 * The file may be a mapping whose owner changes it while it is decoded: it is read in place, but
 * each byte once. Headers and tables are copied as they are parsed (jpeg_frame.c). Of the scan
 * jpeg_unstuff() makes a copy, as it takes the stuffed zeros out, and everything else reads that
 * copy; what it decides by the bytes is only where it stops: at every step it reads inside the size
 * given, goes forward, and writes no more than it has read, whatever the bytes were and have become
 * since. Nothing that was found in one reading is used with another: images that were decoded ahead
 * keep the frame that they were decoded by. The index is read again with every row, so it must not
 * change: the caller copies it. jpeg_baseline_index() goes over the scan twice, so its file must
 * not change either.
 */
#pragma once

#include "format/codec/scratch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jpeg_baseline;

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder);
/*
 * Has its memory paid for by a budget that outlives it; at once after it was made. What is decoded
 * ahead is not counted: its own limits keep that below 52 MiB, whatever the images.
 */
void jpeg_baseline_budget(struct jpeg_baseline *decoder, struct scratch_budget *budget);
void jpeg_baseline_free(struct jpeg_baseline *decoder);

struct jpeg_source {
	const uint8_t *data; /* the file */
	size_t size;
	/* side data as jpeg_baseline_index makes it, which nobody changes; NULL: none */
	const uint8_t *index;
	size_t index_size;
	uint32_t width, height; /* that the image must have, pixels as stored */
	uint32_t components;    /* likewise */
	uint32_t denominator;   /* of the scale to decode at: 1, 2, 4 or 8; 0 is 1 */
};

/*
 * A region to be decoded: width x height pixels from (x, y), all at the source's scale, where the
 * image has 1/denominator of its pixels on a side, rounded up.
 */
struct jpeg_region {
	struct jpeg_source source;
	uint32_t x, y, width, height;
};

/*
 * Says which regions will be begun next, best JPEG_AHEAD_MAX (jpeg_ahead.h). Of those without an
 * index, if they are several, the entropy stage is done at once, side by side, in less than half
 * the time; the others, and those with errors, wait for their turn. Takes back what was begun and
 * what was said before; the files' bytes must not change or go until the next call.
 */
void jpeg_baseline_ahead(struct jpeg_baseline *decoder, const struct jpeg_region *regions,
			 uint32_t count);

/* Where pixels lie: row i of the region, 3 * width bytes, at data + i * stride, or i % ring. */
struct jpeg_rows {
	const uint8_t *data;
	size_t stride;
	uint32_t ring; /* 0: all rows stay */
};

/*
 * Begins with a region. Its pixels come when jpeg_baseline_rows asks for them. whole: all rows stay
 * until the next begin, 3 * width bytes behind each other; else those before the 15 latest may go.
 * -ENOTSUP: a kind of JPEG that it does not read; -EBADMSG: damaged headers, other dimensions, or
 * an index that does not fit; -EINVAL: region outside the image, another denominator; -ENOMEM.
 */
int jpeg_baseline_begin(struct jpeg_baseline *decoder, const struct jpeg_region *region, bool whole,
			struct jpeg_rows *ret_rows);
/*
 * Samples of one component that the region touches, as they are coded. Row i, of width samples,
 * lies in row (first + i) % ring of data; stride bytes of a row may be read.
 */
struct jpeg_samples {
	const uint8_t *data;
	size_t stride;
	uint32_t ring, first;
	uint32_t width, height;
	uint32_t h_factor, v_factor; /* pixels, at the scale asked for, that a sample stands for */
	uint32_t column, row;        /* of the component's samples: the first */
};

/*
 * As jpeg_baseline_begin, but for the samples of Y, Cb and Cr in place of pixels.
 * jpeg_baseline_rows then makes those that its rows touch; of each component the 24 rows before the
 * end last asked for stay. -ENOTSUP: grey, too.
 */
int jpeg_baseline_begin_planes(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			       struct jpeg_samples ret_samples[3]);
/*
 * Makes the region's rows before end, and says how many there are now (may be NULL). source's bytes
 * are read. -EBADMSG: damaged, or the index is wrong.
 */
int jpeg_baseline_rows(struct jpeg_baseline *decoder, uint32_t end, uint32_t *ret_ready);

/*
 * In place of jpeg_baseline_rows: decodes the region's coefficients and drops them. What the
 * entropy stage alone costs. -EBADMSG.
 */
int jpeg_baseline_coefficients(struct jpeg_baseline *decoder);

/*
 * Decodes the whole scan once and makes its index (SPEC.md, "JPEG index"), valid until the next
 * call; with entries before the same columns as source->index, if there is one, else where they
 * pay. -ENOTSUP: a kind of JPEG that has none (restart markers within rows among them); -EBADMSG:
 * damaged.
 */
int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			const uint8_t **ret_index, size_t *ret_size);
