/*
 * Converts coefficients to RGB for one region of a baseline JPEG: determines the MCUs needed and
 * runs inverse DCT, upsampling and colour conversion, one MCU row after another while it is in the
 * L1 cache. Buffers are not as tall as the region unless requested: sample planes hold two MCU
 * rows, and finished rows go to a ring. If the caller wants the planes themselves, they hold more
 * rows. One object belongs to one thread and keeps its memory from image to image.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"
#include "format/codec/scratch.h"

enum {
	/*
	 * Rows in the ring: those that an MCU row completes, and as many that the reader still
	 * uses.
	 */
	JPEG_PIXELS_RING = 32,
	JPEG_PIXELS_HELD = 15,
	/*
	 * The same for a plane requested itself: the ring has at least 32 rows, and an MCU row
	 * completes 8 or a quarter of them.
	 */
	JPEG_PIXELS_PLANE_RING = 32,
	JPEG_PIXELS_PLANE_HELD = 24,
};

/* Requested output: pixels of the latest rows, pixels of all rows, or the samples of the planes. */
enum jpeg_pixels_form { JPEG_PIXELS_ROWS, JPEG_PIXELS_WHOLE, JPEG_PIXELS_PLANES };

/* The part of a component that the region needs. */
struct jpeg_plane {
	/* width and height of a block in samples: 8, 4, 2 or 1 */
	uint32_t size;
	uint32_t width, height;            /* of the component, in samples without padding */
	uint32_t h_factor, v_factor;       /* pixels per sample */
	bool smooth;                       /* triangle upsampling, else replication */
	uint32_t column_first, column_end; /* samples that pixels or their upsampling depend on */
	uint32_t row_first, row_end;
	uint32_t left;     /* first column kept, a multiple of the block size */
	uint32_t row_mask; /* row y is stored as row y & row_mask of samples */
	uint8_t *samples;  /* starts at column left; rows have unused bytes on either side */
	size_t stride;
	/*
	 * [v][blocks_wide]: positions of a row's blocks, from column left on, within the
	 * coefficients of an MCU row, which start at the first MCU kept
	 */
	const uint32_t *places;
	uint32_t blocks_wide;
	int16_t quant[64] __attribute__((aligned(64))); /* in the order that the kernels expect */
};

struct jpeg_pixels {
	const struct jpeg_frame *frame;
	const struct jpeg_kernels *kernels;
	enum jpeg_pixels_form form;
	uint32_t denominator;         /* of the scale */
	uint32_t x, y, width, height; /* the region, in pixels at that scale */
	struct jpeg_mcus mcus;        /* MCUs to decode for the region */
	struct jpeg_plane planes[JPEG_COMPONENTS_MAX];
	uint32_t rows_done; /* of the region */
	/* row i of the region is row i & row_mask of rgb */
	uint32_t row_mask;
	size_t stride; /* of rgb, bytes */
	struct scratch places, samples, rows, rgb;
};

/* A zeroed object is valid and has no budget. */
void jpeg_pixels_init(struct jpeg_pixels *pixels, struct scratch_budget *budget);
void jpeg_pixels_deinit(struct jpeg_pixels *pixels);
/*
 * Prepares a region inside the frame, which must outlive the use. At least the JPEG_PIXELS_HELD
 * rows before those completed by the latest jpeg_pixels_row() stay valid; of planes,
 * JPEG_PIXELS_PLANE_HELD. -ENOMEM.
 */
int jpeg_pixels_begin(struct jpeg_pixels *pixels, const struct jpeg_frame *frame,
		      const struct jpeg_region *region, enum jpeg_pixels_form form);
/* Returns the location of component i, if planes were requested. */
void jpeg_pixels_samples(const struct jpeg_pixels *pixels, uint32_t i,
			 struct jpeg_samples *ret_samples);
/*
 * Processes the next MCU row that the region needs. coefficients of its MCUs are in coded order and
 * start with the first MCU kept. Completes rows up to rows_done.
 */
void jpeg_pixels_row(struct jpeg_pixels *pixels, uint32_t mcu_row, const int16_t *coefficients);
