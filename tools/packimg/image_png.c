/* PNG, through libspng. */
#include "codec/exif.h"
#include "image.h"
#include "text.h"

#include <errno.h>

#if HAVE_SPNG
#include <spng.h>
#include <stdlib.h>
#include <string.h>

static int png_open(const uint8_t *data, size_t size, spng_ctx **ret_png,
		    struct spng_ihdr *ret_header, struct packimg_error *error)
{
	spng_ctx *png = spng_ctx_new(0);
	int r;

	if (!png)
		return text_error(error, -ENOMEM, "out of memory");
	spng_set_image_limits(png, PACKIMG_SIDE_MAX, PACKIMG_SIDE_MAX);
	spng_set_chunk_limits(png, 64 << 20, 128 << 20);
	r = spng_set_png_buffer(png, data, size);
	if (!r)
		r = spng_get_ihdr(png, ret_header);
	if (r) {
		spng_ctx_free(png);
		return text_error(error, -EBADMSG, "damaged PNG: %s", spng_strerror(r));
	}
	*ret_png = png;
	return 0;
}

int png_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
	      struct packimg_error *error)
{
	struct spng_ihdr header;
	struct spng_exif exif;
	spng_ctx *png;
	int r;

	r = png_open(data, size, &png, &header, error);
	if (r)
		return r;
	*ret_info = (struct image_info){
		.kind = IMAGE_PNG,
		.width = header.width,
		.height = header.height,
		.channels = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
					    header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA
				    ? 1
				    : 3,
		.orientation = 1,
	};
	if (!spng_get_exif(png, &exif))
		ret_info->orientation = orientation_of(
			exif_orientation((const uint8_t *)exif.data, exif.length), 0);
	spng_ctx_free(png);
	return 0;
}

int png_read(const uint8_t *data, size_t size, const struct image_info *info, uint8_t *rgb,
	     struct packimg_error *error)
{
	size_t bytes = (size_t)info->width * info->height * 3;
	struct spng_ihdr header;
	spng_ctx *png;
	int r;

	r = png_open(data, size, &png, &header, error);
	if (r)
		return r;
	r = spng_decode_image(png, rgb, bytes, SPNG_FMT_RGB8, 0);
	spng_ctx_free(png);
	return r ? text_error(error, -EBADMSG, "damaged PNG: %s", spng_strerror(r)) : 0;
}

int png_write(const uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels,
	      struct buffer *png, struct packimg_error *error)
{
	struct spng_ihdr header = {
		.width = width,
		.height = height,
		.bit_depth = 8,
		.color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR,
	};
	spng_ctx *encoder = spng_ctx_new(SPNG_CTX_ENCODER);
	void *bytes = NULL;
	size_t size;
	int r = SPNG_EMEM;

	if (encoder) {
		spng_set_option(encoder, SPNG_ENCODE_TO_BUFFER, 1);
		r = spng_set_ihdr(encoder, &header);
		if (!r)
			r = spng_encode_image(encoder, pixels, (size_t)width * height * channels,
					      SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
		if (!r)
			bytes = spng_get_png_buffer(encoder, &size, &r);
		spng_ctx_free(encoder);
	}
	if (r || !bytes) {
		free(bytes);
		return text_error(error, -EIO, "PNG encoder: %s", spng_strerror(r));
	}
	png->size = 0;
	r = buffer_append(png, bytes, size);
	free(bytes);
	return r ? text_error(error, r, "out of memory") : 0;
}
#else
int png_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
	      struct packimg_error *error)
{
	return text_error(error, -ENOTSUP, "a PNG image; this packimg was built without libspng");
}

int png_read(const uint8_t *data, size_t size, const struct image_info *info, uint8_t *rgb,
	     struct packimg_error *error)
{
	return text_error(error, -ENOTSUP, "a PNG image; this packimg was built without libspng");
}

int png_write(const uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels,
	      struct buffer *png, struct packimg_error *error)
{
	return text_error(error, -ENOTSUP, "writing PNG: this packimg was built without libspng");
}
#endif
