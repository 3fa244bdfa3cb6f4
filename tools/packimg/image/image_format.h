/*
 * The kinds of image files, a row each: how one is known, by its first bytes and by its name, and
 * who reads it. A kind is read by a file of its own (image_NAME.c) through a library that the build
 * may lack; then, and where nothing here reads it, its row says so, so that such a file is named
 * instead of passed over. Constant.
 */
#pragma once

#include "format/packimg.h"

struct buffer;
struct image_info;
struct resize_picture;

enum image_kind {
	IMAGE_JPEG,
	IMAGE_PNG,
	IMAGE_WEBP,
	IMAGE_GIF,
	IMAGE_TIFF,
	IMAGE_BMP,
	IMAGE_PNM,
	IMAGE_AVIF,
	IMAGE_HEIF,
	IMAGE_JPEG_XL,
	IMAGE_JPEG_2000,
	IMAGE_PAM,
	IMAGE_PFM,
	IMAGE_KINDS,
};

/*
 * How a kind is read; of untrusted bytes. Errors say what is wrong with the file, not which it is.
 */
struct image_reading {
	/*
	 * From the headers: the size, and what is not as it is in most: three channels, upright.
	 * -EBADMSG for damage, -ENOTSUP for what is not read.
	 */
	int (*probe)(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error);
	/*
	 * Fills info->width x height x 3 bytes in stored orientation, of what probe() has accepted.
	 * The library's own buffers may take memory_max bytes. NULL: a codec of datasets does it.
	 */
	int (*read)(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error);
	/* Writes such a file, of grey or RGB. NULL: no command needs it. */
	int (*write)(const struct resize_picture *pixels, struct buffer *file,
		     struct packimg_error *error);
	/* bytes for each pixel that read() takes besides rgb, at most or at least */
	uint32_t pixel_memory;
};

struct image_format {
	const char *name;
	bool (*is)(const uint8_t *data, size_t size);
	const char *endings[5];              /* of files' names, the last NULL */
	const char *library;                 /* that reads it; NULL: nothing here does */
	const struct image_reading *reading; /* NULL: not in this build */
};

extern const struct image_format image_formats[IMAGE_KINDS];

/* The kind that a file's first bytes show; IMAGE_KINDS: none. */
enum image_kind image_kind_of(const uint8_t *data, size_t size);
/* The kind that a file's name shows, in any case of letters; IMAGE_KINDS: none. */
enum image_kind image_kind_of_name(const char *name);
/*
 * Names of the kinds that this build reads, as in "JPEG, PNG and WebP"; or the endings of their
 * files.
 */
enum { IMAGE_LIST_SIZE = 256 };
const char *image_list_names(char list[static IMAGE_LIST_SIZE]);
const char *image_list_endings(char list[static IMAGE_LIST_SIZE]);

extern const struct image_reading jpeg_reading, png_reading, webp_reading, gif_reading,
	tiff_reading, bmp_reading, pnm_reading, avif_reading;
