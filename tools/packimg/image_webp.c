/* WebP, through libwebp. */
#include "codec/exif.h"
#include "image.h"
#include "text.h"

#include <errno.h>

#if HAVE_WEBP
#include <string.h>
#include <webp/decode.h>

/* Payload of the first chunk of that name in an extended WebP file. */
static const uint8_t *webp_chunk(const uint8_t *data, size_t size, const char *name,
				 size_t *ret_size)
{
	size_t at = 12;

	while (at + 8 <= size) {
		size_t length = data[at + 4] | (size_t)data[at + 5] << 8 |
				(size_t)data[at + 6] << 16 | (size_t)data[at + 7] << 24;

		if (length > size - at - 8)
			return NULL;
		if (!memcmp(data + at, name, 4)) {
			*ret_size = length;
			return data + at + 8;
		}
		at += 8 + length + (length & 1);
	}
	return NULL;
}

int webp_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
	       struct packimg_error *error)
{
	WebPBitstreamFeatures features;
	const uint8_t *exif;
	size_t exif_size;

	if (WebPGetFeatures(data, size, &features) != VP8_STATUS_OK)
		return text_error(error, -EBADMSG, "damaged WebP");
	if (features.has_animation)
		return text_error(error, -ENOTSUP, "an animated WebP; only still images are read");
	exif = webp_chunk(data, size, "EXIF", &exif_size);
	*ret_info = (struct image_info){
		.kind = IMAGE_WEBP,
		.width = (uint32_t)features.width,
		.height = (uint32_t)features.height,
		.channels = 3,
		.orientation = orientation_of(exif ? exif_orientation(exif, exif_size) : 0, 0),
	};
	return 0;
}

int webp_read(const uint8_t *data, size_t size, const struct image_info *info, uint8_t *rgb,
	      struct packimg_error *error)
{
	size_t stride = (size_t)info->width * 3;

	if (!WebPDecodeRGBInto(data, size, rgb, stride * info->height, (int)stride))
		return text_error(error, -EBADMSG, "damaged WebP");
	return 0;
}
#else
int webp_probe(const uint8_t *data, size_t size, struct image_info *ret_info,
	       struct packimg_error *error)
{
	return text_error(error, -ENOTSUP, "a WebP image; this packimg was built without libwebp");
}

int webp_read(const uint8_t *data, size_t size, const struct image_info *info, uint8_t *rgb,
	      struct packimg_error *error)
{
	return text_error(error, -ENOTSUP, "a WebP image; this packimg was built without libwebp");
}
#endif
