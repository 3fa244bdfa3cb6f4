/*
 * The pipeline of delivered pictures, with the arguments that a client gives to the daemon. Owned
 * by its creator; immutable once it is open.
 */
#pragma once

#include "format/augment/pipeline.h"

struct panel_pipeline {
	const char *text;
	uint64_t seed, epoch;
	struct pipeline *parsed;
	struct pipeline_shape shape;
	int boxes; /* number in the schema of those by which the pipeline chooses a crop, or -1 */
	bool moves_masks, moves_shapes;        /* whether they can follow the image; also rasters */
	char refusal[PIPELINE_ERROR_MAX];      /* the reason if one of these is false */
	char mask_refusal[PIPELINE_ERROR_MAX]; /* the reason if moves_masks is false */
};

/*
 * Parses the pipeline and fixes it for the dataset, as the daemon does when it opens a feed.
 * -EINVAL with a message. Call panel_pipeline_close() also after a failure.
 */
int panel_pipeline_open(struct panel_pipeline *pipeline, const struct packimg *dataset,
			struct packimg_error *error);
void panel_pipeline_close(struct panel_pipeline *pipeline);
