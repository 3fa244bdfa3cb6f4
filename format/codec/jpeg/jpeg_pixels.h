/*
 * The way from coefficients to RGB for one region of a baseline JPEG: which MCUs the region needs,
 * sample planes for them, inverse DCT, upsampling and colour, one MCU row after the other while it
 * is in the first-level cache. Nothing is as tall as the region unless that is asked for: planes
 * hold two MCU rows, and finished rows lie in a ring. Or the planes themselves are what is wanted:
 * then they hold more. One object belongs to one thread and keeps its memory from image to image.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"
#include "format/codec/scratch.h"

enum {
	/* Rows in the ring: what an MCU row completes, and as many that the reader still holds. */
	JPEG_PIXELS_RING = 32,
	JPEG_PIXELS_HELD = 15,
	/*
	 * The same of a plane that is wanted itself: the ring has at least 32 rows, of which an MCU
	 * row completes 8 or a quarter.
	 */
	JPEG_PIXELS_PLANE_RING = 32,
	JPEG_PIXELS_PLANE_HELD = 24,
};

/*
 * What is wanted: pixels of which the latest stay, or all, or the samples of the planes as they
 * are.
 */
enum jpeg_pixels_form { JPEG_PIXELS_ROWS, JPEG_PIXELS_WHOLE, JPEG_PIXELS_PLANES };

/* The part of a component that the region needs. */
struct jpeg_plane {
	uint32_t size;                     /* samples a block is wide and high: 8, 4, 2 or 1 */
	uint32_t width, height;            /* of the component, samples without padding */
	uint32_t h_factor, v_factor;       /* pixels a sample stands for */
	bool smooth;                       /* upsampled by triangles, else by repetition */
	uint32_t column_first, column_end; /* samples that pixels or their upsampling depend on */
	uint32_t row_first, row_end;
	uint32_t left;     /* first column kept, that of a block */
	uint32_t row_mask; /* row y lies in row y & row_mask of samples */
	uint8_t *samples;  /* of column left; rows have free bytes on either side */
	size_t stride;
	/*
	 * [v][blocks_wide]: a row's blocks, from the one at left on, in an MCU row's coefficients
	 * from the first MCU kept
	 */
	const uint32_t *places;
	uint32_t blocks_wide;
	int16_t quant[64] __attribute__((aligned(64))); /* as the kernels want it */
};

struct jpeg_pixels {
	const struct jpeg_frame *frame;
	const struct jpeg_kernels *kernels;
	enum jpeg_pixels_form form;
	uint32_t denominator;         /* of the scale */
	uint32_t x, y, width, height; /* the region, pixels at that scale */
	struct jpeg_mcus mcus;        /* to decode for it */
	struct jpeg_plane planes[JPEG_COMPONENTS_MAX];
	uint32_t rows_done; /* of the region */
	/* row i of the region lies in row i & row_mask of rgb */
	uint32_t row_mask;
	size_t stride; /* of rgb, bytes */
	struct scratch places, samples, rows, rgb;
};

/* All zero it is one without a budget. */
void jpeg_pixels_init(struct jpeg_pixels *pixels, struct scratch_budget *budget);
void jpeg_pixels_deinit(struct jpeg_pixels *pixels);
/*
 * Lays everything out for a region inside the frame, which must outlive the use. Of rows at least
 * the last JPEG_PIXELS_HELD before those that the latest call of jpeg_pixels_row completed stay, of
 * planes the last JPEG_PIXELS_PLANE_HELD. -ENOMEM.
 */
int jpeg_pixels_begin(struct jpeg_pixels *pixels, const struct jpeg_frame *frame,
		      const struct jpeg_region *region, enum jpeg_pixels_form form);
/* Where component i lies, of planes that were asked for. */
void jpeg_pixels_samples(const struct jpeg_pixels *pixels, uint32_t i,
			 struct jpeg_samples *ret_samples);
/*
 * The next MCU row of those needed: coefficients of its MCUs in coded order, beginning with the
 * first MCU kept. Completes rows up to rows_done.
 */
void jpeg_pixels_row(struct jpeg_pixels *pixels, uint32_t mcu_row, const int16_t *coefficients);
