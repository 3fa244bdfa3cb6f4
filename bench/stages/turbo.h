/*
 * Decodes the same crops with libjpeg-turbo, as efficiently as its API allows, for comparison. Uses
 * the accurate inverse DCT, fancy upsampling and RGB output, which our own decoder computes too. An
 * object belongs to one thread and reuses its memory from image to image.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct turbo;

struct turbo_crop {
	const uint8_t *data;
	size_t size;
	uint32_t x, y, width, height;
};

int turbo_new(struct turbo **ret_turbo);
/* Message of the last error. */
const char *turbo_error(const struct turbo *turbo);

/*
 * Decodes the crop only: skips the rows above it and, in whole MCUs, the columns to its left and
 * right. Like all functions below it returns 0 or a negative errno.
 */
int turbo_region(struct turbo *turbo, const struct turbo_crop *crop);
/*
 * Runs only the entropy decoding of turbo_region() by skipping all MCU rows up to the crop's last.
 * libjpeg-turbo does not decode an image's last MCU row if it is skipped; ret_share is the fraction
 * of rows that were decoded.
 */
int turbo_entropy(struct turbo *turbo, const struct turbo_crop *crop, double *ret_share);
/* Decodes the whole image. */
int turbo_image(struct turbo *turbo, const struct turbo_crop *crop);
/* Decodes the whole image's coefficients. */
int turbo_coefficients(struct turbo *turbo, const struct turbo_crop *crop);
