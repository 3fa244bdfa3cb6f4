/*
 * The boxes, keypoints and polygons of a sample as lists of points to draw, in pixels of a picture.
 * They come from values of the schema in the frame of one of its images: as stored, or moved
 * by a pipeline with the daemon's code (format/augment/frame.h). Owned by its creator; buffers are
 * reused from sample to sample. One thread.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/schema.h"
#include "tools/packimg/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	SHAPES_MAX = 2000,        /* per sample; further ones are only counted */
	SHAPE_POINTS_MAX = 20000, /* per sample */
};

enum shape_kind {
	SHAPE_BOX,     /* four corners; rotated boxes are not upright */
	SHAPE_POLYGON, /* closed */
	SHAPE_POINT,
};

struct shape {
	enum shape_kind kind;
	int64_t colour;       /* number for colour_of(): of the class, or of the row */
	int64_t class_number; /* -1: none */
	size_t first, count;  /* points */
};

struct shapes {
	struct shape *list;
	size_t count, capacity;
	double (*points)[2]; /* x and y in pixels; may be any numbers, also not finite */
	size_t point_count, point_capacity;
	uint64_t left_out;           /* shapes beyond the limits */
	struct buffer rows, classes; /* copies of stored bytes */
	struct buffer keep; /* a byte for each box, 0 if the pipeline drops it; else empty */
};

/* Inputs from which a sample's shapes are made. */
struct shapes_source {
	const struct packimg *dataset;
	const struct packimg_sample *sample;    /* the image to which they belong */
	unsigned frame;                         /* its number in the schema */
	const struct pipeline *pipeline;        /* NULL: as stored */
	const struct pipeline_scratch *scratch; /* of the picture, unless as stored */
	uint64_t seed, epoch;                   /* of the pipeline */
	uint32_t frame_width, frame_height;     /* pixels, of the upright image or of the result */
	uint32_t width, height;                 /* pixels, of the picture to draw on */
};

void shapes_deinit(struct shapes *shapes);
/*
 * Replaces the shapes by the sample's. -EBADMSG if a value is damaged, -ENOMEM, or an error of
 * pipeline_apply_coordinates().
 */
int shapes_read(struct shapes *shapes, const struct shapes_source *source,
		struct packimg_error *error);
