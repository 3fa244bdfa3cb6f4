/*
 * libjpeg-turbo as the reference for the JPEG fuzz targets. It prints nothing, counts its warnings,
 * and returns on errors instead of exiting.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum jpeg_verdict {
	JPEG_VERDICT_GOOD,
	JPEG_VERDICT_WARNED, /* decoded, but libjpeg-turbo guessed some pixels */
	JPEG_VERDICT_FAILED,
};

/*
 * Decodes to RGB at 1/denominator (JDCT_ISLOW, fancy upsampling) and stops reading at the end of
 * the image. `pixels` holds `room` bytes; returns JPEG_VERDICT_FAILED if that is too small.
 */
enum jpeg_verdict jpeg_reference_decode(const uint8_t *data, size_t size, uint32_t denominator,
					uint8_t *pixels, size_t room);
/* One component's samples as coded, before upsampling and colour conversion. */
struct jpeg_reference_plane {
	uint32_t width, height;
	size_t stride;
	const uint8_t *samples; /* owned by this module, valid until the next call */
};
/*
 * Like jpeg_reference_decode(), but returns the component samples. Fails unless the file has three
 * components and at most 64 x 64 pixels.
 */
enum jpeg_verdict jpeg_reference_samples(const uint8_t *data, size_t size, uint32_t denominator,
					 struct jpeg_reference_plane ret_planes[3]);
/*
 * Returns libjpeg's object after it has read the headers, valid until the next call; NULL if
 * libjpeg rejects the headers or warns about them.
 */
const struct jpeg_decompress_struct *jpeg_reference_headers(const uint8_t *data, size_t size);
/*
 * Returns true if all coefficients are so small that the inverse DCT never overflows 16 bits.
 * Beyond that, T.81 does not define the pixels, and libjpeg-turbo's SIMD and C code differ.
 */
bool jpeg_reference_in_range(const uint8_t *data, size_t size);
/* Returns the text of libjpeg-turbo's last message. */
const char *jpeg_reference_complaint(void);
