/*
 * Pipelines of transforms: their grammar, and their application to one sample.
 *
 *     pipeline  = { step } { view }
 *     view      = "view" NAME [ "(" COPIES ")" ] "{" { step } "}"
 *     step      = [ names ":" ] transform
 *     names     = VALUE { "," VALUE }     (values of the dataset's schema)
 *     transform = NAME [ "(" [ argument { "," argument } ] ")" ]
 *     argument  = [ KEY "=" ] value
 *     value     = size | NUMBER { ":" NUMBER } | WORD
 *     size      = extent | extent "@" EPOCH { ";" extent "@" EPOCH }
 *                 (a size from that epoch on: 128@0;160@6;192@12)
 *     extent    = N | WIDTH "x" HEIGHT
 *
 * White space separates transforms and is allowed around names, commas and parentheses. Example:
 * random_resized_crop(224, scale=0.25:1) hflip normalize(imagenet) to(f16). The transforms and
 * their arguments are the rows of grammar/transform_rows.h and kernels/effect_rows.h; loaderd(1),
 * PIPELINES, describes each. Their meaning and rounding are torchvision's.
 *
 * Transforms without names act on the image and on everything in its frame (frame.h), with the same
 * random decisions; geometry therefore takes no names. Changes of pixels act on all images, or with
 * decisions of their own on those that are named; policies on all. fill and filter need
 * them; to sets the elements of images without, of masks and rasters with names; steps for boxes,
 * and random_iou_crop, which chooses by boxes, may have them.
 *
 * mosaic comes first, and joins samples that the caller gives it: mosaic.h.
 *
 * copy_paste acts on two finished samples, and mixup, cutmix and targets on batches of them: they
 * come last. copy_paste may have the names of the values that tell the pixels of objects.
 *
 * normalize, to, layout and channels set the format of the finished sample. They come after the
 * other transforms, in any order, each at most once. Only random_erasing and cutout may follow
 * them; their value is then in units of the finished sample.
 *
 * Resizing is antialiased bilinear (resize.h). Transforms are folded: only the part of the image
 * that the finished sample depends on is decoded, at a reduced scale if the target size permits,
 * and resized once. Pixels are rounded to 8 bits between transforms only where folding is
 * impossible: at a resize after a resize or pad, and at geometry after transforms that change
 * pixels (so put those last).
 *
 * interpolation=bicubic is Pillow's bicubic filter, byte for byte, on pixels decoded at full scale,
 * for evaluation as torchvision and timm do it. It is slower than bilinear.
 *
 * chroma=fast resizes the Y, Cb and Cr planes of a JPEG separately, with samples centred as JFIF
 * specifies, and converts only the finished pixels to RGB. chroma=exact upsamples and converts
 * first, as libjpeg does. The results differ in the sharpness of chroma and in where out-of-gamut
 * colours are clipped; chroma_bench measures the difference and the time saved. fast equals exact
 * if there are no planes to resize: for raw samples, for grey or rotated images, for JPEGs that
 * libjpeg-turbo decodes (progressive, CMYK, RGB), if nothing is resized, and if an earlier
 * transform resized or changed the pixels. The choice depends only on the image and the pipeline.
 *
 * Each copy of a view is another finished sample, made from one stored sample by the steps before
 * the first view and then its own. Those before decide alike for all copies; each copy draws its
 * own decisions from a seed of its own (pipeline_view()).
 *
 * A parsed pipeline is immutable and shared by all threads (call the pipeline_fix_ functions and
 * pipeline_defer() before sharing it). Every random decision depends only on (seed, epoch, sample
 * index), and that of random_iou_crop on the sample's boxes (frame.h), so a sample's bytes do not
 * depend on threads, instruction set or history.
 */
#pragma once

#include "format/augment/mix.h"
#include "format/packimg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PIPELINE_TEXT_MAX = 4096, /* bytes of a pipeline's text */
	PIPELINE_TRANSFORMS_MAX = 32,
	PIPELINE_SIDE_MAX = 4096, /* pixels per side of a finished sample */
	PIPELINE_ERROR_MAX = 256,
	PIPELINE_VALUES_MAX = 16, /* values that a pipeline names */
	PIPELINE_NAME_MAX = 63,   /* bytes of a value's or view's name */
	PIPELINE_VIEWS_MAX = 16,  /* copies of all views */
	PIPELINE_CLASSES_MAX = 1 << 20,
};

enum pipeline_element { PIPELINE_U8 = 1, PIPELINE_F16 = 2, PIPELINE_BF16 = 3, PIPELINE_F32 = 4 };
enum pipeline_layout { PIPELINE_NHWC = 1, PIPELINE_NCHW = 2 };

/* How resizes compute the values of a raster. */
enum pipeline_filter { PIPELINE_NEAREST = 0, PIPELINE_BILINEAR = 1, PIPELINE_BICUBIC = 2 };

struct pipeline_error {
	int position; /* byte offset in the text; -1 if the error concerns all of it */
	char text[PIPELINE_ERROR_MAX];
};

/* Shape of a finished sample. */
struct pipeline_shape {
	uint32_t height, width, channels;
	enum pipeline_element element;
	enum pipeline_layout layout;
	size_t sample_size; /* bytes */
};

/*
 * A value that a pipeline names, with its settings. Positions are -1 for settings that are not
 * given.
 */
struct pipeline_value {
	char name[PIPELINE_NAME_MAX + 1];
	int position;                       /* of the first mention in the text */
	int fill_position, filter_position; /* of these steps */
	int to_position;
	int boxes_position;  /* of the first step for boxes */
	int pixels_position; /* of the first that changes pixels */
	int paste_position;  /* of copy_paste */
	double fill;         /* for pixels outside the image */
	enum pipeline_filter filter;
	unsigned element; /* enum schema_element with which it is delivered; 0 as stored */
};

/* Pixels; 0 x 0 for none. */
struct pipeline_size {
	uint32_t width, height;
};

/* Targets that a batch gets, instead of labels alone. */
enum pipeline_targets {
	PIPELINE_NO_TARGETS,
	PIPELINE_TARGETS_DENSE, /* a weight of each class */
	PIPELINE_TARGETS_PAIRS, /* own label, partner's label, and the weight of the first */
};

/* What the steps for batches, at the end of a pipeline, do with finished images and labels. */
struct pipeline_batch {
	int position;        /* of the first of these steps in the text; -1 without them */
	struct mix_rule mix; /* both alphas are 0 if nothing is mixed */
	enum pipeline_targets targets;
	double label_smoothing; /* 0 .. 0.999; of dense targets */
	uint32_t classes;       /* of dense targets; 0 for as many as the dataset has */
};

/* The step copy_paste, at the end of a pipeline: paste.h. */
struct pipeline_paste {
	int position; /* in the text; -1 without the step */
	uint32_t
		values; /* bits of the values that tell the pixels of objects; 0 if none is named */
	double probability;
	double bbox_occluded_thr, mask_occluded_thr; /* pixels of a side, and pixels */
};

/* A part of finished pictures. */
struct pipeline_window {
	uint32_t x, y, width, height;
};

/* Patches of an image: patch_resize. */
struct pipeline_grid {
	uint32_t rows, columns;
};

struct deferred;
struct pipeline;

/*
 * Parses and checks a pipeline. Returns -EINVAL with the position and what was expected, or -E2BIG
 * if a limit is exceeded. A pipeline that sets no size (such as the empty one, or hflip alone)
 * delivers images in their stored size and needs samples of equal size: call pipeline_fix_size().
 */
int pipeline_parse(const char *text, struct pipeline **ret_pipeline, struct pipeline_error *error);
/*
 * Like pipeline_parse(), which refuses views, mosaic, patches and steps for several finished
 * samples: for callers that make a sample of each of pipeline_view(), join samples if
 * pipeline_joins() (mosaic.h), and do what pipeline_paste() and pipeline_batch() say. Functions
 * that make a sample, or say what it is like, take the pipeline of a view; the others act on all
 * views.
 */
int pipeline_parse_views(const char *text, struct pipeline **ret_pipeline,
			 struct pipeline_error *error);
void pipeline_free(struct pipeline *pipeline);
/* One copy of a view. */
struct pipeline_view {
	const char *name;                /* "" of a pipeline without views; lives as long as it */
	unsigned copy;                   /* among those of the same name */
	const struct pipeline *pipeline; /* what makes it */
};
/* Returns the number of copies of all views; 1 for a pipeline without views. */
unsigned pipeline_view_count(const struct pipeline *pipeline);
/*
 * Returns copy `number`, in the order of the text; a pipeline without views is its only one. A
 * copy's own decisions are drawn from the seed that pipeline_apply() is given, and those of the
 * steps before the views from that of pipeline_scratch_shared_seed().
 */
struct pipeline_view pipeline_view(const struct pipeline *pipeline, unsigned number);

/* Returns the pipeline's steps for batches, which pipeline_apply() leaves to the caller. */
const struct pipeline_batch *pipeline_batch(const struct pipeline *pipeline);
/* Returns the pipeline's copy_paste, which pipeline_apply() leaves to the caller: paste.h. */
const struct pipeline_paste *pipeline_paste(const struct pipeline *pipeline);
/* Returns true if the caller blends images: mix_draw_blend(), mix_images(). */
bool pipeline_mixes(const struct pipeline *pipeline);
/* Returns the values that the pipeline names. */
const struct pipeline_value *pipeline_values(const struct pipeline *pipeline, unsigned *ret_count);
/* Returns the value of that name; NULL if the pipeline does not name it. */
const struct pipeline_value *pipeline_value(const struct pipeline *pipeline, const char *name);
/*
 * Returns the value's bit for struct coordinates: 1 << its number; 0 if the pipeline does not name
 * it.
 */
uint32_t pipeline_value_bit(const struct pipeline *pipeline, const char *name);
/* Returns true if the pipeline sets the size of its output. */
int pipeline_has_size(const struct pipeline *pipeline);
/*
 * Sets the stored size of all samples, for a pipeline that sets no size. Returns -EINVAL if a
 * transform cannot work on that size.
 */
int pipeline_fix_size(struct pipeline *pipeline, uint32_t width, uint32_t height,
		      struct pipeline_error *error);
/*
 * Sets the sizes that bucket_resize may make, of which pipeline_scratch_bucket() chooses one for
 * each sample. Returns -EINVAL if a size is impossible, or if neither the pipeline nor a view of it
 * has bucket_resize.
 */
int pipeline_fix_buckets(struct pipeline *pipeline, const struct pipeline_size *sizes,
			 unsigned count, struct pipeline_error *error);
/* Returns true if the pipeline, or a view of it, has bucket_resize. */
bool pipeline_takes_buckets(const struct pipeline *pipeline);
/*
 * Returns the most patches of an image; 0 for a pipeline without patch_resize. With it a finished
 * sample is its patches, row by row of the image, and a patch is its pixels, row by row.
 */
uint32_t pipeline_patches_max(const struct pipeline *pipeline);
/*
 * Returns the patches of the image of a sample of that size, which depend on nothing else; of 0 x 0
 * pixels, or without patch_resize, none.
 */
struct pipeline_grid pipeline_patch_grid(const struct pipeline *pipeline, uint32_t width,
					 uint32_t height);
/* Returns true if normalize(dataset) still needs the dataset's statistics. */
int pipeline_needs_statistics(const struct pipeline *pipeline);
/*
 * Sets the dataset's statistics, in 0..255 as packimg_statistics() returns them. Does nothing for a
 * pipeline without normalize(dataset). Returns -EINVAL if the values are impossible.
 */
int pipeline_fix_statistics(struct pipeline *pipeline, const double mean[3], const double std[3],
			    struct pipeline_error *error);
/*
 * Leaves as many of the last transforms to the client as struct deferred (deferred.h) can describe:
 * a random_crop, then flips, then changes of pixels, all from rows marked DEFERS. Deferring starts
 * only where all samples have the same size. pipeline_shape() then returns shapes without the
 * deferred transforms. Call it once, after the size is fixed. Returns -EINVAL unless samples are
 * interleaved bytes, for views, patches, and steps for batches.
 */
int pipeline_defer(struct pipeline *pipeline, struct pipeline_error *error);
/*
 * Returns the maximum size in bytes of the result of pipeline_deferred(), for a pipeline that
 * defers.
 */
uint32_t pipeline_deferred_max(const struct pipeline *pipeline);
/*
 * pipeline_shape() returns the shape of a sample in an epoch, or zeros while the size is unknown;
 * of a pipeline with buckets, in the largest one; with patches, of one patch. pipeline_shape_in()
 * returns that in a bucket, 0 x 0 for the largest. pipeline_sample_size_max() returns the largest
 * sample_size of all epochs and buckets.
 */
void pipeline_shape(const struct pipeline *pipeline, uint64_t epoch,
		    struct pipeline_shape *ret_shape);
void pipeline_shape_in(const struct pipeline *pipeline, uint64_t epoch, struct pipeline_size bucket,
		       struct pipeline_shape *ret_shape);
size_t pipeline_sample_size_max(const struct pipeline *pipeline);

/* Accumulated time per stage, in ticks (ticks.h). */
struct pipeline_times {
	uint64_t decode;  /* stored bytes to pixels of the decoded region */
	uint64_t resize;  /* geometry, and pixels to finished rows, including flips */
	uint64_t augment; /* effects on whole pictures: colour, blur, warping, erasing */
	/*
	 * Writing finished rows to the output: normalise, cast, layout, non-temporal stores.
	 * Estimated from a sample of the rows; 0 if resizing writes the output directly.
	 */
	uint64_t store;
};

/* Scratch memory of one thread: decoder, tables, rows. */
struct pipeline_scratch;
int pipeline_scratch_new(struct pipeline_scratch **ret_scratch);
/*
 * Sets the memory limit of the decoder: packimg_decoder_limit(). Pictures that views share may take
 * half as much again, and so may rasters.
 */
void pipeline_scratch_limit(struct pipeline_scratch *scratch, uint64_t bytes);
void pipeline_scratch_free(struct pipeline_scratch *scratch);
/*
 * Gives the seed from which the steps before the views draw, for the samples that are made next.
 * Only pipelines of views use it.
 */
void pipeline_scratch_shared_seed(struct pipeline_scratch *scratch, uint64_t seed);
/*
 * Gives the bucket of the samples that are made next, one of pipeline_fix_buckets(); 0 x 0 for the
 * largest. Only bucket_resize uses it.
 */
void pipeline_scratch_bucket(struct pipeline_scratch *scratch, struct pipeline_size bucket);
/*
 * Says that of the finished images, masks and rasters that are made next only this part is made,
 * decoding what it needs; width 0 for all. Their pixels are those that the part has in the whole,
 * if no step erases from finished samples, whose rectangles stay where they are (paste_window()).
 */
void pipeline_scratch_window(struct pipeline_scratch *scratch, struct pipeline_window window);

/*
 * Makes one finished sample: decodes the region that the pipeline needs, resizes, flips and casts
 * it, and writes sample_size bytes to `output`; with patches, as many for each of them. Rows of
 * output need no alignment. Allocates no memory while samples are no larger than earlier ones.
 * Returns the errors of packimg_decode(), and -EINVAL if the sample's size differs from the fixed
 * size; `output` is then undefined.
 */
int pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		   const struct packimg_sample *sample, uint64_t seed, uint64_t epoch, void *output,
		   struct pipeline_times *times, struct packimg_error *error);

/* What pipeline_apply() will be given for a view. */
struct pipeline_view_call {
	const struct pipeline *pipeline;
	uint64_t seed;
	uint32_t value; /* pipeline_scratch_value() */
};

/*
 * Announces the pipeline_apply() calls that make the views of a sample in an epoch, at most
 * PIPELINE_VIEWS_MAX: what several of them need is decoded once, also of the masks and rasters that
 * pipeline_apply_raster() makes for them. This changes neither outputs nor errors. The sample's
 * memory must not get another sample before the next announcement, whose count may be 0. Call
 * pipeline_scratch_shared_seed() before. Adds the time to *times, which may be NULL.
 */
void pipeline_share_decode(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
			   const struct pipeline_view_call *views, unsigned count, uint64_t epoch,
			   struct pipeline_times *times);

/*
 * Returns the parameters of the deferred transforms for the sample made last. *ret_size is their
 * size in bytes.
 */
const struct deferred *pipeline_deferred(const struct pipeline_scratch *scratch,
					 uint32_t *ret_size);

/*
 * Announces the samples of the next pipeline_apply() calls, at most PACKIMG_AHEAD_MAX; this changes
 * neither outputs nor errors. If two or more are JPEGs without an index, they are decoded together
 * and must not change until the next call (packimg_decode_ahead()). Returns the number of such
 * JPEGs. Replaces the previous announcement.
 */
uint32_t pipeline_batched_decode(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
				 const struct packimg_sample *samples, uint32_t count,
				 uint64_t seed, uint64_t epoch);
