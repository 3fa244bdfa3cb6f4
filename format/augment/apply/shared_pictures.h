/*
 * Pictures from which several views of one sample are made: for each scale at which a view would
 * decode its region, the union of these regions is decoded once; with several scales, from
 * coefficients that are decoded once. Views have the same bytes as when each decodes its own
 * region, because a codec's pixels do not depend on the region (packimg_decode()). Part of a
 * pipeline_scratch, so of one thread.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>

/* What a view would decode; the arguments of packimg_decode_begin(). */
struct shared_part {
	struct packimg_region region;
	uint32_t hint_width, hint_height;
};

enum {
	SHARED_PICTURES_MAX = 4,                       /* denominators 1, 2, 4 and 8 */
	SHARED_DECODERS_MAX = SHARED_PICTURES_MAX + 1, /* one for each, and the keeper */
};

struct shared_picture {
	struct packimg_decoder *decoder; /* owns the pixels; NULL if never used */
	uint32_t denominator;            /* 0: holds no picture */
	struct packimg_region region;    /* of the image */
	struct packimg_pixels pixels;
};

/* Zero-initialise. */
struct shared_pictures {
	struct shared_picture pictures[SHARED_PICTURES_MAX];
	struct packimg_decoder *keeper; /* of coefficients; NULL if never used */
	struct packimg_sample sample;   /* whose pictures these are */
	uint64_t limit;                 /* packimg_decoder_limit() of each decoder; 0 for none */
};

/*
 * Decodes the unions of the parts where this is less work than decoding each part. Pictures that
 * cannot be decoded are left out: then each view decodes its part, and reports the error. The
 * pictures are found by the sample's number, address and form: drop them before its memory gets
 * another sample. -ENOMEM if a decoder cannot be created.
 */
int shared_pictures_decode(struct shared_pictures *shared, const struct packimg_sample *sample,
			   const struct shared_part *parts, unsigned count);
/* Drops the pictures; keeps their memory for others. */
void shared_pictures_drop(struct shared_pictures *shared);
void shared_pictures_deinit(struct shared_pictures *shared);
/*
 * Sets *ret_pixels to what packimg_decode() returns for a part of the sample, valid until the
 * pictures are dropped. Returns false if no picture holds it.
 */
bool shared_pictures_find(const struct shared_pictures *shared, const struct packimg_sample *sample,
			  const struct shared_part *part, struct packimg_pixels *ret_pixels);
