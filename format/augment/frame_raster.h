/* The parts of pipeline_apply_raster(), for mosaics. Internal to format/augment. In frame.c. */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/frame.h"

/* Returns -EBADMSG unless the raster has the size that `form` says. error may be NULL. */
int raster_check_size(const struct packimg_sample *raster, const struct frame_raster *form,
		      struct packimg_error *error);
/*
 * Makes what the geometry shows of a raster, in form->output. whole: all of the raster's pixels, or
 * NULL to decode those of `sample` that are shown. Sets scratch->times.decode.
 */
int raster_run(struct pipeline_scratch *scratch, const struct geometry *geometry,
	       const struct packimg_sample *sample, const struct frame_raster *form,
	       const struct packimg_raster *whole, void *output, struct packimg_error *error);
/* As pipeline_apply_raster(), which gives NULL for `whole`. */
int raster_finish(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		  const struct packimg_sample *sample, const struct frame_raster *form,
		  const struct packimg_raster *whole, uint64_t seed, uint64_t epoch, void *output,
		  struct pipeline_times *times, struct packimg_error *error);
