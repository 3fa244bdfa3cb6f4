/*
 * Source images: determines the file's kind, checks that it is complete, and decodes it to upright
 * 8-bit RGB or grey. 16-bit samples lose their low byte, palettes are expanded, alpha is dropped
 * (like Pillow's convert("RGB")), CMYK and YCCK become RGB, and the orientation is applied. A
 * reader holds the scratch memory of one thread; pixels are valid until its next call. Each kind
 * has its own source file.
 */
#pragma once

#include "format/augment/resize.h"
#include "format/packimg.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/image/image_format.h"
#include "tools/packimg/image/unindexed.h"

enum {
	/* readable bytes required after a file's bytes, because vector code loads beyond the end */
	IMAGE_PADDING = 64,
};
/*
 * Limit in bytes for decoding one image of any size: enough for a billion pixels, or for a quarter
 * of that as a progressive JPEG with its coefficients.
 */
#define IMAGE_MEMORY_MAX (UINT64_C(3) << 30)
/* Number of pixels of the largest image that a dataset can hold. */
#define IMAGE_PIXELS_MAX ((uint64_t)PACKIMG_SIDE_MAX * PACKIMG_SIDE_MAX)

/*
 * Creates a decoder for samples with that limit, because datasets are also untrusted. 0 or -ENOMEM.
 */
int image_decoder_new(struct packimg_decoder **ret_decoder);

struct image_info {
	enum image_kind kind;
	uint32_t width, height;        /* size as stored, before orientation */
	uint8_t channels;              /* 1, 3 or 4 as stored; an image with a palette has 3 */
	uint8_t orientation;           /* 1..8 as in EXIF */
	struct packimg_jpeg_info jpeg; /* only for a JPEG */
};

/* Returns the size after applying the orientation. */
void image_upright_size(const struct image_info *info, uint32_t *ret_width, uint32_t *ret_height);

struct image_reader {
	struct packimg_decoder *decoder;
	struct buffer pixels, turned, grey;
};

int image_reader_init(struct image_reader *reader);
void image_reader_deinit(struct image_reader *reader);

/*
 * Reads the headers. -ENOTSUP, with the kind's name, for image formats that are known but not read;
 * -EBADMSG for damage.
 */
int image_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
		struct packimg_error *error);
/* The index of a JPEG, which speeds up decoding. */
struct image_side {
	const uint8_t *data;
	size_t size;
};

/*
 * Checks that the image is complete and can be decoded. Like image_read(), but returns no pixels.
 */
int image_check(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct packimg_error *error);
/*
 * Builds the index of a JPEG, valid until the reader's next call. If the JPEG cannot have one,
 * returns 0 with size 0 and the reason. Checks the image in either case. Errors as image_check().
 */
int image_index(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct image_side *ret_side,
		enum unindexed *ret_reason, struct packimg_error *error);
/*
 * Decodes to 1 or 3 channels. side may be NULL. A target size (of the upright image; 0 for full
 * size) allows decoding a JPEG at 1/2, 1/4 or 1/8 if the result is at least twice the target.
 */
int image_read(struct image_reader *reader, const uint8_t *data, size_t size,
	       const struct image_info *info, const struct image_side *side, uint32_t target_width,
	       uint32_t target_height, struct resize_picture *ret_pixels,
	       struct packimg_error *error);
/* Same, for a sample of a dataset. */
int image_read_sample(struct image_reader *reader, const struct packimg_sample *sample,
		      uint32_t target_width, uint32_t target_height,
		      struct resize_picture *ret_pixels, struct packimg_error *error);

/* Callbacks for parallel_map.h: the state of each worker is a struct image_reader. */
int image_worker_init(void *context, void *reader);
void image_worker_deinit(void *reader);

/* Turns stored pixels upright. target holds height x width pixels. */
void image_orient(const uint8_t *source, uint32_t width, uint32_t height, uint32_t channels,
		  uint8_t orientation, uint8_t *target);

/*
 * Returns -ENOTSUP with a message for an intact but unsupported file: what the file is, and what to
 * do about it. Only damaged files get messages about damage.
 */
__attribute__((format(printf, 2, 3))) int image_not_supported(struct packimg_error *error,
							      const char *format, ...);

/* Replaces the buffer by a PNG of 8-bit pixels: grey, RGB, or RGB with alpha. */
int image_write_png(const struct resize_picture *pixels, struct buffer *png,
		    struct packimg_error *error);
