/*
 * Test images: pixels from a seed, and JPEG files of every kind made with libjpeg itself. The
 * caller frees what it gets.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum image_content {
	IMAGE_MIXED, /* shapes, gradients and noise: every frequency occurs */
	IMAGE_FLAT,
	IMAGE_GRADIENT,
	IMAGE_NOISE, /* of full range: coefficients as large as they get */
};

struct jpeg_kind {
	enum image_content content;
	int components;         /* 1 grey, 3 YCbCr, 4 CMYK */
	int h, v;               /* sampling factors of the first component */
	int chroma_h, chroma_v; /* of the others, 0: 1 */
	int restart_rows;       /* MCU rows between restart markers, 0: none */
	int restart_mcus;       /* or MCUs */
	bool wide_quant;        /* quantisation tables with values beyond 255 */
	bool progressive;
	bool arithmetic;
	bool optimise;
	bool rgb;        /* 3 components stored as RGB */
	bool ycck;       /* 4 components stored as YCCK */
	bool not_adobe;  /* no Adobe marker with 4 components */
	bool separate;   /* one scan per component, sequential */
	int orientation; /* an EXIF segment with this value, 0: none */
	bool exif_big;   /* its byte order */
	int quality;     /* 0: 90 */
};

uint64_t image_random(uint64_t *state);
/* IMAGE_MIXED */
uint8_t *image_pixels(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed);
uint8_t *image_jpeg(uint32_t width, uint32_t height, const struct jpeg_kind *kind, uint64_t seed,
		    size_t *ret_size);
/*
 * Full decode at 1/denominator by a plain libjpeg loop: RGB, or CMYK as stored; returns components
 * through ret.
 */
uint8_t *image_decode_plain(const uint8_t *data, size_t size, uint32_t denominator,
			    uint32_t *ret_width, uint32_t *ret_height, int *ret_components);
/* A fresh temporary directory, removed with everything in it by image_directory_remove(). */
char *image_directory(void);
void image_directory_remove(char *directory);
uint8_t *image_file_read(const char *path, size_t *ret_size);
void image_file_write(const char *path, const uint8_t *data, size_t size);
