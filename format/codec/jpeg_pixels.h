/*
 * The way from coefficients to RGB for one region of a baseline JPEG: which MCUs the region needs, sample planes for them,
 * inverse DCT row by row, upsampling and colour. One object belongs to one thread and keeps its memory from image to image.
 */
#pragma once

#include "jpeg_frame.h"
#include "jpeg_kernels.h"

/* A buffer that only grows; its content is lost when it does. */
struct jpeg_buffer {
	void *data; /* 128-byte aligned */
	size_t capacity;
};

int jpeg_buffer_reserve(struct jpeg_buffer *buffer, size_t size);
void jpeg_buffer_deinit(struct jpeg_buffer *buffer);

/* The part of a component that the region needs. */
struct jpeg_plane {
	uint32_t column_first, column_end; /* samples that pixels or their upsampling depend on */
	uint32_t row_first, row_end;
	uint32_t left, top;    /* first sample kept */
	uint8_t *samples;      /* of column left and row top; rows have free bytes on either side */
	size_t stride;
	const uint32_t *places; /* [v][blocks_wide]: a row's blocks in an MCU row's coefficients, from the first MCU kept */
	uint32_t blocks_wide;
};

struct jpeg_pixels {
	const struct jpeg_frame *frame;
	const struct jpeg_kernels *kernels;
	uint32_t x, y, width, height;            /* the region */
	uint32_t mcu_row_first, mcu_row_end;     /* MCUs to decode for it */
	uint32_t mcu_column_first, mcu_column_end;
	uint32_t mcu_blocks;                     /* blocks of an MCU */
	struct jpeg_plane planes[JPEG_COMPONENTS_MAX];
	struct jpeg_buffer places, samples, rows, rgb;
};

void jpeg_pixels_deinit(struct jpeg_pixels *pixels);
/* Lays everything out for a region inside the frame. The frame must outlive the use. -ENOMEM. */
int jpeg_pixels_begin(struct jpeg_pixels *pixels, const struct jpeg_frame *frame, uint32_t x, uint32_t y, uint32_t width,
		      uint32_t height);
/* One MCU row of those kept: coefficients of its MCUs in coded order, beginning with the first MCU kept. */
void jpeg_pixels_row(struct jpeg_pixels *pixels, uint32_t mcu_row, const int16_t *coefficients);
/* After all rows: the region's pixels, rows of 3 * width bytes, valid until the next begin. */
const uint8_t *jpeg_pixels_end(struct jpeg_pixels *pixels);
