/*
 * The index into a baseline JPEG's scan: for each MCU row the place of its first bit and the DC predictors there (SPEC.md, "JPEG
 * index"). Bytes from a file are untrusted: jpeg_index_open checks all that can be checked without decoding. Plain values; nothing is owned.
 */
#pragma once

#include "jpeg_frame.h"

#include <stdbool.h>

enum {
	JPEG_INDEX_VERSION = 1,
	JPEG_INDEX_HEADER_SIZE = 8, /* version, components, 2 reserved bytes, MCU rows as uint32 */
};

struct jpeg_index {
	const uint8_t *rows;
	uint32_t row_count, row_size;
	uint32_t component_count;
};

struct jpeg_index_row {
	uint64_t position; /* bits from the scan's first byte, stuffing counted */
	int16_t dc[JPEG_COMPONENTS_MAX];
};

/* Can the frame have one? Restart markers must stand between rows only, and places must fit into 32 bits. */
bool jpeg_index_possible(const struct jpeg_frame *frame);
/* Bytes of an index for a frame. */
size_t jpeg_index_size(const struct jpeg_frame *frame);
void jpeg_index_write_header(uint8_t *output, const struct jpeg_frame *frame);
void jpeg_index_write_row(uint8_t *output, const struct jpeg_frame *frame, uint32_t row,
			  const struct jpeg_index_row *values);

/* 0, or -EBADMSG: of another version, size or frame. */
int jpeg_index_open(const uint8_t *data, size_t size, const struct jpeg_frame *frame, struct jpeg_index *ret_index);
struct jpeg_index_row jpeg_index_row(const struct jpeg_index *index, uint32_t row);
