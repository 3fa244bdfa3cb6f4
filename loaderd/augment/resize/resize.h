/*
 * Resizing of 8-bit interleaved pixels: antialiased separable bilinear, as Pillow's BILINEAR and
 * torchvision's antialias=True compute it (a triangle whose support grows with the ratio when
 * shrinking, plain bilinear when enlarging).
 *
 * A struct resize holds the tables and rows of one thread and allocates only when it meets a larger
 * job than before. All instruction sets give the same bytes: weights are integers of 14 bits that
 * sum to exactly one, the value between the horizontal and the vertical pass has 6 fractional bits,
 * and both passes round to nearest.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "loaderd/augment/resize.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RESIZE_ROWS_HELD = 8,
	RESIZE_STREAM_UNIT = 32, /* what begins and ends what is written past the cache */
};

/* With a given instruction set, which the machine must have (for tests). */
int resize_new_isa(enum cpu_isa isa, struct resize **ret_resize);

struct resize_source {
	const uint8_t *data; /* height rows of width * channels bytes; nothing else is read */
	size_t stride;       /* bytes from row to row */
	/*
	 * 0: all rows are there; else, a power of two: row y lies where row (first + y) % ring
	 * would
	 */
	uint32_t ring;
	uint32_t first;
	/*
	 * With a ring: makes the rows before end; those RESIZE_ROWS_HELD or more before it may go.
	 * Negative errors end the job.
	 */
	int (*rows)(void *context, uint32_t end);
	void *context;
	uint32_t width, height;
	uint32_t channels; /* 1..4, interleaved */
	bool cold;         /* probably not in cache: fetch ahead */
};

/*
 * One direction. Output i (0 .. count-1) has its centre at source position origin + (i + 0.5) *
 * step, where pixel p of the source covers p .. p+1. Centres lie within low .. high.
 */
struct resize_axis {
	double origin;
	double step;        /* source pixels per output pixel, > 0 */
	uint32_t low, high; /* only source pixels low .. high-1 count: the edges of the crop */
	uint32_t count;
	bool reverse; /* outputs in reverse order: a flip */
};

/*
 * Takes the finished rows one by one, top to bottom (y.reverse: bottom to top); pixels are valid
 * during the call.
 */
typedef void (*resize_sink)(void *context, uint32_t row, const uint8_t *pixels);
/*
 * Says where the next row is to be made, which the sink then gets; NULL: in a place of resize's
 * own.
 */
typedef uint8_t *(*resize_place)(void *context, uint32_t row);

struct resize_target {
	uint8_t *data;    /* y.count rows of x.count * channels bytes; NULL when sink is set */
	ptrdiff_t stride; /* bytes from row to row */
	/*
	 * of resize_region with data: past the cache; data, stride and a row's bytes are multiples
	 * of RESIZE_STREAM_UNIT, a fence is the caller's
	 */
	bool stream;
	/*
	 * 1..4, at least the source's; grey spreads to three; a fourth that the source lacks is
	 * zero
	 */
	uint32_t channels;
	resize_sink sink;
	resize_place place; /* NULL, or with a sink */
	void *context;
};

/*
 * Resamples a region. 0; -EINVAL when an axis leaves the source or a limit; -ENOMEM; what
 * source->rows failed with.
 */
int resize_region(struct resize *resize, const struct resize_source *source,
		  const struct resize_axis *x, const struct resize_axis *y,
		  const struct resize_target *target);

/*
 * One direction of a bicubic resize: pixels 0 .. size - 1 of what is resized become `grid` ones, of
 * which `count` from `first` on are made.
 */
struct cubic_axis {
	uint32_t size, grid, first, count;
	int64_t place; /* in the source, of pixel 0; may lie outside if what is made does not need
			  it */
	bool reverse;
};

/*
 * Resamples a region of three channels with Pillow's bicubic filter, byte for byte
 * (resize_cubic.h). Errors as resize_region, and -EFBIG where outputs are made of more than 256 MiB
 * between the passes; target->stream makes no difference.
 */
int resize_cubic(struct resize *resize, const struct resize_source *source,
		 const struct cubic_axis *x, const struct cubic_axis *y,
		 const struct resize_target *target);

/*
 * One of the planes of a picture: a source of one channel with a ring, and its axes; samples are
 * centred in the pixels they stand for.
 */
struct resize_plane {
	struct resize_source source;
	/* in samples of this plane; counts and reversals are the same for all */
	struct resize_axis x, y;
};

enum { RESIZE_PLANE_ROWS_HELD = 24 };

/*
 * Resamples Y, Cb and Cr, each by itself, to RGB of 3 or 4 channels, converted as JFIF 1.02 has it
 * from values with 7 fractional bits. The two chroma planes have equal axes. A plane's rows are
 * asked for one band at a time, always those of the plane that is most behind; those
 * RESIZE_PLANE_ROWS_HELD or more before the end asked for last of any, in that plane's measure, may
 * go. Errors as resize_region.
 */
int resize_planes(struct resize *resize, const struct resize_plane planes[3],
		  const struct resize_target *target);
