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
	RESIZE_STREAM_UNIT = 32, /* alignment and size unit of non-temporal stores, in bytes */
};

/* Creates a struct resize for an instruction set, which the CPU must support. For tests. */
int resize_new_isa(enum cpu_isa isa, struct resize **ret_resize);

struct resize_source {
	const uint8_t
		*data; /* height rows of width * channels bytes; bytes between rows are not read */
	size_t stride; /* bytes between row starts */
	/*
	 * 0 if all rows are present. Otherwise a power of two: row y is stored at row (first + y) %
	 * ring.
	 */
	uint32_t ring;
	uint32_t first;
	/*
	 * With a ring: produces the rows before `end`. Rows RESIZE_ROWS_HELD or more before `end`
	 * may be overwritten. A negative errno ends the job.
	 */
	int (*rows)(void *context, uint32_t end);
	void *context;
	uint32_t width, height;
	uint32_t channels; /* 1..4, interleaved */
	bool cold;         /* probably not in the cache: prefetch */
};

/*
 * One axis of a resize. The centre of output i (0 .. count - 1) is at source position origin + (i +
 * 0.5) * step; source pixel p extends from p to p + 1. Centres are within low .. high.
 */
struct resize_axis {
	double origin;
	double step;        /* source pixels per output pixel, > 0 */
	uint32_t low, high; /* edges of the crop: only source pixels low .. high - 1 are used */
	uint32_t count;
	bool reverse; /* flip: store outputs in reverse order */
};

/*
 * Receives finished rows one by one, top to bottom (bottom to top if y.reverse). `pixels` is valid
 * only during the call.
 */
typedef void (*resize_sink)(void *context, uint32_t row, const uint8_t *pixels);
/*
 * Returns the address to which the next row is written before the sink receives it. NULL selects a
 * buffer of the struct resize.
 */
typedef uint8_t *(*resize_row_address)(void *context, uint32_t row);

struct resize_target {
	uint8_t *data;    /* y.count rows of x.count * channels bytes; NULL if sink is set */
	ptrdiff_t stride; /* bytes between row starts */
	/*
	 * Use non-temporal stores; only for resize_region() with data. data, stride and the bytes
	 * per row must be multiples of RESIZE_STREAM_UNIT. The caller issues the fence.
	 */
	bool stream;
	/*
	 * 1..4, at least source.channels. Grey is copied to three channels. A fourth channel that
	 * the source lacks is zero.
	 */
	uint32_t channels;
	resize_sink sink;
	resize_row_address row_address; /* optional, only with a sink */
	void *context;
};

/*
 * Resamples a region. Returns -EINVAL if an axis exceeds the source or a limit is exceeded,
 * -ENOMEM, or the error of source->rows.
 */
int resize_region(struct resize *resize, const struct resize_source *source,
		  const struct resize_axis *x, const struct resize_axis *y,
		  const struct resize_target *target);

/*
 * One axis of a bicubic resize. Pixels 0 .. size - 1 of the region are resized to `grid` pixels, of
 * which `count` pixels from `first` on are produced.
 */
struct cubic_axis {
	uint32_t size, grid, first, count;
	/*
	 * source position of pixel 0 of the region; may be outside the source if no output needs
	 * that pixel
	 */
	int64_t origin;
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
 * One plane of an image: a one-channel source with a ring, and its axes. A sample is centred in the
 * pixels that it covers.
 */
struct resize_plane {
	struct resize_source source;
	/* In samples of this plane. count and reverse are the same for all planes. */
	struct resize_axis x, y;
};

enum { RESIZE_PLANE_ROWS_HELD = 24 };

/*
 * Resamples Y, Cb and Cr separately and converts them to RGB with 3 or 4 channels, as JFIF 1.02
 * specifies, from values with 7 fractional bits. Both chroma planes must have equal axes. Requests
 * rows one band at a time, always of the plane that has advanced least. A row of a plane may be
 * overwritten once it is RESIZE_PLANE_ROWS_HELD or more rows before the last requested end, of any
 * plane. Errors as resize_region().
 */
int resize_planes(struct resize *resize, const struct resize_plane planes[3],
		  const struct resize_target *target);
