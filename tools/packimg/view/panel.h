/*
 * One picture of a sample, as stored or as a pipeline delivers it, with a layer of its masks, and
 * its shapes. The delivered picture is made with the daemon's functions, for the same seed, epoch
 * and sample; for 8-bit output it has exactly the daemon's bytes. A struct panel_maker belongs to
 * one thread; a struct panel is reused from sample to sample.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/augment/resize.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/view/shapes.h"

struct panel {
	uint32_t width, height; /* pixels; 0 if the sample has no picture */
	struct buffer rgb;      /* height x width x 3 bytes */
	bool has_mask;
	/*
	 * height x width x 4 bytes: translucent colour_of() each number; transparent where it is 0
	 */
	struct buffer mask;
	struct shapes shapes;
	char note[160];                /* what the picture shows, for people */
	char fault[PACKIMG_ERROR_MAX]; /* the reason if there is no picture; arbitrary bytes */
};

/* The pipeline of delivered pictures, with the arguments that a client gives to the daemon. */
struct panel_pipeline {
	const char *text;
	uint64_t seed, epoch;
	struct pipeline *parsed;
	struct pipeline_shape shape;
	int boxes; /* number in the schema of those by which the pipeline chooses a crop, or -1 */
	bool moves_masks, moves_shapes;   /* whether they can follow the image */
	char refusal[PIPELINE_ERROR_MAX]; /* the reason if one of these is false */
};

struct panel_maker {
	const struct packimg *dataset;
	uint32_t side_max; /* pixels of the longer side of a picture as stored */
	struct panel_pipeline *pipeline;
	struct image_reader reader;
	struct resize *resize;
	struct pipeline_scratch *scratch;
	struct buffer bytes; /* of a finished sample */
	struct buffer boxes; /* by which the pipeline chooses a crop, and room for their corners */
};

enum { PANEL_MASK_ALPHA = 128 };

/*
 * Parses the pipeline and fixes it for the dataset, as the daemon does when it opens a feed.
 * -EINVAL with a message. Call panel_pipeline_close() also after a failure.
 */
int panel_pipeline_open(struct panel_pipeline *pipeline, const struct packimg *dataset,
			struct packimg_error *error);
void panel_pipeline_close(struct panel_pipeline *pipeline);

/*
 * pipeline may be NULL: call only panel_stored() then. Returns 0 or -ENOMEM; call deinit also after
 * a failure.
 */
int panel_maker_init(struct panel_maker *maker, const struct packimg *dataset, uint32_t side_max,
		     struct panel_pipeline *pipeline);
void panel_maker_deinit(struct panel_maker *maker);
/*
 * Make a picture of a sample whose stored bytes are verified. Of a sample that cannot be shown they
 * set panel->fault and return 1. Returns 0, 1 or -ENOMEM.
 */
int panel_stored(struct panel_maker *maker, const struct packimg_sample *sample,
		 struct panel *panel);
int panel_delivered(struct panel_maker *maker, const struct packimg_sample *sample,
		    struct panel *panel);
void panel_deinit(struct panel *panel);
