/*
 * The headers of a baseline JPEG, as far as its entropy-coded scan: ITU-T T.81, annex B. Only what
 * the library's own decoder can take is accepted: 8-bit Huffman-coded sequential frames of one or
 * three components in one interleaved scan, chroma sampled once per MCU. Everything else is
 * -ENOTSUP, for libjpeg-turbo to judge. A plain value. The file may change meanwhile: each byte of
 * the headers is read once, and tables are copies; only scan leads into the file's bytes, of which
 * no more is known than their number.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JPEG_COMPONENTS_MAX = 3 };

struct jpeg_component {
	uint32_t h, v;            /* sampling factors */
	uint32_t width, height;   /* samples at full scale, without padding */
	uint8_t quant_slot;       /* index into jpeg_frame.quant */
	uint8_t dc_slot, ac_slot; /* into jpeg_frame.huffman[0] and [1] */
};

struct jpeg_frame {
	uint32_t width, height;   /* pixels as stored */
	uint32_t component_count; /* 1 or 3 (YCbCr) */
	struct jpeg_component components[JPEG_COMPONENTS_MAX];
	uint32_t mcu_height; /* pixels */
	uint32_t mcu_blocks; /* 8 x 8 */
	uint32_t mcus_wide, mcus_high;
	uint32_t restart_interval; /* MCUs, 0: none */
	int16_t quant[4][64];      /* natural order */
	/*
	 * DHT payloads of DC and AC tables: 16 counts, then the symbols, at most 256; of the slots
	 * that components have
	 */
	uint8_t huffman[2][4][16 + 256];
	const uint8_t *scan; /* first entropy-coded byte */
	size_t scan_size;    /* up to the end of the file's bytes */
};

/* A rectangle of MCUs. */
struct jpeg_mcus {
	uint32_t row_first, row_end, column_first, column_end;
};

/*
 * Position in an 8 x 8 block (row * 8 + column) of the k-th coefficient in zigzag order, k < 64;
 * T.81 figure A.6.
 */
extern const uint8_t jpeg_zigzag_position[64];

/*
 * 0; -ENOTSUP: for libjpeg-turbo to read or to refuse; the frame is undefined then. Reads only the
 * headers. Tables that no component has are left as they are.
 */
int jpeg_frame_parse(const uint8_t *data, size_t size, struct jpeg_frame *ret_frame);
/*
 * Is there an end marker? Quick where it stands at the end. Nothing that is read follows from it.
 */
bool jpeg_has_end(const uint8_t *data, size_t size);
