/* Pixels as a PNG file, through libspng. */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>

#if HAVE_PNG
#include <spng.h>
#include <stdlib.h>

int png_write(const struct resize_picture *pixels, struct buffer *png, struct packimg_error *error)
{
	struct spng_ihdr header = {
		.width = pixels->width,
		.height = pixels->height,
		.bit_depth = 8,
		.color_type = pixels->channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE
						    : SPNG_COLOR_TYPE_TRUECOLOR,
	};
	spng_ctx *encoder = spng_ctx_new(SPNG_CTX_ENCODER);
	void *bytes = NULL;
	size_t size;
	int r = SPNG_EMEM;

	if (encoder) {
		spng_set_option(encoder, SPNG_ENCODE_TO_BUFFER, 1);
		r = spng_set_ihdr(encoder, &header);
		if (!r)
			r = spng_encode_image(encoder, NULL, 0, SPNG_FMT_PNG,
					      SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
		for (uint32_t y = 0; !r && y < pixels->height; y++)
			r = spng_encode_row(encoder, pixels->data + y * pixels->stride,
					    (size_t)pixels->width * pixels->channels);
		if (r == SPNG_EOI)
			bytes = spng_get_png_buffer(encoder, &size, &r);
		spng_ctx_free(encoder);
	}
	if (r || !bytes) {
		free(bytes);
		return packimg_fail(error, -EIO, "PNG encoder: %s", spng_strerror(r));
	}
	png->size = 0;
	r = buffer_append(png, bytes, size);
	free(bytes);
	return r ? packimg_fail(error, r, "out of memory") : 0;
}
#else
int png_write(const struct resize_picture *pixels, struct buffer *png, struct packimg_error *error)
{
	return packimg_fail(error, -ENOTSUP, "writing PNG: this packimg was built without libspng");
}
#endif
