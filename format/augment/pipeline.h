/*
 * Transforms: the grammar of pipelines, and their application to one sample.
 *
 *     pipeline  = { step }
 *     step      = NAME [ "(" [ argument { "," argument } ] ")" ]
 *     argument  = [ KEY "=" ] value
 *     value     = size | NUMBER { ":" NUMBER } | WORD
 *     size      = extent | extent "@" EPOCH { ";" extent "@" EPOCH }
 *                 (a size from that epoch on: 128@0;160@6;192@12)
 *     extent    = N | WIDTH "x" HEIGHT
 *
 * White space separates steps and is allowed around names, commas and parentheses. Arguments
 * without a key are taken in the order below; "=" shows a default. The steps, with torchvision's
 * meaning and rounding:
 *
 *     random_resized_crop(size, scale=0.08:1, ratio=0.75:1.3333, chroma=exact|fast,
 *                         interpolation=bilinear|bicubic)
 *             a random fraction of the area with a random aspect ratio, resized to size
 *     resize(size, chroma=exact|fast, interpolation=bilinear|bicubic)
 *             N: the short side, keeping the aspect ratio; WxH: exactly
 *     center_crop(size)
 *             the middle; padded with black if the image is smaller
 *     pad(extent, fill=0|reflect)
 *             a border of N pixels, or W left and right and H above and below
 *     random_crop(size, padding=0, fill=0|reflect)
 *             pad, then a random position; the padded image must be at least that large
 *     hflip(p=0.5|alternate) vflip(p=0.5|alternate)
 *             mirrored horizontally or vertically with probability p
 *     color_jitter(brightness=0, contrast=0, saturation=0, hue=0, p=1)
 *             each V (1-V to 1+V; hue: -V to V) or LOW:HIGH
 *     random_grayscale(p=0.1) random_invert(p=0.5) random_autocontrast(p=0.5)
 *     random_equalize(p=0.5) random_solarize(threshold, p=0.5) random_posterize(bits, p=0.5)
 *     random_adjust_sharpness(sharpness_factor, p=0.5)
 *     gaussian_blur(kernel_size, sigma=0.1:2, p=1)
 *     random_rotation(degrees, interpolation=nearest|bilinear, fill=0)
 *     random_affine(degrees, translate=0:0, scale=1:1, shear=0,
 *                   interpolation=nearest|bilinear, fill=0)
 *     random_erasing(p=0.5, scale=0.02:0.33, ratio=0.3:3.3, value=0|random)
 *     cutout(size, p=1, value=0|random)
 *     rand_augment(num_ops=2, magnitude=9, num_magnitude_bins=31,
 *                  interpolation=nearest, fill=none)
 *     trivial_augment_wide(num_magnitude_bins=31, interpolation=nearest, fill=none)
 *     auto_augment(imagenet|cifar10|svhn, interpolation=nearest, fill=none)
 *     aug_mix(severity=3, mixture_width=3, chain_depth=-1, alpha=1, all_ops=true,
 *             interpolation=bilinear, fill=none)
 *     normalize(imagenet) normalize(dataset) normalize(mean=R:G:B, std=R:G:B)
 *             (pixel / 255 - mean) / std; needs a float type
 *     to(u8|f16|bf16|f32)
 *             element type; floats without normalize are pixel / 255
 *     layout(nhwc|nchw)
 *             interleaved (default) or planar
 *     channels(3|4)
 *             RGB (default), or RGB and a channel of zeros
 *
 * A fill is one number or R:G:B, 0 to 255. fill=reflect mirrors the picture at its outermost
 * pixels, which are not repeated. Alternating flips are drawn for epoch 0 with probability 0.5 and
 * change in every epoch after it. The last four steps act on the finished sample. They come after
 * the others, in any order, each at most once; random_erasing and cutout may follow them, and
 * their value is then in units of the result. Example: random_resized_crop(224, scale=0.25:1)
 * hflip normalize(imagenet) to(f16).
 *
 * Resizing is antialiased bilinear (resize.h). Steps are folded: only the part of the image that
 * the finished sample depends on is decoded, at a reduced scale if that loses nothing, and resized
 * once. Pixels are rounded to 8 bits in between only if steps cannot be folded: a resize after a
 * resize or pad, and geometry after steps that change pixels (so put those last).
 *
 * interpolation=bicubic is Pillow's bicubic filter, byte for byte, on pixels decoded at full
 * scale, for evaluation as torchvision and timm do it. It is slower than bilinear.
 *
 * chroma=fast resizes the Y, Cb and Cr planes of a JPEG separately, with samples centred as JFIF
 * specifies, and converts only the finished pixels to RGB. chroma=exact upsamples and converts
 * first, as libjpeg does. The results differ in the sharpness of chroma and in where out-of-gamut
 * colours are clipped; chroma_bench measures the difference and the time saved. fast gives the
 * pixels of exact if there are no such planes: for raw samples, grey and turned images and JPEGs
 * that libjpeg-turbo decodes (progressive, CMYK, RGB), and if nothing is resized or the picture
 * was resized or changed before. The choice depends only on the image and the pipeline.
 *
 * A parsed pipeline is immutable and shared by all threads (call the pipeline_fix_ functions and
 * pipeline_defer() before sharing it). Every random decision is drawn from (seed, epoch, sample
 * index) only, so a sample's bytes do not depend on threads, instruction set or history.
 */
#pragma once

#include "format/packimg.h"

#include <stddef.h>
#include <stdint.h>

enum {
	PIPELINE_TEXT_MAX = 4096, /* bytes of a pipeline's text */
	PIPELINE_TRANSFORMS_MAX = 32,
	PIPELINE_SIDE_MAX = 4096, /* pixels per side of a finished sample */
	PIPELINE_ERROR_MAX = 256,
};

enum pipeline_element { PIPELINE_U8 = 1, PIPELINE_F16 = 2, PIPELINE_BF16 = 3, PIPELINE_F32 = 4 };
enum pipeline_layout { PIPELINE_NHWC = 1, PIPELINE_NCHW = 2 };

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

struct deferred;
struct pipeline;

/*
 * Parses and checks a pipeline. Returns -EINVAL with the position and what was expected, or -E2BIG
 * if a limit is exceeded. A pipeline that sets no size (such as the empty one, or hflip alone)
 * delivers stored pixels and needs samples of equal size: call pipeline_fix_size().
 */
int pipeline_parse(const char *text, struct pipeline **ret_pipeline, struct pipeline_error *error);
void pipeline_free(struct pipeline *pipeline);
/* Returns true if the pipeline sets the size of its output. */
int pipeline_has_size(const struct pipeline *pipeline);
/*
 * Fixes the stored size for a pipeline that sets none. Returns -EINVAL if a step cannot work on
 * that size.
 */
int pipeline_fix_size(struct pipeline *pipeline, uint32_t width, uint32_t height,
		      struct pipeline_error *error);
/* Returns true if normalize(dataset) still needs the dataset's statistics. */
int pipeline_needs_statistics(const struct pipeline *pipeline);
/*
 * Sets the dataset's statistics, in 0..255 as packimg_statistics() returns them. Does nothing for a
 * pipeline without normalize(dataset). Returns -EINVAL if the values are impossible.
 */
int pipeline_fix_statistics(struct pipeline *pipeline, const double mean[3], const double std[3],
			    struct pipeline_error *error);
/*
 * Leaves the last steps to the client, as many as struct deferred (format/augment/deferred.h) can
 * describe: a random_crop, then flips, then color_jitter, random_grayscale, random_invert,
 * random_solarize, random_posterize, random_erasing and cutout, from the first such step at which
 * all samples have the same size. Shapes are then those without the deferred steps. Call it once,
 * after the size is fixed. Returns -EINVAL unless samples are interleaved bytes.
 */
int pipeline_defer(struct pipeline *pipeline, struct pipeline_error *error);
/* Returns the maximum size in bytes of pipeline_deferred(), for a transform that defers. */
uint32_t pipeline_deferred_max(const struct pipeline *pipeline);
/*
 * pipeline_shape() returns the shape of a sample in an epoch, or zeros while the size is unknown;
 * pipeline_sample_size_max() returns the largest sample_size of all epochs.
 */
void pipeline_shape(const struct pipeline *pipeline, uint64_t epoch,
		    struct pipeline_shape *ret_shape);
size_t pipeline_sample_size_max(const struct pipeline *pipeline);

/* Accumulated time per stage, in ticks (ticks.h). */
struct pipeline_times {
	uint64_t decode;  /* stored bytes to pixels of the decoded region */
	uint64_t resize;  /* planning, and pixels to finished rows, including flips */
	uint64_t augment; /* effects on whole pictures: colour, blur, warping, erasing */
	/*
	 * Finished rows to the output: normalise, cast, layout, non-temporal stores. Estimated from
	 * a sample of the rows; 0 if resizing writes the output directly.
	 */
	uint64_t store;
};

/* Scratch memory of one thread: decoder, tables, rows. */
struct pipeline_scratch;
int pipeline_scratch_new(struct pipeline_scratch **ret_scratch);
/* Sets the limit of packimg_decoder_limit(). */
void pipeline_scratch_limit(struct pipeline_scratch *scratch, uint64_t bytes);
void pipeline_scratch_free(struct pipeline_scratch *scratch);

/*
 * Makes one finished sample: decodes the region that the pipeline needs, resizes, flips and casts
 * it, and writes sample_size bytes to `output`, which needs no 64-byte aligned rows. Allocates
 * nothing once warm. Returns the errors of packimg_decode(), and -EINVAL if the sample's size
 * differs from the fixed size; `output` is then undefined.
 */
int pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		   const struct packimg_sample *sample, uint64_t seed, uint64_t epoch, void *output,
		   struct pipeline_times *times, struct packimg_error *error);

/*
 * Returns the parameters of the steps left to the client for the last sample made; *ret_size is
 * their size in bytes.
 */
const struct deferred *pipeline_deferred(const struct pipeline_scratch *scratch,
					 uint32_t *ret_size);

/*
 * Announces the samples of the next pipeline_apply() calls, at most PACKIMG_AHEAD_MAX; outputs and
 * errors stay the same. If two or more are JPEGs without an index, they are decoded together and
 * must not change until the next call (packimg_decode_ahead()). Returns the number of such JPEGs.
 * Replaces the previous announcement.
 */
uint32_t pipeline_batched_decode(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
				 const struct packimg_sample *samples, uint32_t count,
				 uint64_t seed, uint64_t epoch);
