/*
 * turbo: libjpeg-turbo on the same crops, as well as it can do them, to compare with. The accurate
 * inverse transform, fancy upsampling, RGB: what our own decoder computes. One object belongs to
 * one thread and keeps its memory from image to image.
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
/* What went wrong last, for a person. */
const char *turbo_error(const struct turbo *turbo);

/*
 * The crop alone: rows above are skipped, columns left and right left out as far as whole MCUs. 0
 * or a negative errno, as all below.
 */
int turbo_region(struct turbo *turbo, const struct turbo_crop *crop);
/*
 * The entropy-coded part of that alone: all MCU rows from the first to the crop's last are skipped.
 * libjpeg-turbo decodes nothing of an image's last row when it is to be skipped; ret_share says
 * what part of the rows was.
 */
int turbo_entropy(struct turbo *turbo, const struct turbo_crop *crop, double *ret_share);
/* The whole image. */
int turbo_image(struct turbo *turbo, const struct turbo_crop *crop);
/* The whole image's coefficients. */
int turbo_coefficients(struct turbo *turbo, const struct turbo_crop *crop);
