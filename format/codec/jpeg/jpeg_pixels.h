/*
 * Converts the coefficients of a baseline JPEG to RGB for one region. Determines the MCUs needed
 * and runs inverse DCT, upsampling and colour conversion, one MCU row at a time while it is in the
 * L1 cache. Unless all rows are requested, buffers are not as tall as the region: sample planes
 * hold two MCU rows, and finished rows go to a ring. Planes that the caller requests hold more
 * rows. One object belongs to one thread and keeps its memory from image to image.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"
#include "format/codec/scratch.h"

enum {
	/*
	 * Rows of the pixel ring: those that an MCU row completes, and as many earlier rows, which
	 * the caller still reads.
	 */
	JPEG_PIXELS_RING = 32,
	JPEG_PIXELS_HELD = 15,
	/*
	 * The same for planes requested by the caller. A plane's ring has at least this many rows;
	 * an MCU row completes 8 or a quarter of them.
	 */
	JPEG_PIXELS_PLANE_RING = 32,
	JPEG_PIXELS_PLANE_HELD = 24,
};

/* Requested output: pixels of the latest rows, pixels of all rows, or the samples of the planes. */
enum jpeg_pixels_form { JPEG_PIXELS_ROWS, JPEG_PIXELS_WHOLE, JPEG_PIXELS_PLANES };

/* The samples of a component that the region needs. */
struct jpeg_plane {
	/* width and height of a block in samples: 8, 4, 2 or 1 */
	uint32_t size;
	uint32_t width, height;      /* size of the component in samples, without padding */
	uint32_t h_factor, v_factor; /* pixels per sample */
	bool smooth;                 /* upsampling by triangle filter; by replication if false */
	uint32_t column_first, column_end; /* samples that pixels or their upsampling read */
	uint32_t row_first, row_end;
	uint32_t left;     /* first column stored, a multiple of the block size */
	uint32_t row_mask; /* row y is stored as row y & row_mask of samples */
	uint8_t *samples;  /* first sample, at column left; rows have unused bytes on either side */
	size_t stride;
	/*
	 * [v][blocks_wide]: offset of each block of a row, from column left on, in the coefficients
	 * of an MCU row; these start at the first MCU kept
	 */
	const uint32_t *block_indexes;
	uint32_t blocks_wide;
	int16_t quant[64] __attribute__((aligned(64))); /* in the order that the kernels expect */
};

struct jpeg_pixels {
	const struct jpeg_frame *frame;
	const struct jpeg_kernels *kernels;
	enum jpeg_pixels_form form;
	uint32_t denominator;         /* decodes at 1/denominator scale */
	uint32_t x, y, width, height; /* the region, in pixels of the scaled image */
	struct jpeg_mcus mcus;        /* MCUs to decode for the region */
	struct jpeg_plane planes[JPEG_COMPONENTS_MAX];
	uint32_t rows_done; /* finished rows of the region */
	/* row i of the region is row i & row_mask of rgb */
	uint32_t row_mask;
	size_t stride; /* bytes between rows of rgb */
	struct scratch block_indexes, samples, rows, rgb;
};

/* A zeroed object is valid and has no budget. */
void jpeg_pixels_init(struct jpeg_pixels *pixels, struct scratch_budget *budget);
void jpeg_pixels_deinit(struct jpeg_pixels *pixels);
/*
 * Prepares to convert a region inside the frame, which must outlive the conversion. At least the
 * JPEG_PIXELS_HELD rows before those that the latest jpeg_pixels_row() completed stay valid;
 * JPEG_PIXELS_PLANE_HELD rows of planes. -ENOMEM.
 */
int jpeg_pixels_begin(struct jpeg_pixels *pixels, const struct jpeg_frame *frame,
		      const struct jpeg_region *region, enum jpeg_pixels_form form);
/* Returns the location of component i, if planes were requested. */
void jpeg_pixels_samples(const struct jpeg_pixels *pixels, uint32_t i,
			 struct jpeg_samples *ret_samples);
/*
 * Converts the next MCU row that the region needs. coefficients start with the first MCU kept, in
 * coded order. Updates rows_done.
 */
void jpeg_pixels_row(struct jpeg_pixels *pixels, uint32_t mcu_row, const int16_t *coefficients);
