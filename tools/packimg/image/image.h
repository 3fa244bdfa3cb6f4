/*
 * Source images: what kind of file it is, whether it is whole, and its pixels as upright 8-bit RGB
 * or grey. 16 bits lose their low byte, palettes are looked up, alpha is dropped (as Pillow's
 * convert("RGB") does), CMYK and YCCK become RGB, the orientation is applied. A reader holds the
 * scratch of one thread; pixels are valid until its next call. Each file kind is read in a file of
 * its own.
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/augment/resize.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/image/image_format.h"
#include "tools/packimg/image/unindexed.h"

enum {
	/* bytes that must be readable behind a file's bytes: vector code loads beyond the end */
	IMAGE_PADDING = 64,
};
/*
 * Bytes that decoding one image may take, whatever its size: a billion pixels as they come, or a
 * quarter of that as a progressive JPEG with its coefficients.
 */
#define IMAGE_MEMORY_MAX (UINT64_C(3) << 30)
/* Pixels of the largest image that a dataset can hold. */
#define IMAGE_PIXELS_MAX ((uint64_t)PACKIMG_SIDE_MAX * PACKIMG_SIDE_MAX)

/* A decoder with that limit: who wrote a dataset may mean ill, too. 0 or -ENOMEM. */
int image_decoder_new(struct packimg_decoder **ret_decoder);

struct image_info {
	enum image_kind kind;
	uint32_t width, height;        /* stored, before orientation */
	uint8_t channels;              /* 1, 3 or 4 as stored; palette counts as 3 */
	uint8_t orientation;           /* 1..8 as in EXIF */
	struct packimg_jpeg_info jpeg; /* of a JPEG */
};

/* Of an image as it is seen, turned upright. */
void image_upright_size(const struct image_info *info, uint32_t *ret_width, uint32_t *ret_height);

struct image_reader {
	struct packimg_decoder *decoder;
	struct buffer pixels, turned, grey;
};

int image_reader_init(struct image_reader *reader);
void image_reader_deinit(struct image_reader *reader);

/*
 * From the headers. -ENOTSUP with the kind's name for other known image formats; -EBADMSG for
 * damage.
 */
int image_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
		struct packimg_error *error);
/* The index of a JPEG, which makes reading it faster. */
struct image_side {
	const uint8_t *data;
	size_t size;
};

/* Is all of the image there, and can it be decoded? As image_read(), whose pixels nobody wants. */
int image_check(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct packimg_error *error);
/*
 * Makes the index of a JPEG, valid until the reader's next call. 0 with a size of 0 and the reason
 * when there is none; in both cases the image is checked. Errors of image_check().
 */
int image_index(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct image_side *ret_side,
		enum unindexed *ret_reason, struct packimg_error *error);
/*
 * Decodes to 1 or 3 channels; side may be NULL; target sizes (upright; 0: full) allow a JPEG to
 * come at 1/2, 1/4 or 1/8 when twice the target remains.
 */
int image_read(struct image_reader *reader, const uint8_t *data, size_t size,
	       const struct image_info *info, const struct image_side *side, uint32_t target_width,
	       uint32_t target_height, struct resize_picture *ret_pixels,
	       struct packimg_error *error);
/* The same of what a dataset holds. */
int image_read_sample(struct image_reader *reader, const struct packimg_sample *sample,
		      uint32_t target_width, uint32_t target_height,
		      struct resize_picture *ret_pixels, struct packimg_error *error);

/* A reader as a worker's own state (parallel_map.h). */
int image_worker_init(void *context, void *reader);
void image_worker_deinit(void *reader);

/* Turns stored pixels upright: target holds height x width pixels of the upright image. */
void image_orient(const uint8_t *source, uint32_t width, uint32_t height, uint32_t channels,
		  uint8_t orientation, uint8_t *target);

/*
 * -ENOTSUP, with what a file is that may well be whole, and what can be done about it: damage is
 * said of what is damaged alone.
 */
__attribute__((format(printf, 2, 3))) int image_not_supported(struct packimg_error *error,
							      const char *format, ...);

/* A PNG of 8-bit grey or RGB, in the buffer. */
int image_write_png(const struct resize_picture *pixels, struct buffer *png,
		    struct packimg_error *error);
