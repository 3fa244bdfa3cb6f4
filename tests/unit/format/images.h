/*
 * Test images: pixels generated from a seed, and JPEG files of every kind encoded with libjpeg. The
 * caller frees all returned memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum image_content {
	IMAGE_MIXED, /* shapes, gradients and noise, so that every frequency occurs */
	IMAGE_FLAT,
	IMAGE_GRADIENT,
	IMAGE_NOISE, /* extreme values, which give the largest possible coefficients */
};

struct jpeg_kind {
	enum image_content content;
	int components;         /* 1 is grey, 3 YCbCr, 4 CMYK */
	int h, v;               /* sampling factors of the first component */
	int chroma_h, chroma_v; /* sampling factors of the other components; 0 means 1 */
	int restart_rows;       /* MCU rows between restart markers, 0 if none */
	int restart_mcus;       /* the same, in MCUs */
	bool wide_quant;        /* quantisation tables with values beyond 255 */
	bool progressive;
	bool arithmetic;
	bool optimise;
	bool rgb;        /* 3 components stored as RGB */
	bool ycck;       /* 4 components stored as YCCK */
	bool not_adobe;  /* 4 components without an Adobe marker */
	bool separate;   /* one scan per component, sequential */
	int orientation; /* EXIF orientation; 0 writes no EXIF segment */
	bool exif_big;   /* big-endian EXIF */
	int quality;     /* 0 means quality 90 */
};

uint64_t image_random(uint64_t *state);
/* Generates IMAGE_MIXED content. */
uint8_t *image_pixels(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed);
uint8_t *image_jpeg(uint32_t width, uint32_t height, const struct jpeg_kind *kind, uint64_t seed,
		    size_t *ret_size);
/*
 * Decodes the whole image at 1/denominator by calling libjpeg directly: to RGB, or to CMYK as
 * stored.
 */
uint8_t *image_decode_plain(const uint8_t *data, size_t size, uint32_t denominator,
			    uint32_t *ret_width, uint32_t *ret_height, int *ret_components);
/* Creates a temporary directory; image_directory_remove() removes it with its contents. */
char *image_directory(void);
void image_directory_remove(char *directory);
uint8_t *image_file_read(const char *path, size_t *ret_size);
void image_file_write(const char *path, const uint8_t *data, size_t size);
