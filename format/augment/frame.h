/*
 * Values in the frame of a sample's image, that is, on its upright pixel grid: masks, rasters,
 * boxes, keypoints and polygons. They follow the image through a pipeline with the same random
 * decisions, which depend only on (seed, epoch, sample index) and, with random_iou_crop, on the
 * sample's boxes; so image and values may be made in any order. pipeline_apply() makes the image.
 * A pipeline_scratch belongs to one thread.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/schema.h"

/*
 * Returns -EINVAL, with the position of the transform, unless everything in the frame can follow
 * the pipeline. Policies such as rand_augment warp only images, as in torchvision; a coordinate has
 * no single position in a border that mirrors the picture. Also refuses a pipeline that defers.
 * error may be NULL.
 */
int pipeline_check_frame(const struct pipeline *pipeline, bool coordinates,
			 struct pipeline_error *error);

/*
 * Returns true if the pipeline may drop boxes (sanitize_boxes, mosaic, copy_paste). `value` is the
 * boxes' bit among pipeline_values(), 0 if they are not named.
 */
bool pipeline_drops_boxes(const struct pipeline *pipeline, uint32_t value);
/*
 * Returns -EINVAL, with the position of the step, if a step needs boxes: for feeds that deliver
 * neither boxes nor values whose rows belong to boxes. error may be NULL.
 */
int pipeline_check_no_boxes(const struct pipeline *pipeline, struct pipeline_error *error);

/*
 * Compares the values that the pipeline names with the schema of a dataset: names, roles and
 * elements. -EINVAL with the position of the name or step. error may be NULL.
 */
int pipeline_check_values(const struct pipeline *pipeline, const struct schema *schema,
			  struct pipeline_error *error);
/*
 * Converts the fill of a named value to the element. Returns -ERANGE if the element cannot
 * represent it, which pipeline_check_values() rules out.
 */
int pipeline_value_fill(const struct pipeline_value *named, enum schema_element element,
			uint8_t ret_fill[4]);

/*
 * Sets *ret_number to the number in the schema of the boxes by which random_iou_crop chooses, -1 if
 * the pipeline has no such step: those that it names, or the only ones in the frame of the first
 * image. -EINVAL, with the position of the step, unless there is exactly one such value. error may
 * be NULL.
 */
int pipeline_find_boxes(const struct pipeline *pipeline, const struct schema *schema,
			int *ret_number, struct pipeline_error *error);

/* A mask or raster as the schema describes it. */
struct frame_raster {
	uint32_t width, height; /* of the sample's image: upright pixels */
	enum packimg_element element;
	uint32_t channels;
	uint8_t fill[4]; /* value of pixels outside the image, as an element for all channels */
	/*
	 * Of resizes. But for nearest they are antialiased, in f32, and integers are rounded at the
	 * end: for measurements such as depth, never for class numbers. Warps stay nearest.
	 */
	enum pipeline_filter filter;
	/* What is made of the elements: widen.h. 0 for the same. */
	enum schema_element output;
	/*
	 * Tells the rasters of a sample apart, of which what several views show is decoded once; 0
	 * to decode it for each
	 */
	uint32_t number;
};

/*
 * Makes one finished mask or raster: height x width x channels elements of pipeline_shape()'s
 * height and width, of form->output, with form->filter. `raster`
 * has its stored bytes, and the index of the image's sample. `output` needs no alignment. Adds the
 * time to *times, which may be NULL.
 *
 * -EBADMSG also if size, element or channels are not those of `form`; otherwise the errors of
 * packimg_decode_raster() and pipeline_apply(). error may be NULL.
 */
int pipeline_apply_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *raster, const struct frame_raster *form,
			  uint64_t seed, uint64_t epoch, void *output, struct pipeline_times *times,
			  struct packimg_error *error);

/* Fills `size` bytes with what is outside of an image: for samples that lack the mask or raster. */
void pipeline_fill_raster(const struct frame_raster *form, void *output, size_t size);

/* Meaning of a value's coordinates. */
struct coordinates {
	enum schema_role role;     /* SCHEMA_BOXES, SCHEMA_KEYPOINTS or SCHEMA_POLYGONS */
	enum schema_format format; /* SCHEMA_XYXY, XYWH, CXCYWH or CXCYWHR; SCHEMA_XY or XYV */
	bool normalized;           /* fractions of the frame's width and height */
	uint32_t value;            /* its bit among pipeline_values(); 0 if it is not named */
};

/* The boxes of a sample, by which random_iou_crop chooses. Memory of the caller's. */
struct frame_boxes {
	struct coordinates form; /* not CXCYWHR */
	const float *rows;       /* as stored */
	size_t count;
	float *corners; /* room for four floats a box, which transforms use */
};

/*
 * Gives the boxes of the sample of which images and values are made next, for a pipeline with
 * random_iou_crop; NULL for a sample without boxes, which the step leaves as it is. Nobody else may
 * change them until the last of these is made: all have to follow the same crop.
 */
void pipeline_scratch_boxes(struct pipeline_scratch *scratch, const struct frame_boxes *boxes);

/*
 * Says which image pipeline_apply() makes next: the bit of its name among pipeline_values(), 0 if
 * it is not named. Steps that name other images leave it as it is.
 */
void pipeline_scratch_value(struct pipeline_scratch *scratch, uint32_t value);

/* Returns the floats of a row; 0 if the functions below cannot move such a value. */
size_t coordinates_row(const struct coordinates *coordinates);
/*
 * Moves `count` rows of coordinates of a sample of width x height pixels, in place:
 * apply/coordinates.h. Sets keep[i] to 0 if the pipeline drops box i, else to 1; keep may be NULL.
 * Returns the errors of pipeline_apply() that concern the geometry.
 */
int pipeline_apply_coordinates(const struct pipeline *pipeline,
			       const struct pipeline_scratch *scratch, uint64_t index,
			       uint32_t width, uint32_t height,
			       const struct coordinates *coordinates, uint64_t seed, uint64_t epoch,
			       float *rows, size_t count, uint8_t *keep,
			       struct packimg_error *error);

/*
 * Removes the rows of `row_size` bytes whose keep[i] is 0; the others stay in order. Call it for
 * the boxes and for each value whose rows belong to them; polygons_keep() for polygons of boxes.
 * Returns the number of remaining rows.
 */
size_t rows_keep(void *rows, size_t row_size, const uint8_t *keep, size_t count);
/*
 * Sets ret_top_left to the position (y, x) of a finished sample's first pixel in the picture that
 * the pipeline's last resize has made, mirrored as the sample is; in the upright image if nothing
 * is resized. Negative in a border. Warps are left out of account. `sample` has the index and the
 * size of the stored one. Errors as of pipeline_apply().
 */
int pipeline_crop_top_left(const struct pipeline *pipeline, const struct pipeline_scratch *scratch,
			   const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			   int32_t ret_top_left[2], struct packimg_error *error);
