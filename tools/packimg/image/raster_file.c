#include "tools/packimg/image/raster_file.h"

#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image_format.h"

#include <stdio.h>
#include <string.h>

static bool is_png(enum packimg_element element, uint32_t channels)
{
	return (element == PACKIMG_ELEMENT_U8 || element == PACKIMG_ELEMENT_U16) &&
	       (channels == 1 || channels == 3);
}

const char *raster_file_ending(enum packimg_element element, uint32_t channels)
{
	return is_png(element, channels) ? ".png" : ".npy";
}

enum { NPY_PREFIX = 10, NPY_HEAD_MAX = 128, NPY_ALIGN = 64 };

/* Appends magic, version, the size of the description, and the description. */
static int put_npy_head(const struct packimg_raster *raster, struct buffer *file)
{
	static const char *const types[] = {
		[PACKIMG_ELEMENT_U8] = "|u1",  [PACKIMG_ELEMENT_F32] = "<f4",
		[PACKIMG_ELEMENT_U16] = "<u2", [PACKIMG_ELEMENT_I16] = "<i2",
		[PACKIMG_ELEMENT_I32] = "<i4",
	};
	char head[NPY_PREFIX + NPY_HEAD_MAX] = "\x93NUMPY\x01";
	char channels[16] = "";

	if (raster->channels > 1)
		snprintf(channels, sizeof(channels), ", %u", raster->channels);
	int size = snprintf(head + NPY_PREFIX, NPY_HEAD_MAX,
			    "{'descr': '%s', 'fortran_order': False, 'shape': (%u, %u%s), }",
			    types[raster->element], raster->height, raster->width, channels);
	/* Pad the description with blanks and a line feed, to align the elements. */
	size_t total = ((size_t)(NPY_PREFIX + size + 1) + NPY_ALIGN - 1) / NPY_ALIGN * NPY_ALIGN;
	memset(head + NPY_PREFIX + size, ' ', total - NPY_PREFIX - (size_t)size);
	head[total - 1] = '\n';
	head[8] = (char)(total - NPY_PREFIX);
	return buffer_append(file, head, total);
}

static int npy_write(const struct packimg_raster *raster, struct buffer *file)
{
	size_t pixel = raster->channels * packimg_element_size(raster->element);
	int r = put_npy_head(raster, file);

	for (uint32_t y = 0; !r && y < raster->height; y++)
		for (uint32_t x = 0; !r && x < raster->width; x++)
			r = buffer_append(file,
					  raster->data + (ptrdiff_t)y * raster->step_y +
						  (ptrdiff_t)x * raster->step_x,
					  pixel);
	return r;
}

int raster_file_write_png(const struct packimg_raster *raster, struct buffer *file,
			  struct packimg_error *error)
{
	const struct image_reading *png = image_formats[IMAGE_PNG].reading;

	return png ? png->write(raster, file, error)
		   : packimg_fail(error, -ENOTSUP,
				  "writing PNG: this packimg was built without libspng");
}

int raster_file_write(const struct packimg_raster *raster, struct buffer *file,
		      struct packimg_error *error)
{
	if (is_png(raster->element, raster->channels))
		return raster_file_write_png(raster, file, error);
	file->size = 0;
	return npy_write(raster, file) ? packimg_fail(error, -ENOMEM, "out of memory") : 0;
}
