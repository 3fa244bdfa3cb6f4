/*
 * Deferred transforms: for each sample, the daemon draws the parameters of the pipeline's last
 * transforms, and the client applies them to the delivered image, with deferred_apply() or on a
 * GPU. The result is byte-identical to the daemon's. A slot holds a struct deferred in this layout,
 * truncated after its last change (proto/SPEC.md, "Deferred transforms"). The client must copy it
 * and validate the copy: deferred_read(). Plain structures, for C and CUDA C.
 */
#ifndef FORMAT_AUGMENT_DEFERRED_H
#define FORMAT_AUGMENT_DEFERRED_H

#include "format/augment/colour.h"
#include "format/base/philox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DEFERRED_CHANGES_MAX = 8,
	DEFERRED_SIDE_MAX = 4096, /* maximum side of the finished and of the delivered image */
};

enum deferred_kind {
	DEFERRED_BRIGHTNESS = 1,
	DEFERRED_CONTRAST,
	DEFERRED_SATURATION,
	DEFERRED_HUE,
	DEFERRED_GRAYSCALE,
	DEFERRED_INVERT,
	DEFERRED_SOLARIZE,
	DEFERRED_POSTERIZE,
	DEFERRED_ERASE,
	DEFERRED_ERASE_NOISE,
	DEFERRED_KINDS,
};

struct deferred_change {
	uint32_t kind; /* enum deferred_kind */
	/*
	 * Weights of a blend. Other kinds use factor only: turns of the colour circle, a threshold,
	 * or the number of bits to keep.
	 */
	float factor, rest;
	uint32_t pixel; /* colour of the erased rectangle; see format/augment/colour.h */
	uint16_t left, top, width, height; /* erased rectangle, inside the finished image */
	uint32_t key[2];                   /* Philox key of the noise, from random_init() */
};

enum deferred_flag {
	DEFERRED_MIRROR_X = 1, /* the window is mirrored horizontally */
	DEFERRED_MIRROR_Y = 2,
	DEFERRED_REFLECT = 4, /* outside the image, show its reflection, not fill */
};

struct deferred {
	/* part of the delivered image to show; may extend beyond the image */
	int32_t left, top;
	uint32_t width, height;
	uint32_t flags;
	uint32_t fill; /* a pixel; shown outside the image */
	uint32_t count;
	uint32_t reserved; /* 0 */
	struct deferred_change changes[DEFERRED_CHANGES_MAX];
};

/* Size in bytes of a struct deferred with count changes. */
static inline size_t deferred_size(uint32_t count)
{
	return offsetof(struct deferred, changes) + count * sizeof(struct deferred_change);
}

/*
 * Reads a struct deferred from `size` untrusted bytes, for a delivered image of width x height.
 * Writes a validated copy, zero-padded, to *ret_deferred. Returns NULL, or the name of the first
 * invalid field (a constant string).
 */
const char *deferred_read(const void *from, size_t size, uint32_t width, uint32_t height,
			  struct deferred *ret_deferred);
/*
 * Produces the finished image from a delivered image of width x height pixels. Both have `channels`
 * bytes per pixel (3, or 4 with the last zero) and no row padding. The finished image has
 * deferred->width x height pixels.
 */
void deferred_apply(const struct deferred *deferred, const uint8_t *picture, uint32_t width,
		    uint32_t height, uint32_t channels, uint8_t *ret_picture);

/* ---- single pixels ---- */

/* Mirrors index `at` into 0 .. count - 1. It may be outside that range by at most count - 1. */
COLOUR_INLINE uint32_t deferred_mirror(int32_t at, uint32_t count)
{
	int32_t last = (int32_t)count - 1;

	at = at < 0 ? -at : at;
	return (uint32_t)(at > last ? 2 * last - at : at);
}

COLOUR_INLINE uint32_t deferred_load(const uint8_t *picture, size_t pixel, uint32_t channels)
{
	const uint8_t *bytes = picture + pixel * channels;

	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
}

COLOUR_INLINE void deferred_store(uint8_t *picture, size_t pixel, uint32_t channels, uint32_t value)
{
	uint8_t *bytes = picture + pixel * channels;

	bytes[0] = (uint8_t)value;
	bytes[1] = (uint8_t)(value >> 8);
	bytes[2] = (uint8_t)(value >> 16);
	if (channels == 4)
		bytes[3] = 0;
}

/* Returns the pixel of the delivered image that the window shows at x, y. */
COLOUR_INLINE uint32_t deferred_shown(const struct deferred *deferred, const uint8_t *picture,
				      uint32_t width, uint32_t height, uint32_t channels,
				      uint32_t x, uint32_t y)
{
	int32_t column =
		deferred->left +
		(int32_t)(deferred->flags & DEFERRED_MIRROR_X ? deferred->width - 1 - x : x);
	int32_t row = deferred->top +
		      (int32_t)(deferred->flags & DEFERRED_MIRROR_Y ? deferred->height - 1 - y : y);

	if (deferred->flags & DEFERRED_REFLECT) {
		column = (int32_t)deferred_mirror(column, width);
		row = (int32_t)deferred_mirror(row, height);
	} else if (column < 0 || row < 0 || column >= (int32_t)width || row >= (int32_t)height) {
		return deferred->fill;
	}
	return deferred_load(picture, (size_t)row * width + (uint32_t)column, channels);
}

/* Returns word `at` of a noise stream (format/base/random.h). */
COLOUR_INLINE uint32_t deferred_noise(const uint32_t key[2], uint32_t at)
{
	struct philox_block counter = {at / 4, 0, 0, 0};
	struct philox_block block = philox(key[0], key[1], counter);

	return at % 4 == 0 ? block.a : at % 4 == 1 ? block.b : at % 4 == 2 ? block.c : block.d;
}

COLOUR_INLINE uint32_t deferred_erase(const struct deferred_change *change, uint32_t pixel,
				      uint32_t x, uint32_t y)
{
	uint32_t column = x - change->left, row = y - change->top;

	if (column >= change->width || row >= change->height)
		return pixel;
	return change->kind == DEFERRED_ERASE
		       ? change->pixel
		       : deferred_noise(change->key, row * change->width + column) & 0xffffff;
}

COLOUR_INLINE uint32_t deferred_solarize(uint32_t pixel, float threshold)
{
	uint32_t inverted = pixel ^ 0xffffff, result = 0;

	for (unsigned shift = 0; shift < 24; shift += 8)
		result |= (colour_channel(pixel, shift) >= threshold ? inverted : pixel) &
			  0xffu << shift;
	return result;
}

/*
 * Applies a change to the pixel at x, y of the finished image. mean is the mean luma of the image,
 * for contrast.
 */
COLOUR_INLINE uint32_t deferred_change_pixel(const struct deferred_change *change, uint32_t pixel,
					     uint32_t x, uint32_t y, float mean)
{
	switch (change->kind) {
	case DEFERRED_BRIGHTNESS:
		return colour_scale(pixel, change->factor, 0, 0);
	case DEFERRED_CONTRAST:
		return colour_scale(pixel, change->factor, mean, change->rest);
	case DEFERRED_SATURATION:
		return colour_saturate(pixel, change->factor, change->rest);
	case DEFERRED_HUE:
		return colour_turn(pixel, change->factor);
	case DEFERRED_GRAYSCALE:
		return (uint32_t)colour_luma(pixel) * 0x010101;
	case DEFERRED_INVERT:
		return pixel ^ 0xffffff;
	case DEFERRED_SOLARIZE:
		return deferred_solarize(pixel, change->factor);
	case DEFERRED_POSTERIZE:
		return pixel & (0xff << (8 - (uint32_t)change->factor) & 0xff) * 0x010101;
	default:
		return deferred_erase(change, pixel, x, y);
	}
}

#endif
