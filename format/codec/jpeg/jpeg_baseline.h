/*
 * Our own decoder of baseline JPEGs. Decodes a region at 1/1, 1/2, 1/4 or 1/8 scale to RGB. Pixels
 * equal those of libjpeg-turbo (JDCT_ISLOW, fancy upsampling) bit for bit. The only exception are
 * coefficients, larger than in any 8-bit image, that overflow 16 bits between the passes of the
 * inverse DCT: our pixels then still agree on every CPU, the library's do not.
 *
 * With an index into the scan, decoding starts in each MCU row of the region at the last entry
 * before the region and stops at the region's right edge; several rows are decoded at once. Without
 * an index, decoding starts at the top of the scan, or at the last restart marker before the
 * region, and the rows above the region are dropped. Such images are decoded one after another, or
 * several side by side if announced (jpeg_baseline_batched()): a sample then costs 114 us instead
 * of 162 (short side 256) and 431 us instead of 551 (originals), on one core. Nothing below the
 * region is read.
 *
 * The file may be a mapping that its owner changes during decoding: the decoder reads it in place,
 * but each byte once. jpeg_frame.c copies headers and tables as it parses them. jpeg_unstuff()
 * copies the scan while it removes the stuffed zeros, and all later stages read that copy.
 * jpeg_unstuff() reads inside the given size, moves forward at every step and writes no more than
 * it has read, whatever the bytes are or become. Images decoded ahead keep the frame that they were
 * decoded with, so data from two reads is never combined. The index must not change, because it is
 * read again for every row: the caller copies it. jpeg_baseline_index() reads the scan twice, so
 * its file must not change either.
 *
 * One object belongs to one thread and keeps its buffers from image to image.
 */
#pragma once

#include "format/codec/scratch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jpeg_baseline;

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder);
/*
 * Charges the decoder's memory to a budget, which must outlive the decoder. Call directly after
 * creation. Images decoded ahead are not charged: their own limits (jpeg_batched.h) keep them below
 * 52 MiB.
 */
void jpeg_baseline_budget(struct jpeg_baseline *decoder, struct scratch_budget *budget);
void jpeg_baseline_free(struct jpeg_baseline *decoder);

struct jpeg_source {
	const uint8_t *data; /* the file */
	size_t size;
	/* side data from jpeg_baseline_index(), which must not change; NULL if none */
	const uint8_t *index;
	size_t index_size;
	uint32_t width, height; /* expected size of the image, pixels as stored */
	uint32_t components;    /* expected number */
	uint32_t denominator;   /* decodes at 1/denominator scale: 1, 2, 4 or 8; 0 means 1 */
};

/*
 * A region to decode: width x height pixels from (x, y), in pixels of the scaled image. Each side
 * of the scaled image has 1/denominator of the pixels, rounded up.
 */
struct jpeg_region {
	struct jpeg_source source;
	uint32_t x, y, width, height;
};

/*
 * Announces the regions to begin next, ideally JPEG_BATCHED_MAX (jpeg_batched.h). If two or more
 * have no index, decodes their entropy-coded data side by side, in less than half the time. Regions
 * with an index and images with errors are decoded when begun. Cancels the decode in progress and
 * earlier announcements. The bytes of the files must stay valid and unchanged until the next call.
 */
void jpeg_baseline_batched(struct jpeg_baseline *decoder, const struct jpeg_region *regions,
			   uint32_t count);

/*
 * Decodes the coefficients of a region, for regions of the same image inside it that this decoder
 * or a borrower begins until the next call of this function or jpeg_baseline_batched(): these then
 * decode no entropy-coded data. Cancels the decode in progress and earlier announcements. -E2BIG
 * beyond JPEG_BATCHED_BLOCKS_MAX; otherwise the errors of jpeg_baseline_begin() and
 * jpeg_baseline_rows(). The file must stay valid, but its bytes are not read again.
 */
int jpeg_baseline_keep(struct jpeg_baseline *decoder, const struct jpeg_region *region);
/*
 * Lets the decoder begin regions from the coefficients that `lender` keeps, which must stay as they
 * are until then. NULL ends that.
 */
void jpeg_baseline_borrow(struct jpeg_baseline *decoder, const struct jpeg_baseline *lender);

/*
 * Location of pixels. Row i of the region, 3 * width bytes, is at data + i * stride, or at data +
 * (i % ring) * stride if ring is not 0.
 */
struct jpeg_rows {
	const uint8_t *data;
	size_t stride;
	uint32_t ring; /* 0 if all rows stay valid */
};

/*
 * Begins a region; jpeg_baseline_rows() then produces its pixels. If whole is true, all rows stay
 * valid until the next begin, packed at 3 * width bytes each. Otherwise all rows except the latest
 * 15 may be overwritten. -ENOTSUP for an unsupported kind of JPEG; -EBADMSG for damaged headers, a
 * different image size, or an index that does not match; -EINVAL for a region outside the image or
 * another denominator; -ENOMEM.
 */
int jpeg_baseline_begin(struct jpeg_baseline *decoder, const struct jpeg_region *region, bool whole,
			struct jpeg_rows *ret_rows);
/*
 * Samples of one component that the region touches, not upsampled. Row i, of width samples, is row
 * (first + i) % ring of data; stride bytes of a row are readable.
 */
struct jpeg_samples {
	const uint8_t *data;
	size_t stride;
	uint32_t ring, first;
	uint32_t width, height;
	uint32_t h_factor, v_factor; /* pixels per sample, at the requested scale */
	uint32_t column, row;        /* first sample, in the component's sample coordinates */
};

/*
 * Like jpeg_baseline_begin(), but for the samples of Y, Cb and Cr instead of pixels.
 * jpeg_baseline_rows() then produces the samples that its rows touch. Of each component, the 24
 * rows before the last requested end stay valid. -ENOTSUP for grey images too.
 */
int jpeg_baseline_begin_planes(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			       struct jpeg_samples ret_samples[3]);
/*
 * Decodes the rows of the region before end. *ret_ready (may be NULL) receives the number of rows
 * available now. Reads the file and the index of the region's source, which must still be valid.
 * -EBADMSG if the file is damaged or the index is wrong.
 */
int jpeg_baseline_rows(struct jpeg_baseline *decoder, uint32_t end, uint32_t *ret_ready);

/*
 * Decodes the coefficients of the region and drops them. Call it instead of jpeg_baseline_rows() to
 * measure entropy decoding alone. -EBADMSG.
 */
int jpeg_baseline_coefficients(struct jpeg_baseline *decoder);

/*
 * Decodes the whole scan once and builds its index (SPEC.md, "JPEG index"), valid until the next
 * call. The entries of a row start at the columns of source->index if there is one, otherwise at
 * columns chosen by jpeg_index_plan(). -ENOTSUP for a kind of JPEG that gets no index (such as
 * restart markers within rows); -EBADMSG if damaged.
 */
int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			const uint8_t **ret_index, size_t *ret_size);
