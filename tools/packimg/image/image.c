#include "tools/packimg/image/image.h"

#include "tools/packimg/common/text.h"
#include "tools/packimg/image/raster_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

/* JPEG_MAX_DIMENSION of libjpeg, also the limit of our own decoder */
enum { JPEG_SIDE_MAX = 65500 };

int image_decoder_new(struct packimg_decoder **ret_decoder)
{
	int r = packimg_decoder_new(ret_decoder);

	if (!r)
		packimg_decoder_limit(*ret_decoder, IMAGE_MEMORY_MAX);
	return r;
}

int image_reader_init(struct image_reader *reader)
{
	*reader = (struct image_reader){0};
	return image_decoder_new(&reader->decoder);
}

void image_reader_deinit(struct image_reader *reader)
{
	packimg_decoder_free(reader->decoder);
	buffer_deinit(&reader->pixels);
	buffer_deinit(&reader->turned);
	buffer_deinit(&reader->grey);
}

static int probe_jpeg(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	struct packimg_jpeg_info jpeg;
	int r = packimg_jpeg_probe(data, size, &jpeg, error);

	if (r)
		return r;
	if (jpeg.precision != 8)
		return packimg_fail(
			error, -ENOTSUP,
			"a JPEG of %u bits per sample, which no decoder here reads; make "
			"an 8-bit file of it",
			jpeg.precision);
	if (jpeg.width > JPEG_SIDE_MAX || jpeg.height > JPEG_SIDE_MAX)
		return packimg_fail(
			error, -ENOTSUP,
			"a JPEG of %ux%u pixels; no decoder here reads sides of more than %d",
			jpeg.width, jpeg.height, JPEG_SIDE_MAX);
	*info = (struct image_info){.width = jpeg.width,
				    .height = jpeg.height,
				    .channels = jpeg.components,
				    .orientation = jpeg.orientation,
				    .jpeg = jpeg};
	return 0;
}

const struct image_reading jpeg_reading = {.probe = probe_jpeg};

static int probe_kind(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	enum image_kind kind = image_kind_of(data, size);
	const struct image_format *format = &image_formats[kind];
	char list[IMAGE_LIST_SIZE];

	if (!size)
		return packimg_fail(error, -EBADMSG, "empty file");
	if (kind == IMAGE_KINDS)
		return packimg_fail(error, -EBADMSG, "not an image (it begins with %02x %02x)",
				    data[0], size > 1 ? data[1] : 0);
	if (!format->library)
		return packimg_fail(error, -ENOTSUP, "%s image; what is read is %s", format->name,
				    image_list_names(list));
	if (!format->reading)
		return packimg_fail(error, -ENOTSUP, "%s image; this packimg was built without %s",
				    format->name, format->library);
	int r = format->reading->probe(data, size, info, error);
	info->kind = kind;
	return r;
}

int image_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
		struct packimg_error *error)
{
	struct image_info info = {.channels = 3, .orientation = 1};

	int r = probe_kind(data, size, &info, error);
	if (r)
		return r;
	if (!info.width || !info.height || info.width > PACKIMG_SIDE_MAX ||
	    info.height > PACKIMG_SIDE_MAX)
		return packimg_fail(error, -EBADMSG, "its size of %ux%u is not in 1..%d",
				    info.width, info.height, PACKIMG_SIDE_MAX);
	*ret_info = info;
	return 0;
}

/* Reduces grey, which decoders return as three equal channels, to one channel. */
static int keep_grey(struct image_reader *reader, struct resize_picture *pixels,
		     struct packimg_error *error)
{
	size_t bytes = (size_t)pixels->width * pixels->height;

	if (buffer_reserve(&reader->grey, bytes))
		return packimg_fail(error, -ENOMEM, "out of memory");
	uint8_t *grey = reader->grey.data;
	for (uint32_t y = 0; y < pixels->height; y++) {
		const uint8_t *row = pixels->data + y * pixels->stride;

		for (uint32_t x = 0; x < pixels->width; x++)
			*grey++ = row[(size_t)x * 3];
	}
	pixels->data = reader->grey.data;
	pixels->stride = pixels->width;
	pixels->channels = 1;
	return 0;
}

int image_read_sample(struct image_reader *reader, const struct packimg_sample *sample,
		      uint32_t target_width, uint32_t target_height,
		      struct resize_picture *ret_pixels, struct packimg_error *error)
{
	struct packimg_region region = {.width = sample->width, .height = sample->height};
	struct packimg_pixels decoded;

	int r = packimg_decode(reader->decoder, sample, &region, target_width, target_height,
			       &decoded, error);
	if (r)
		return r;
	struct resize_picture pixels = (struct resize_picture){
		.data = decoded.data,
		.stride = decoded.stride,
		.width = decoded.width,
		.height = decoded.height,
		.channels = 3,
		.x = decoded.x,
		.y = decoded.y,
		.extent_width = decoded.region_width,
		.extent_height = decoded.region_height,
	};
	if (sample->channels == 1)
		r = keep_grey(reader, &pixels, error);
	if (!r)
		*ret_pixels = pixels;
	return r;
}

void image_upright_size(const struct image_info *info, uint32_t *ret_width, uint32_t *ret_height)
{
	bool sideways = info->orientation >= 5;

	*ret_width = sideways ? info->height : info->width;
	*ret_height = sideways ? info->width : info->height;
}

static int read_jpeg(struct image_reader *reader, const uint8_t *data, size_t size,
		     const struct image_info *info, const struct image_side *side,
		     uint32_t target_width, uint32_t target_height, struct resize_picture *pixels,
		     struct packimg_error *error)
{
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)size,
		.side = side ? side->data : NULL,
		.side_size = side ? (uint32_t)side->size : 0,
		.side_xxh3 = side ? XXH3_64bits(side->data, side->size) : 0,
		.label = PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info->channels,
		.orientation = info->orientation,
	};

	image_upright_size(info, &sample.width, &sample.height);
	int r = image_read_sample(reader, &sample, target_width, target_height, pixels, error);
	const char *reason = r && error ? text_after_sample(error->text) : NULL;

	/* Removes the sample number from the message: the image is not in a dataset. */
	if (reason)
		memmove(error->text, reason, strlen(reason) + 1);
	return r;
}

static int read_other(struct image_reader *reader, const uint8_t *data, size_t size,
		      const struct image_info *info, struct resize_picture *pixels,
		      struct packimg_error *error)
{
	size_t pixel_count = (size_t)info->width * info->height, bytes = pixel_count * 3;
	/* RGB pixels, a copy in upright orientation, a copy in grey */
	uint64_t taken =
		pixel_count * (3 + (info->orientation == 1 ? 0 : 3) + (info->channels == 1));
	uint64_t working = pixel_count * image_formats[info->kind].reading->pixel_memory;

	if (taken + working > IMAGE_MEMORY_MAX)
		return packimg_fail(
			error, -E2BIG, "%ux%u pixels of %s take %s to decode; the limit is %s",
			info->width, info->height, image_formats[info->kind].name,
			text_bytes(TEXT, taken + working), text_bytes(TEXT, IMAGE_MEMORY_MAX));
	if (buffer_reserve(&reader->pixels, bytes))
		return packimg_fail(error, -ENOMEM, "out of memory");
	const uint8_t *rgb = reader->pixels.data;
	int r = image_formats[info->kind].reading->read(data, size, info, IMAGE_MEMORY_MAX - taken,
							reader->pixels.data, error);
	if (r)
		return r;
	if (info->orientation != 1) {
		if (buffer_reserve(&reader->turned, bytes))
			return packimg_fail(error, -ENOMEM, "out of memory");
		image_orient(rgb, info->width, info->height, 3, info->orientation,
			     reader->turned.data);
		rgb = reader->turned.data;
	}
	*pixels = (struct resize_picture){.data = rgb, .channels = 3};
	image_upright_size(info, &pixels->width, &pixels->height);
	pixels->stride = (size_t)pixels->width * 3;
	pixels->extent_width = pixels->width;
	pixels->extent_height = pixels->height;
	return info->channels == 1 ? keep_grey(reader, pixels, error) : 0;
}

int image_read(struct image_reader *reader, const uint8_t *data, size_t size,
	       const struct image_info *info, const struct image_side *side, uint32_t target_width,
	       uint32_t target_height, struct resize_picture *ret_pixels,
	       struct packimg_error *error)
{
	return info->kind == IMAGE_JPEG ? read_jpeg(reader, data, size, info, side, target_width,
						    target_height, ret_pixels, error)
					: read_other(reader, data, size, info, ret_pixels, error);
}

int image_check(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct packimg_error *error)
{
	struct resize_picture pixels;

	return image_read(reader, data, size, info, NULL, 1, 1, &pixels, error);
}

int image_index(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct image_side *ret_side,
		enum unindexed *ret_reason, struct packimg_error *error)
{
	struct image_side side;
	int r = packimg_index_jpeg(reader->decoder, data, size, &info->jpeg, &side.data,
				   &side.size);

	*ret_side = r ? (struct image_side){0} : side;
	*ret_reason = r == 0          ? UNINDEXED_NOT
		      : r == -ENOTSUP ? unindexed_reason(&info->jpeg)
				      : UNINDEXED_DAMAGED;
	/*
	 * The decoder that makes the index reads the whole image. If it refuses the image, the
	 * image may still be valid.
	 */
	return r == -EBADMSG || r == -ENOTSUP ? image_check(reader, data, size, info, error) : r;
}

void image_orient(const uint8_t *source, uint32_t width, uint32_t height, uint32_t channels,
		  uint8_t orientation, uint8_t *target)
{
	/*
	 * Computes the target of the stored pixel (x, y): orientations 2 and 4 mirror, 3 rotates by
	 * 180 degrees, 5..8 swap the axes.
	 */
	bool swap = orientation >= 5;
	bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
	bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
	size_t upright_width = swap ? height : width, upright_height = swap ? width : height;

	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			size_t column = swap ? y : x, row = swap ? x : y;

			if (flip_x)
				column = upright_width - 1 - column;
			if (flip_y)
				row = upright_height - 1 - row;
			uint8_t *to = target + (row * upright_width + column) * channels;
			for (uint32_t c = 0; c < channels; c++)
				to[c] = *source++;
		}
	}
}

int image_not_supported(struct packimg_error *error, const char *format, ...)
{
	char text[sizeof(error->text)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return packimg_fail(error, -ENOTSUP,
			    "not supported: %s; save it as PNG or JPEG of 8 bits per sample", text);
}

int image_write_png(const struct resize_picture *pixels, struct buffer *png,
		    struct packimg_error *error)
{
	const struct packimg_raster raster = {
		.data = pixels->data,
		.step_x = (ptrdiff_t)pixels->channels,
		.step_y = (ptrdiff_t)pixels->stride,
		.width = pixels->width,
		.height = pixels->height,
		.channels = pixels->channels,
		.element = PACKIMG_ELEMENT_U8,
	};

	return raster_file_write_png(&raster, png, error);
}

int image_worker_init(void *context, void *reader)
{
	return image_reader_init(reader);
}

void image_worker_deinit(void *reader)
{
	image_reader_deinit(reader);
}
