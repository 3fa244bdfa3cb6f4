/*
 * Resizes 8-bit interleaved pixels: antialiased separable bilinear, as Pillow's BILINEAR and
 * torchvision's antialias=True compute it (a triangle filter whose support grows with the ratio
 * when shrinking, plain bilinear when enlarging). Also bicubic (resize_cubic.h) and YCbCr planes.
 *
 * A struct resize holds the tables and row buffers of one thread and allocates only when a job is
 * larger than all before. All instruction sets produce the same bytes. For bilinear, weights are
 * 14-bit integers that sum to exactly one, values between the horizontal and the vertical pass have
 * 6 fractional bits, and both passes round to nearest.
 */
#pragma once

#include "format/augment/resize.h"
#include "format/base/system/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RESIZE_ROWS_HELD = 8,
	RESIZE_STREAM_UNIT = 32, /* bytes; alignment and size unit of non-temporal stores */
};

/* Creates a resize for an instruction set, which the CPU must support (for tests). */
int resize_new_isa(enum cpu_isa isa, struct resize **ret_resize);

struct resize_source {
	const uint8_t *data; /* height rows of width * channels bytes; no other bytes are read */
	size_t stride;       /* bytes between row starts */
	/*
	 * 0 if all rows are present. Otherwise a power of two: row y is stored at row (first + y) %
	 * ring.
	 */
	uint32_t ring;
	uint32_t first;
	/*
	 * With a ring: produces all rows below `end`. Rows RESIZE_ROWS_HELD or more before `end`
	 * may be overwritten. A negative errno ends the job.
	 */
	int (*rows)(void *context, uint32_t end);
	void *context;
	uint32_t width, height;
	uint32_t channels; /* 1..4, interleaved */
	bool cold;         /* probably not cached: prefetch */
};

/*
 * One axis. The centre of output i (0 .. count-1) is at source position origin + (i + 0.5) * step,
 * where source pixel p covers p .. p+1. Centres lie within low .. high.
 */
struct resize_axis {
	double origin;
	double step;        /* source pixels per output pixel, > 0 */
	uint32_t low, high; /* only source pixels low .. high-1 are used: the edges of the crop */
	uint32_t count;
	bool reverse; /* store outputs in reverse order: a flip */
};

/*
 * Receives finished rows one by one, top to bottom (bottom to top if y.reverse). `pixels` is valid
 * during the call only.
 */
typedef void (*resize_sink)(void *context, uint32_t row, const uint8_t *pixels);
/*
 * Returns the address at which to make the next row, which is then passed to the sink; NULL to use
 * resize's own buffer.
 */
typedef uint8_t *(*resize_place)(void *context, uint32_t row);

struct resize_target {
	uint8_t *data;    /* y.count rows of x.count * channels bytes; NULL if sink is set */
	ptrdiff_t stride; /* bytes between row starts */
	/*
	 * Use non-temporal stores; only for resize_region() with data. data, stride and the bytes
	 * per row must be multiples of RESIZE_STREAM_UNIT. The caller issues the fence.
	 */
	bool stream;
	/*
	 * 1..4, at least the source's. Grey is copied to three channels; a fourth channel that the
	 * source lacks is zero.
	 */
	uint32_t channels;
	resize_sink sink;
	resize_place place; /* optional, only with a sink */
	void *context;
};

/*
 * Resamples a region. Returns -EINVAL if an axis leaves the source or a limit is exceeded, -ENOMEM,
 * or the error of source->rows.
 */
int resize_region(struct resize *resize, const struct resize_source *source,
		  const struct resize_axis *x, const struct resize_axis *y,
		  const struct resize_target *target);

/*
 * One axis of a bicubic resize: pixels 0 .. size - 1 of the region are resized to `grid` pixels, of
 * which `count` from `first` on are produced.
 */
struct cubic_axis {
	uint32_t size, grid, first, count;
	/*
	 * source position of pixel 0 of the region; may lie outside the source if the outputs do
	 * not need that pixel
	 */
	int64_t place;
	bool reverse;
};

/*
 * Resamples a region of three channels with Pillow's bicubic filter, byte for byte
 * (resize_cubic.h). Returns the errors of resize_region(), or -EFBIG if the rows kept between the
 * passes exceed 256 MiB. Ignores target->stream.
 */
int resize_cubic(struct resize *resize, const struct resize_source *source,
		 const struct cubic_axis *x, const struct cubic_axis *y,
		 const struct resize_target *target);

/*
 * One plane of a picture: a one-channel source with a ring, and its axes. Samples are centred in
 * the pixels they stand for.
 */
struct resize_plane {
	struct resize_source source;
	/* In samples of this plane. All planes have the same counts and reversals. */
	struct resize_axis x, y;
};

enum { RESIZE_PLANE_ROWS_HELD = 24 };

/*
 * Resamples Y, Cb and Cr separately and converts them to RGB with 3 or 4 channels, as JFIF 1.02
 * specifies, from values with 7 fractional bits. Both chroma planes must have equal axes. Requests
 * the rows of a plane one band at a time, always of the plane that is furthest behind. Rows may be
 * overwritten once they are RESIZE_PLANE_ROWS_HELD or more rows of their plane before the end last
 * requested for any plane. Errors as resize_region().
 */
int resize_planes(struct resize *resize, const struct resize_plane planes[3],
		  const struct resize_target *target);
