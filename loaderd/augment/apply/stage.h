/*
 * One stage of a plan (plan.h) on its way to pixels: what of its input it depends on, where that
 * comes from (the decoder, band by band; a picture that the stage before left), and how it is
 * resized or copied onto a canvas. Used by one thread at a time, which owns the scratch.
 */
#pragma once

#include "format/base/deferred.h"
#include "loaderd/augment/apply/canvas.h"
#include "loaderd/augment/kernels/block.h"

struct transform_scratch {
	struct packimg_decoder *decoder;
	struct resize *resize;
	struct effects *effects;
	enum cpu_isa isa;
	const struct store_kernels *kernels;
	struct block between[2]; /* pictures between two stages */
	struct canvas_rows rows;
	struct transform_times times; /* of the sample at hand; resize is filled in last */
	struct deferred deferred;     /* of the sample that was made last */
};

/* Runs stage number index of a plan onto its canvas. Errors as transform_apply. */
int stage_run(struct transform_scratch *scratch, const struct packimg_sample *sample,
	      const struct plan *plan, unsigned index, struct canvas *canvas,
	      struct packimg_error *error);
/* What stage_run will ask the decoder for in a plan's first stage; false: nothing. */
bool stage_ahead(const struct plan_stage *stage, const struct packimg_sample *sample,
		 struct packimg_ahead *ret_part);
/* Writes "sample N: ..." into error, which may be NULL; returns result. */
int sample_explain(struct packimg_error *error, int result, const struct packimg_sample *sample,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));
