/*
 * libjpeg-turbo as the judge of the JPEG targets: quiet, with its warnings counted, and without
 * leaving the process on errors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum jpeg_verdict {
	JPEG_VERDICT_GOOD,
	JPEG_VERDICT_WARNED, /* pixels, with guesses in them */
	JPEG_VERDICT_FAILED,
};

/*
 * Decodes to RGB (JDCT_ISLOW, fancy upsampling), at 1/denominator, and reads no farther. pixels has
 * room for `room` bytes, else the verdict is failed.
 */
enum jpeg_verdict jpeg_reference_decode(const uint8_t *data, size_t size, uint32_t denominator,
					uint8_t *pixels, size_t room);
/* A component's samples as they are coded, before upsampling and colour. */
struct jpeg_reference_plane {
	uint32_t width, height;
	size_t stride;
	const uint8_t *samples; /* of the module's own, valid until the next call */
};
/*
 * As jpeg_reference_decode, but the samples of a file of three components, of at most 64 x 64
 * pixels; else the verdict is failed.
 */
enum jpeg_verdict jpeg_reference_samples(const uint8_t *data, size_t size, uint32_t denominator,
					 struct jpeg_reference_plane ret_planes[3]);
/*
 * The object after its headers were read, valid until the next call; NULL when they are refused or
 * a warning was given.
 */
const struct jpeg_decompress_struct *jpeg_reference_headers(const uint8_t *data, size_t size);
/*
 * Are the coefficients so small that the inverse transform overflows 16 bits nowhere? Beyond, T.81
 * leaves the pixels open and libjpeg-turbo's own SIMD and C code differ.
 */
bool jpeg_reference_in_range(const uint8_t *data, size_t size);
/* What it last complained of. */
const char *jpeg_reference_complaint(void);
