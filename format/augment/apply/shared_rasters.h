/*
 * Masks and rasters of which several views of one sample are made: each band of rows that some view
 * shows is decoded once. Views have the same bytes and errors as when each decodes its own region.
 * What does not fit, or is stored without bands, is left to them. Part of a pipeline_scratch, so of
 * one thread.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>

enum { SHARED_RASTERS_MAX = 4 }; /* of a sample; views decode the others */

struct shared_raster {
	struct packimg_decoder *decoder; /* owns the pixels; NULL if never used */
	struct packimg_sample sample;    /* whose bands these are */
	uint32_t number;                 /* frame_raster.number */
	bool begun;                      /* the decoder has bands of it */
	bool fails;                      /* each view decodes it */
};

/* Zero-initialise. */
struct shared_rasters {
	struct shared_raster rasters[SHARED_RASTERS_MAX];
	unsigned count;
	bool on;        /* views follow */
	uint64_t limit; /* packimg_decoder_limit() of each decoder; 0 for none */
};

/* Begins with another sample, of which views follow or, if `on` is false, one finished sample. */
void shared_rasters_begin(struct shared_rasters *shared, bool on);
void shared_rasters_deinit(struct shared_rasters *shared);
/*
 * As packimg_decode_raster(), for raster `number` of the sample, from 1 on; the result is valid
 * until the next call for it, or for another sample. Returns false if the caller has to decode the
 * region.
 */
bool shared_rasters_decode(struct shared_rasters *shared, const struct packimg_sample *sample,
			   uint32_t number, const struct packimg_region *region,
			   struct packimg_raster *ret_raster);
