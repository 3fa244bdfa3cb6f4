/*
 * Table of image file kinds: how to recognise each by first bytes and by name, and the code that
 * reads it. The rows are those of formats.txt. Each kind is read by its own file (image_NAME.c)
 * with a library that the build may lack. Kinds without a reader have a row as well, so that such a
 * file is reported instead of ignored. Constant.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/image/image_rows.h"

struct buffer;
struct image_info;
struct resize_picture;

enum image_kind {
#define KIND(kind, ...) IMAGE_##kind,
	IMAGE_ROWS(KIND) IMAGE_KINDS
#undef KIND
};

/*
 * Reader of a kind, for untrusted bytes. Error messages describe the fault; the caller names the
 * file.
 */
struct image_reading {
	/*
	 * Reads the headers. Sets the size, and channels and orientation if not 3 and upright.
	 * -EBADMSG for damage, -ENOTSUP if unsupported.
	 */
	int (*probe)(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error);
	/*
	 * Decodes an image that probe() accepted to info->width x height x 3 bytes in stored
	 * orientation. The library's own buffers may take memory_max bytes. NULL if a codec of
	 * datasets reads the kind.
	 */
	int (*read)(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error);
	/* Writes a file from grey or RGB pixels. NULL if no command needs it. */
	int (*write)(const struct resize_picture *pixels, struct buffer *file,
		     struct packimg_error *error);
	/* memory per pixel that read() takes in addition to rgb, in bytes */
	uint32_t pixel_memory;
};

struct image_format {
	const char *name;
	bool (*is)(const uint8_t *data, size_t size);
	const char *endings[5];              /* file name extensions, the last NULL */
	const char *library;                 /* library that reads it; NULL if nothing here does */
	const struct image_reading *reading; /* NULL if not in this build */
};

extern const struct image_format image_formats[IMAGE_KINDS];

/* Returns the kind according to a file's first bytes; IMAGE_KINDS if none. */
enum image_kind image_kind_of(const uint8_t *data, size_t size);
/* Returns the kind according to a file's name, ignoring case; IMAGE_KINDS if none. */
enum image_kind image_kind_of_name(const char *name);
/*
 * List the kinds that this build reads, as in "JPEG, PNG and WebP", or their file name extensions.
 */
enum { IMAGE_LIST_SIZE = 256 };
const char *image_list_names(char list[static IMAGE_LIST_SIZE]);
const char *image_list_endings(char list[static IMAGE_LIST_SIZE]);

/* Of kinds without a library in this build, nothing is defined. */
#define READING(kind, small, ...) extern const struct image_reading small##_reading;
IMAGE_ROWS(READING)
#undef READING
