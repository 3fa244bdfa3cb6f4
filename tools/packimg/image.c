#include "image.h"

#include "text.h"

#include <errno.h>
#include <string.h>

#include <xxhash.h>

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

/* Formats that people do have lying among their images. */
static int unknown_kind(const uint8_t *data, size_t size, struct packimg_error *error)
{
	static const struct {
		const char *magic;
		size_t offset, size;
		const char *name;
	} kinds[] = {
		{"GIF8", 0, 4, "a GIF"},
		{"BM", 0, 2, "a BMP"},
		{"II*\0", 0, 4, "a TIFF"},
		{"MM\0*", 0, 4, "a TIFF"},
		{"ftypavif", 4, 8, "an AVIF"},
		{"ftyphei", 4, 7, "a HEIF"},
		{"\xff\x0a", 0, 2, "a JPEG XL"},
		{"\0\0\0\x0cJXL ", 0, 8, "a JPEG XL"},
		{"\0\0\0\x0cjP  ", 0, 8, "a JPEG 2000"},
	};

	if (!size)
		return text_error(error, -EBADMSG, "empty file");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (size >= kinds[i].offset + kinds[i].size &&
		    !memcmp(data + kinds[i].offset, kinds[i].magic, kinds[i].size))
			return text_error(error, -ENOTSUP,
					  "%s image; only JPEG, PNG and WebP are read",
					  kinds[i].name);
	return text_error(error, -EBADMSG, "not an image (it begins with %02x %02x)", data[0],
			  size > 1 ? data[1] : 0);
}

static int probe_kind(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	struct packimg_jpeg_info jpeg;
	int r;

	if (size >= 3 && !memcmp(data, "\xff\xd8\xff", 3)) {
		r = packimg_jpeg_probe(data, size, &jpeg, error);
		if (r)
			return r;
		if (jpeg.precision != 8)
			return text_error(error, -ENOTSUP,
					  "a JPEG of %u bits a sample, which no decoder here reads; make "
					  "an 8-bit file of it",
					  jpeg.precision);
		*info = (struct image_info){
			.kind = IMAGE_JPEG,
			.width = jpeg.width,
			.height = jpeg.height,
			.channels = jpeg.components,
			.orientation = jpeg.orientation,
			.jpeg = jpeg,
		};
		return 0;
	}
	if (size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8))
		return png_probe(data, size, info, error);
	if (size >= 12 && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4))
		return webp_probe(data, size, info, error);
	return unknown_kind(data, size, error);
}

int image_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
		struct packimg_error *error)
{
	struct image_info info = {0};
	int r;

	r = probe_kind(data, size, &info, error);
	if (r)
		return r;
	if (!info.width || !info.height || info.width > PACKIMG_SIDE_MAX ||
	    info.height > PACKIMG_SIDE_MAX)
		return text_error(error, -EBADMSG, "its size of %ux%u is not in 1..%d", info.width,
				  info.height, PACKIMG_SIDE_MAX);
	if ((uint64_t)info.width * info.height > IMAGE_PIXELS_MAX)
		return text_error(error, -EFBIG,
				  "%ux%u pixels are more than an image may have (%d)", info.width,
				  info.height, IMAGE_PIXELS_MAX);
	*ret_info = info;
	return 0;
}

/* Decoders give grey as three equal channels; one is enough. */
static int keep_grey(struct image_reader *reader, struct image_pixels *pixels,
		     struct packimg_error *error)
{
	size_t bytes = (size_t)pixels->width * pixels->height;
	uint8_t *grey;

	if (buffer_reserve(&reader->grey, bytes))
		return text_error(error, -ENOMEM, "out of memory");
	grey = reader->grey.data;
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
		      struct image_pixels *ret_pixels, struct packimg_error *error)
{
	struct packimg_region region = {.width = sample->width, .height = sample->height};
	struct packimg_pixels decoded;
	struct image_pixels pixels;
	int r;

	r = packimg_decode(reader->decoder, sample, &region, target_width, target_height, &decoded,
			   error);
	if (r)
		return r;
	pixels = (struct image_pixels){
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

static int read_jpeg(struct image_reader *reader, const uint8_t *data, size_t size,
		     const struct image_info *info, const struct image_side *side,
		     uint32_t target_width, uint32_t target_height, struct image_pixels *pixels,
		     struct packimg_error *error)
{
	bool sideways = info->orientation >= 5;
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)size,
		.side = side ? side->data : NULL,
		.side_size = side ? (uint32_t)side->size : 0,
		.side_xxh3 = side ? XXH3_64bits(side->data, side->size) : 0,
		.width = sideways ? info->height : info->width,
		.height = sideways ? info->width : info->height,
		.label = PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info->channels,
		.orientation = info->orientation,
	};

	int r = image_read_sample(reader, &sample, target_width, target_height, pixels, error);
	const char *reason = r && error ? text_behind_sample(error->text) : NULL;

	/* It is no dataset's yet, and has no number. */
	if (reason)
		memmove(error->text, reason, strlen(reason) + 1);
	return r;
}

static int read_other(struct image_reader *reader, const uint8_t *data, size_t size,
		      const struct image_info *info, struct image_pixels *pixels,
		      struct packimg_error *error)
{
	size_t bytes = (size_t)info->width * info->height * 3;
	bool sideways = info->orientation >= 5;
	const uint8_t *rgb;
	int r;

	if (buffer_reserve(&reader->pixels, bytes))
		return text_error(error, -ENOMEM, "out of memory");
	rgb = reader->pixels.data;
	if (info->kind == IMAGE_PNG)
		r = png_read(data, size, info, reader->pixels.data, error);
	else
		r = webp_read(data, size, info, reader->pixels.data, error);
	if (r)
		return r;
	if (info->orientation != 1) {
		if (buffer_reserve(&reader->turned, bytes))
			return text_error(error, -ENOMEM, "out of memory");
		image_orient(rgb, info->width, info->height, 3, info->orientation,
			     reader->turned.data);
		rgb = reader->turned.data;
	}
	*pixels = (struct image_pixels){
		.data = rgb,
		.width = sideways ? info->height : info->width,
		.height = sideways ? info->width : info->height,
		.channels = 3,
	};
	pixels->stride = (size_t)pixels->width * 3;
	pixels->extent_width = pixels->width;
	pixels->extent_height = pixels->height;
	return info->channels == 1 ? keep_grey(reader, pixels, error) : 0;
}

int image_read(struct image_reader *reader, const uint8_t *data, size_t size,
	       const struct image_info *info, const struct image_side *side, uint32_t target_width,
	       uint32_t target_height, struct image_pixels *ret_pixels, struct packimg_error *error)
{
	struct image_pixels pixels;
	int r;

	if (info->kind == IMAGE_JPEG)
		r = read_jpeg(reader, data, size, info, side, target_width, target_height, &pixels,
			      error);
	else
		r = read_other(reader, data, size, info, &pixels, error);
	if (!r)
		*ret_pixels = pixels;
	return r;
}

int image_check(struct image_reader *reader, const uint8_t *data, size_t size,
		const struct image_info *info, struct packimg_error *error)
{
	struct image_pixels pixels;

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
	*ret_reason = r == 0	      ? UNINDEXED_NOT
		      : r == -ENOTSUP ? unindexed_reason(&info->jpeg)
				      : UNINDEXED_DAMAGED;
	/* An index takes all of the image. What it cannot follow may be a good one all the same. */
	return r == -EBADMSG || r == -ENOTSUP ? image_check(reader, data, size, info, error) : r;
}
