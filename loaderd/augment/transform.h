/*
 * Transforms: the pipeline grammar, and what it does to one sample.
 *
 *     pipeline  = { step }
 *     step      = NAME [ "(" [ argument { "," argument } ] ")" ]
 *     argument  = [ KEY "=" ] value
 *     value     = size | NUMBER { ":" NUMBER } | WORD
 *     size      = extent | extent "@" EPOCH { ";" extent "@" EPOCH }
 *                 (a size from that epoch on: 128@0;160@6;192@12)
 *     extent    = N | WIDTH "x" HEIGHT
 *
 * White space separates steps and may stand round names, commas and parentheses. Arguments without
 * a key come in the order below; those shown with "=" have that default. The steps, with
 * torchvision's meaning and rounding:
 *
 *     random_resized_crop(size, scale=0.08:1, ratio=0.75:1.3333, chroma=exact|fast,
 *                         interpolation=bilinear|bicubic)
 *             a random part of the area, of a random shape, to size
 *     resize(size, chroma=exact|fast, interpolation=bilinear|bicubic)
 *             N: the short side, keeping the shape; WxH: exactly
 *     center_crop(size)
 *             the middle; black around it where the image is smaller
 *     pad(extent, fill=0|reflect)
 *             a border of N pixels, or of W at the sides and H above and below
 *     random_crop(size, padding=0, fill=0|reflect)
 *             pad, then a random place; the padded image must be at least as large
 *     hflip(p=0.5|alternate) vflip(p=0.5|alternate)
 *             left-right, upside down, with probability p
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
 * A fill is one number or R:G:B, 0 to 255. A border that is reflected mirrors the picture at its
 * outermost pixels, which are not repeated. Flips that alternate are drawn for epoch 0, with
 * probability 0.5, and then are the other way in every epoch. The last four act on the finished
 * picture and stand after the others, in any order, each at most once; random_erasing and cutout
 * may come after them, and their value is then in the units of the result. Example:
 * random_resized_crop(224, scale=0.25:1) hflip normalize(imagenet) to(f16).
 *
 * Resizing is antialiased bilinear (resize.h). Steps are folded: the part of the image that the
 * finished sample depends on is decoded, at a reduced scale where that loses nothing, and resized
 * once. Pixels are rounded to 8 bits only where steps cannot be folded (a resize of what was
 * resized or padded, geometry after steps that change pixels: put those last).
 *
 * interpolation=bicubic is Pillow's bicubic filter, byte for byte, of pixels that were decoded at
 * full scale: for evaluation as torchvision and timm do it. It is slower than bilinear.
 *
 * chroma=fast resizes the Y, Cb and Cr of a JPEG each by itself, from its own samples centred as
 * JFIF has them, and converts only the finished pixels; exact upsamples and converts first, as
 * libjpeg does. What differs is how sharp chroma is, and where colours beyond RGB are cut off. How
 * much, and what it saves, chroma_bench measures. Where there are no such planes pixels are those
 * of exact: in raw samples, grey and turned images, JPEGs that libjpeg-turbo decodes (progressive,
 * CMYK, RGB), and where nothing is resized, or what was resized or changed before. Which way is
 * taken depends on the image and the pipeline alone.
 *
 * A parsed pipeline is immutable and shared by all threads (the transform_fix_ functions come
 * before that). Every random decision is drawn from (seed, epoch, sample index) and nothing else,
 * so a sample's bytes do not depend on threads, instruction set or history.
 */
#pragma once

#include "format/packimg.h"

#include <stddef.h>
#include <stdint.h>

enum {
	TRANSFORM_TEXT_MAX = 4096, /* bytes of a pipeline's text */
	TRANSFORM_STEPS_MAX = 32,
	TRANSFORM_SIDE_MAX = 4096, /* pixels, either side of a finished sample */
	TRANSFORM_ERROR_MAX = 256,
};

enum transform_element {
	TRANSFORM_U8 = 1,
	TRANSFORM_F16 = 2,
	TRANSFORM_BF16 = 3,
	TRANSFORM_F32 = 4
};
enum transform_layout { TRANSFORM_NHWC = 1, TRANSFORM_NCHW = 2 };

struct transform_error {
	int position; /* byte in the text, -1 when it concerns the whole */
	char text[TRANSFORM_ERROR_MAX];
};

/* A finished sample. */
struct transform_shape {
	uint32_t height, width, channels;
	enum transform_element element;
	enum transform_layout layout;
	size_t sample_size; /* bytes */
};

struct deferred;
struct transform;

/*
 * Parses and checks a pipeline. 0, -EINVAL with position and what was expected, -E2BIG beyond a
 * limit. A pipeline that fixes no size (such as the empty one, or hflip alone) delivers stored
 * pixels and needs samples of equal size: transform_fix_size.
 */
int transform_parse(const char *text, struct transform **ret_transform,
		    struct transform_error *error);
void transform_free(struct transform *transform);
/* Does the pipeline itself determine the size of its output? */
int transform_has_size(const struct transform *transform);
/*
 * Gives the stored size to a pipeline without one of its own. -EINVAL when a step cannot work on
 * it.
 */
int transform_fix_size(struct transform *transform, uint32_t width, uint32_t height,
		       struct transform_error *error);
/* Does normalize(dataset) still wait for the dataset's statistics? */
int transform_needs_statistics(const struct transform *transform);
/*
 * Gives them, in 0..255 as packimg_statistics returns them; without such a step, nothing happens.
 * -EINVAL for impossible ones.
 */
int transform_fix_statistics(struct transform *transform, const double mean[3], const double std[3],
			     struct transform_error *error);
/*
 * Leaves steps at the end to the client, as many as struct deferred (format/base/deferred.h) can
 * say: of random_crop, then flips, then color_jitter, random_grayscale, random_invert,
 * random_solarize, random_posterize, random_erasing and cutout, those from where the size is the
 * same for all samples. Shapes are then those of samples without them. Comes after the size is
 * fixed, once. -EINVAL: samples are not interleaved bytes.
 */
int transform_defer(struct transform *transform, struct transform_error *error);
/* Bytes of what transform_deferred() has at most, of a transform that defers. */
uint32_t transform_deferred_max(const struct transform *transform);
/*
 * Shape of a sample in an epoch (zeros while the size is unknown), and the largest sample_size over
 * all epochs.
 */
void transform_shape(const struct transform *transform, uint64_t epoch,
		     struct transform_shape *ret_shape);
size_t transform_sample_size_max(const struct transform *transform);

/* Where one sample's time went, added to; ticks (ticks.h). */
struct transform_times {
	uint64_t decode;  /* stored bytes to pixels of the region */
	uint64_t resize;  /* planning, and pixels to finished rows: resize and flips */
	uint64_t augment; /* effects on whole pictures: colour, blur, warping, erasing */
	/*
	 * rows to the finished sample: normalise, cast, layout, past the cache; estimated from some
	 * of the rows, 0 where resizing makes them there
	 */
	uint64_t store;
};

/* Scratch of one thread: decoder, tables, rows. */
struct transform_scratch;
int transform_scratch_new(struct transform_scratch **ret_scratch);
/* As packimg_decoder_limit(). */
void transform_scratch_limit(struct transform_scratch *scratch, uint64_t bytes);
void transform_scratch_free(struct transform_scratch *scratch);

/*
 * Makes one finished sample: decodes the region that the pipeline needs, resizes, flips, casts, and
 * stores sample_size bytes at output (64-byte aligned rows are not assumed). No memory is allocated
 * once warm. Errors as packimg_decode, and -EINVAL when the sample does not have the size that the
 * pipeline was fixed to; output is then undefined.
 */
int transform_apply(const struct transform *transform, struct transform_scratch *scratch,
		    const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
		    void *output, struct transform_times *times, struct packimg_error *error);

/* What was left to the client of the sample that was made last; *ret_size: bytes of it. */
const struct deferred *transform_deferred(const struct transform_scratch *scratch,
					  uint32_t *ret_size);

/*
 * Says which samples transform_apply will be called with next, at most PACKIMG_AHEAD_MAX: outputs
 * and errors stay the same. JPEGs without an index are then decoded side by side, if they are two
 * or more, and must stay as they are until the next call (packimg_decode_ahead). Returns how many
 * of them there are. Takes back what was said before.
 */
uint32_t transform_ahead(const struct transform *transform, struct transform_scratch *scratch,
			 const struct packimg_sample *samples, uint32_t count, uint64_t seed,
			 uint64_t epoch);
