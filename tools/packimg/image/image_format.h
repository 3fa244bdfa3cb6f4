/*
 * Table of image file kinds: how to recognise each by its first bytes and by name, and the code
 * that reads it. The rows are those of formats.txt. Each kind is read by its own file
 * (image_NAME.c) with a library that the build may lack. Kinds without a reader also have a row, so
 * that such files are reported instead of ignored. Constant.
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
 * Reader of a kind. The bytes are untrusted. Error messages describe the fault; the caller adds the
 * file's name.
 */
struct image_reading {
	/*
	 * Reads the headers. Sets the size, and also channels and orientation unless they are 3 and
	 * upright. -EBADMSG for damage, -ENOTSUP if unsupported.
	 */
	int (*probe)(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error);
	/*
	 * Decodes an image that probe() has accepted, to info->width x height x 3 bytes in stored
	 * orientation. The library's own buffers may use memory_max bytes. NULL if a codec of
	 * datasets reads this kind.
	 */
	int (*read)(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error);
	/* Writes a file from one, three or, with alpha, four channels of u8 or u16. NULL if no
	 * command needs it. */
	int (*write)(const struct packimg_raster *raster, struct buffer *file,
		     struct packimg_error *error);
	/* bytes per pixel that read() allocates in addition to rgb */
	uint32_t pixel_memory;
};

struct image_format {
	const char *name;
	bool (*is)(const uint8_t *data, size_t size);
	const char *endings[5]; /* file name extensions, the last NULL */
	const char *library; /* name of the library that reads it; NULL if packimg does not support
				any */
	const struct image_reading *reading; /* reader; NULL if this build lacks it */
};

extern const struct image_format image_formats[IMAGE_KINDS];

/* Returns the kind of a file with these first bytes; IMAGE_KINDS if unknown. */
enum image_kind image_kind_of(const uint8_t *data, size_t size);
/* Returns the kind of a file with this name, ignoring case; IMAGE_KINDS if unknown. */
enum image_kind image_kind_of_name(const char *name);
/*
 * List the kinds that this build reads, such as "JPEG, PNG and WebP", or their file name
 * extensions.
 */
enum { IMAGE_LIST_SIZE = 256 };
const char *image_list_names(char list[static IMAGE_LIST_SIZE]);
const char *image_list_endings(char list[static IMAGE_LIST_SIZE]);

/* Readers whose library this build lacks are declared but not defined. */
#define READING(kind, small, ...) extern const struct image_reading small##_reading;
IMAGE_ROWS(READING)
#undef READING
