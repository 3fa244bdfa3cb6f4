/*
 * Codec 4, raster (SPEC.md, "Codec 4, raster"): pixels of any element and 1 to 32 channels, in
 * bands of rows that are stored independently, so that a decoder reads only those that it needs.
 * The layout, the method "runs", and the encoder; codec.h has the decoder. Memory belongs to one
 * thread.
 */
#pragma once

#include "format/codec/scratch.h"
#include "format/packimg.h"

#include <zstd.h>

enum {
	RASTER_VERSION = 1,
	RASTER_HEAD_SIZE = 8,
	RASTER_BAND_MAX = 4 << 20, /* bytes of a band of more than one row */
};

/* Entry of the table of bands, which follows the head. */
struct raster_band {
	uint32_t end; /* bytes from the start of the sample's data */
	uint8_t method;
	uint8_t reserved[3];
};
_Static_assert(sizeof(struct raster_band) == 8, "SPEC.md, \"Codec 4, raster\"");

/* A sample's head, and values derived from it. */
struct raster_head {
	enum packimg_element element;
	uint32_t channels, band_rows, bands;
	uint32_t size;               /* bytes before the first band */
	size_t element_size, stride; /* bytes of an element, and of a row */
};

/*
 * Copies and checks the head of a sample of `size` bytes. width and height are those of the stored
 * image in pixels, `channels` those of the record. -EBADMSG; the message describes the fault, the
 * caller adds its location.
 */
int raster_head_read(const uint8_t *data, size_t size, uint32_t width, uint32_t height,
		     uint32_t channels, struct raster_head *ret_head, struct packimg_error *error);

/* Returns true if the method can store the element with that many channels. */
bool raster_method_stores(uint8_t method, enum packimg_element element, uint32_t channels);

/*
 * Rows of one channel as runs; element_size is 1 or 2. runs_encode() returns the number of bytes
 * written, or 0 if `room` bytes do not suffice. runs_decode() decodes exactly `size` bytes to rows
 * of `width` elements and writes nothing beyond them. It returns NULL, or the fault with its row in
 * *ret_row.
 */
size_t runs_encode(const uint8_t *pixels, uint32_t width, uint32_t rows, size_t element_size,
		   uint8_t *output, size_t room);
const char *runs_decode(const uint8_t *data, size_t size, uint32_t width, uint32_t rows,
			size_t element_size, uint8_t *pixels, uint32_t *ret_row);

/*
 * Memory of an encoder. Valid if all members but the context are zero; the caller owns the context.
 */
struct raster_encoder {
	ZSTD_CCtx *zstd;
	struct scratch rows, output;
};

/* packimg_encode_raster(). */
int raster_encode(struct raster_encoder *encoder, const struct packimg_raster *raster,
		  const struct packimg_raster_coding *coding, const uint8_t **ret_data,
		  size_t *ret_size, struct packimg_error *error);
void raster_encoder_deinit(struct raster_encoder *encoder);
