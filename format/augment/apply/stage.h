/*
 * Runs one stage of a geometry: determines the part of its input that it needs, gets that part from
 * the decoder (band by band) or from the previous stage's picture, and resizes or copies it onto a
 * canvas. One thread at a time; the thread owns the scratch memory.
 */
#pragma once

#include "format/augment/apply/canvas.h"
#include "format/augment/apply/raster_resampler.h"
#include "format/augment/apply/shared_pictures.h"
#include "format/augment/apply/shared_rasters.h"
#include "format/augment/deferred.h"
#include "format/augment/frame.h"
#include "format/augment/kernels/block.h"

struct pipeline_scratch {
	struct packimg_decoder *decoder;
	struct resize *resize;
	struct effects *effects;
	enum cpu_isa isa;
	const struct converter_kernels *kernels;
	struct block between[2]; /* pictures between two stages */
	struct canvas_rows rows;
	struct raster_resampler resampler; /* for masks and rasters: frame.h */
	uint32_t value;                    /* the bit of the image that is made: frame.h */
	struct frame_boxes boxes;          /* of the sample that is made: random_iou_crop */
	uint64_t shared_seed;              /* of the views that are made */
	struct pipeline_size bucket;       /* of the sample that is made; 0 x 0 for the largest */
	struct pipeline_window window;     /* of finished pictures; width 0 for all */
	const struct mosaic_tile *tile;    /* whose values are moved, or NULL: mosaic.h */
	struct shared_pictures shared;     /* from which the views are made */
	struct shared_rasters rasters;     /* likewise */
	struct block picture;              /* which is divided into patches */
	struct pipeline_times times;       /* for the current sample; resize is computed last */
	struct deferred deferred;          /* deferred transforms of the sample made last */
};

/* Returns the shape of the finished image of a sample, or of the part of it that is made:
 * pipeline_scratch_window(). */
struct pipeline_shape scratch_shape(const struct pipeline_scratch *scratch,
				    const struct pipeline *pipeline,
				    const struct packimg_sample *sample, uint64_t epoch);
/* Runs stage `index` onto its canvas. Returns the errors of pipeline_apply(). */
int stage_run(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
	      const struct geometry *geometry, unsigned index, struct canvas *canvas,
	      struct packimg_error *error);
/*
 * Computes the region that stage_run() will request from the decoder for the first stage. Returns
 * false if it requests none.
 */
bool stage_batched_decode(const struct geometry_stage *stage, const struct packimg_sample *sample,
			  struct packimg_ahead *ret_part);
/* Writes "sample N: ..." to *error (may be NULL). Returns `result`. */
int sample_explain(struct packimg_error *error, int result, const struct packimg_sample *sample,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));
