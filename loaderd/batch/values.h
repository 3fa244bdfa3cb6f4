/*
 * The values that a feed delivers of each sample: where each comes from, and how to copy a sample's
 * values to a slot. Value i fills section i of the ring. Chosen once when the feed opens
 * (worker/subscription.c), then read by all threads. See proto/SPEC.md, "Ring header" and "Fields".
 */
#pragma once

#include "format/augment/frame.h"
#include "format/augment/mosaic.h"
#include "format/augment/paste.h"
#include "format/augment/pipeline.h"
#include "loaderd/io/dataset.h"
#include "loaderd/io/io.h"
#include "proto/ring.h"

#include <stdbool.h>
#include <stdint.h>

enum value_source {
	VALUE_IMAGE, /* a sample's first image, finished by its view */
	VALUE_LABEL,
	VALUE_SAMPLE, /* the sample's number */
	VALUE_FLAGS,
	VALUE_FIELD,    /* a field of the dataset */
	VALUE_KEY,      /* the sample's source name, requested as "__key__" */
	VALUE_PICTURE,  /* a further image, a mask or a raster */
	VALUE_DEFERRED, /* the transforms left to the client (pipeline_defer()): "__deferred__" */
	/* derived_values.h: */
	VALUE_ORIGINAL_SIZE, /* height and width of the stored image, upright */
	VALUE_CROP_TOP_LEFT, /* pipeline_crop_top_left() */
	VALUE_GRID,          /* rows and columns of a sample's patches */
	VALUE_TARGET, /* of dense targets a weight of each class, else two labels: mixing.h */
	VALUE_SHARE,  /* the weight of the first of two labels */
};

struct value {
	enum value_source source;
	uint32_t view;     /* its number in value_table.views; 0 also of what belongs to no view */
	uint32_t field;    /* number of the dataset's field */
	uint32_t type;     /* enum packimg_field_type, as announced to the client */
	uint64_t capacity; /* bytes of one value; unused for scalars */
	/* From here on, rings of version 2 only: */
	const char *name;              /* as announced to the client; lives as long as the feed */
	uint8_t element;               /* enum ring_element */
	uint8_t dims;                  /* of a value, without its rows */
	bool ragged;                   /* any number of rows */
	bool longest_known;            /* no sample has more than `capacity` bytes, says the file */
	uint32_t row;                  /* bytes of a row, or of the value if it has no rows */
	uint32_t shape[RING_DIMS_MAX]; /* of a row, or of the value; `dims` sides */
	/* VALUE_PICTURE: */
	uint32_t image; /* packimg_image() */
	uint32_t named; /* of an image, also VALUE_IMAGE: its bit among pipeline_values(), or 0 */
	uint32_t channels; /* of a mask or raster; 0 of an image, which the pipeline finishes */
	uint8_t stored;    /* of a mask or raster: enum schema_element of the file */
	uint8_t fill[4];   /* of a mask or raster: the stored element from outside of the image */
	uint8_t filter;    /* of a raster: enum pipeline_filter */
	/*
	 * The image in whose frame the value is, with which it moves: VALUE_NO_FRAME,
	 * VALUE_FIRST_IMAGE, or VALUE_FURTHER_IMAGE and its number.
	 */
	uint32_t frame;
	struct coordinates coordinates; /* of boxes and points in a frame */
	/*
	 * 1 + the number in value_table.boxes of the boxes to which the rows belong, if the
	 * pipeline may drop some; else 0
	 */
	uint32_t boxes;
	/*
	 * Number of samples whose rows follow each other, for which there is room: of a mosaic, or
	 * with what copy_paste pastes; 0 for the sample's own
	 */
	uint32_t joined;
	bool objects; /* each of these boxes has any number of polygons: polygons.h */
};
enum { VALUE_NO_FRAME, VALUE_FIRST_IMAGE, VALUE_FURTHER_IMAGE };
enum { VALUE_OWN_NAME_SIZE = 16 };

/* One of the finished samples that a pipeline makes of a stored one: pipeline_view(). */
struct value_view {
	struct pipeline_view made;
	uint32_t image_named; /* value.named of its finished image */
	/* Boxes by which its pipeline chooses a crop, delivered themselves or not: VALUE_FIELD. */
	bool crops_by_boxes;
	struct value crop_boxes;
};

/* What copy_paste pastes. Sections, 0 for none. */
struct value_paste {
	uint32_t boxes;         /* value.boxes of the objects' rows; 0 without copy_paste */
	uint32_t mask, numbers; /* their pixels, and their numbers there */
	uint32_t polygons;      /* without a mask */
};

struct value_table {
	uint32_t version; /* of the ring */
	uint32_t count;
	uint32_t view_count; /* at least 1 */
	struct value_view views[PIPELINE_VIEWS_MAX];
	/* version 1, if a value does not fit: true fails the feed, false truncates the value */
	bool whole;
	bool pictures; /* there is a VALUE_PICTURE */
	/*
	 * Section of a VALUE_TARGET, the last, or if a VALUE_SHARE follows, the last but one; 0
	 * without targets.
	 */
	uint32_t target;
	uint32_t classes; /* weights of a dense target; 0 if targets are two labels */
	/* Boxes of which the pipeline may drop rows, delivered themselves or not: VALUE_FIELD. */
	uint32_t box_count;
	struct value boxes[RING_SECTIONS_MAX];
	struct value values[RING_SECTIONS_MAX];
	struct value_paste paste;
	/* Names of the first values, and of targets, for which the schema has none. */
	char own_names[RING_FIRST_FIELD][VALUE_OWN_NAME_SIZE];
	char target_names[2][VALUE_OWN_NAME_SIZE];
};

/* What a mosaic joins into one sample: joining.h. */
struct value_join {
	struct mosaic mosaic;
	uint64_t index;                    /* of sample 0, whose random decisions all follow */
	uint8_t *pictures;                 /* of values with a picture, before further steps */
	size_t offsets[RING_SECTIONS_MAX]; /* of a value's picture */
	uint32_t rows[RING_SECTIONS_MAX];  /* of values that join, so far */
	uint32_t next[RING_SECTIONS_MAX];  /* the same with the sample that is added */
	struct mosaic_tile tile;           /* of the sample that is added */
	struct packimg_sample first;       /* sample 0, without its bytes */
	uint8_t flags;                     /* of sample 0 */
};

/* The sample whose values are copied. */
struct value_origin {
	struct dataset *dataset;
	const struct packimg_sample *sample; /* its first image */
	struct io *io;
	uint64_t decider;                   /* index of the sample whose random decisions apply */
	uint64_t unit;                      /* as for io_get_image() */
	uint32_t view;                      /* which is made: its number in value_table.views */
	const struct pipeline *pipeline;    /* of the view */
	const struct pipeline_shape *shape; /* of the view's finished images */
	/* Of a pipeline that makes patches: where the sample's are in its batch, and their room. */
	uint32_t patch_first, patch_room;
	uint64_t seed, epoch;             /* those of pipeline_apply() */
	struct pipeline_scratch *scratch; /* scratch that made the sample's pixels */
	struct pipeline_times *times;
	/* the thread's buffers, for unmapped datasets: of a field's value, and of a further image
	 */
	struct io_buffer *bytes, *image_bytes;
	struct io_buffer *box_bytes;  /* of boxes, and a byte for each box */
	struct io_buffer *crop_bytes; /* of boxes that choose the crop, and their corners */
	/* Makes pictures from what is joined, and leaves rows that are joined; else NULL. */
	const struct value_join *join;
	/* [sections], true for values that are not made; NULL to make all */
	const bool *skip;
};

/*
 * Begins a table with what every feed delivers: image, label, sample number and flags. The pipeline
 * lives at least as long.
 */
void values_init(struct value_table *values, const struct pipeline *pipeline);
/* What a view's finished images are, as far as the room for them depends on it. */
struct value_images {
	uint8_t element; /* enum ring_element */
	uint64_t bytes;  /* of one batch's images, at most */
	uint64_t pixels; /* of one batch's images, at most */
	/* of a pipeline that makes patches: bytes of one, and their number in a batch, at most */
	uint32_t patch;
	uint64_t patches;
};
/*
 * Sets ret_images, at most SCHEMA_IMAGES_MAX, to the further images that are delivered, each once.
 * Returns their number.
 */
uint32_t values_images(const struct value_table *values, uint8_t *ret_images);
/*
 * Describes the sections for these values. images: [view_count]. -EINVAL if a value cannot be a
 * section.
 */
int values_geometry(const struct value_table *values, uint32_t slots, uint32_t batch_size,
		    const struct value_images *images, struct ring_geometry *ret_geometry);
/* Bytes of one sample's picture, for VALUE_IMAGE and VALUE_PICTURE. */
size_t values_picture_size(const struct value *value, const struct pipeline_shape *shape);
/*
 * Fills in the extents of a batch, version 2. images: [view_count], the finished images. samples:
 * samples written, including skipped ones; count: without them. patches: room of the samples'.
 */
void values_extents(const struct value_table *values, const struct ring_geometry *layout,
		    const struct pipeline_shape *images, uint32_t samples, uint32_t count,
		    uint32_t patches, struct ring_extent *ret_extents);
/*
 * Makes what a view has of a sample at index i of a slot: its image, the values in its frame, and
 * with view 0 those that belong to no view. What is in the frame of an image follows it through the
 * pipeline. Adds to the sample's flags. Call it inside the dataset's guard. Returns -EBADMSG if a
 * value is damaged, -ENOMEM, -EINVAL if a value does not fit (the sample is not at fault), or
 * another error of pipeline_apply(). All set error->text.
 */
int values_put(const struct value_table *values, const struct value_origin *origin,
	       const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
	       uint8_t *flags, struct packimg_error *error);
/* Returns the form of a mask or raster, without its size. */
struct frame_raster values_raster_form(const struct value *value);
/*
 * Adds a sample's rows of values that join behind join->rows, and sets join->next. Errors as of
 * values_put().
 */
int values_add_rows(const struct value_table *values, const struct value_origin *origin,
		    const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
		    struct value_join *join, struct packimg_error *error);
/* Says at index i of a slot how many rows are joined, and where they are. */
void values_set_rows(const struct value_table *values, const struct ring_geometry *layout,
		     struct ring_slot *slot, uint32_t i, const struct value_join *join);
