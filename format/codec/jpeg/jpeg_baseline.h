/*
 * Our own decoder of baseline JPEGs: decodes a region at 1/1, 1/2, 1/4 or 1/8 scale to RGB. Pixels
 * equal those of libjpeg-turbo (JDCT_ISLOW, fancy upsampling) bit for bit, except when
 * coefficients, larger than in any 8-bit image, overflow 16 bits between the passes of the inverse
 * DCT: then ours still agree on every CPU, those of the library do not. With an index into the
 * scan, decoding starts at the first row of the region, in each row at the last entry before the
 * region, handles several rows at once and stops each at the right edge of the region. Without one
 * it starts at the top, or at the last restart marker before the region, and drops the rows above:
 * one image after another, or several side by side if announced (jpeg_baseline_batched()). Side by
 * side a sample costs 114 us instead of 162 (short side 256) and 431 us instead of 551 (originals),
 * on one core. Nothing below the region is read. One object belongs to one thread and keeps its
 * buffers from image to image.
 *
 * The file may be a mapping that its owner changes during decoding: it is read in place, but each
 * byte once. Headers and tables are copied as they are parsed (jpeg_frame.c). jpeg_unstuff() copies
 * the scan while it removes the stuffed zeros, and all later stages read that copy. The bytes only
 * decide where jpeg_unstuff() stops: at every step it reads inside the given size, moves forward,
 * and writes no more than it has read, whatever the bytes are or become. Data of one reading is
 * never combined with data of another: images decoded ahead keep the frame they were decoded with.
 * The index is read again for every row, so it must not change: the caller copies it.
 * jpeg_baseline_index() passes over the scan twice, so its file must not change either.
 */
#pragma once

#include "format/codec/scratch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jpeg_baseline;

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder);
/*
 * Charges the decoder's memory to a budget, which must outlive it. Call directly after creation.
 * Images decoded ahead are not charged: their own limits keep them below 52 MiB, whatever the
 * images.
 */
void jpeg_baseline_budget(struct jpeg_baseline *decoder, struct scratch_budget *budget);
void jpeg_baseline_free(struct jpeg_baseline *decoder);

struct jpeg_source {
	const uint8_t *data; /* the file */
	size_t size;
	/* side data from jpeg_baseline_index(), must not change; NULL if none */
	const uint8_t *index;
	size_t index_size;
	uint32_t width, height; /* expected size of the image, pixels as stored */
	uint32_t components;    /* expected number */
	uint32_t denominator;   /* of the decoding scale: 1, 2, 4 or 8; 0 means 1 */
};

/*
 * A region to decode: width x height pixels from (x, y), all at the scale of the source, at which
 * each side of the image has 1/denominator of its pixels, rounded up.
 */
struct jpeg_region {
	struct jpeg_source source;
	uint32_t x, y, width, height;
};

/*
 * Announces the regions to begin next, ideally JPEG_BATCHED_MAX (jpeg_batched.h). Runs the entropy
 * stage of those without an index side by side, in less than half the time, if there are several.
 * The others, and those with errors, are decoded when begun. Cancels the decode in progress and
 * earlier announcements. The files' bytes must stay valid and unchanged until the next call.
 */
void jpeg_baseline_batched(struct jpeg_baseline *decoder, const struct jpeg_region *regions,
			   uint32_t count);

/*
 * Location of pixels: row i of the region, 3 * width bytes, is at data + i * stride, or data + (i %
 * ring) * stride if ring is not 0.
 */
struct jpeg_rows {
	const uint8_t *data;
	size_t stride;
	uint32_t ring; /* 0 if all rows stay valid */
};

/*
 * Begins a region; jpeg_baseline_rows() then produces its pixels. If whole is true, all rows stay
 * valid until the next begin, packed at 3 * width bytes each; otherwise rows before the latest 15
 * may be overwritten. -ENOTSUP for an unsupported kind of JPEG; -EBADMSG for damaged headers, a
 * different image size, or an index that does not match; -EINVAL for a region outside the image or
 * another denominator; -ENOMEM.
 */
int jpeg_baseline_begin(struct jpeg_baseline *decoder, const struct jpeg_region *region, bool whole,
			struct jpeg_rows *ret_rows);
/*
 * Samples of one component that the region touches, as coded. Row i, of width samples, is row
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
 * jpeg_baseline_rows() then produces the samples that its rows touch; of each component the 24 rows
 * before the end last requested stay valid. -ENOTSUP for grey images as well.
 */
int jpeg_baseline_begin_planes(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			       struct jpeg_samples ret_samples[3]);
/*
 * Produces the rows of the region before end; *ret_ready is the number available now (may be NULL).
 * Reads the bytes of the source. -EBADMSG if damaged or the index is wrong.
 */
int jpeg_baseline_rows(struct jpeg_baseline *decoder, uint32_t end, uint32_t *ret_ready);

/*
 * Call instead of jpeg_baseline_rows() to measure the entropy stage alone: decodes the coefficients
 * of the region and drops them. -EBADMSG.
 */
int jpeg_baseline_coefficients(struct jpeg_baseline *decoder);

/*
 * Decodes the whole scan once and builds its index (SPEC.md, "JPEG index"), valid until the next
 * call. Entries use the columns of source->index if given, else those that pay off. -ENOTSUP for a
 * kind of JPEG that gets no index (such as restart markers within rows); -EBADMSG if damaged.
 */
int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			const uint8_t **ret_index, size_t *ret_size);
