/*
 * Parses the headers of a baseline JPEG up to its entropy-coded scan (ITU-T T.81, annex B). Accepts
 * only what our own decoder supports: 8-bit Huffman-coded sequential frames of one or three
 * components in one interleaved scan, with one block of each chroma component per MCU. Everything
 * else is -ENOTSUP and left to libjpeg-turbo. The file may change during the call: each header byte
 * is read once, and tables are copied. A jpeg_frame is a plain value; only its member scan points
 * into the file, whose scan bytes are not parsed.
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
	uint8_t dc_slot, ac_slot; /* indexes into jpeg_frame.huffman[0] and [1] */
};

struct jpeg_frame {
	uint32_t width, height;   /* pixels as stored */
	uint32_t component_count; /* 1 or 3 (YCbCr) */
	struct jpeg_component components[JPEG_COMPONENTS_MAX];
	uint32_t mcu_height; /* pixels */
	uint32_t mcu_blocks; /* 8 x 8 blocks per MCU */
	uint32_t mcus_wide, mcus_high;
	uint32_t restart_interval; /* MCUs, 0 if none */
	int16_t quant[4][64];      /* natural order */
	/*
	 * DHT payloads of the DC and AC tables that components use: 16 counts, then at most 256
	 * symbols
	 */
	uint8_t huffman[2][4][16 + 256];
	const uint8_t *scan; /* first entropy-coded byte, in the file */
	size_t scan_size;    /* bytes up to the end of the file */
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
 * Returns 0, or -ENOTSUP if libjpeg-turbo must read or reject the file; the frame is then
 * undefined. Reads only the headers. Leaves tables that no component uses unchanged.
 */
int jpeg_frame_parse(const uint8_t *data, size_t size, struct jpeg_frame *ret_frame);
/*
 * Returns true if the file has an end marker. Fast if the marker is at the end. The result is the
 * only thing that depends on the bytes read here.
 */
bool jpeg_has_end(const uint8_t *data, size_t size);
