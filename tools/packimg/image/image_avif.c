/* AVIF, through libavif: a still image, or the first of a sequence. */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <avif/avif.h>

enum {
	AVIF_PIXELS_MAX = 1 << 28,  /* what the library allows */
	AVIF_CROPPED_MAX = 1 << 20, /* pixels that an image's tiles may have beyond its edges */
};

/*
 * Rotation and mirroring are the file's own (ISO/IEC 23008-12, 6.5.10 and 6.5.12): they count, and
 * EXIF does not.
 */
static uint8_t avif_orientation(const avifImage *image)
{
	/*
	 * by quarter turns against the clock, then by mirroring: none, top and bottom exchanged,
	 * left and right
	 */
	static const uint8_t orientations[4][3] = {{1, 4, 2}, {8, 5, 7}, {3, 2, 4}, {6, 7, 5}};
	bool turned = image->transformFlags & AVIF_TRANSFORM_IROT;
	bool mirrored = image->transformFlags & AVIF_TRANSFORM_IMIR;

	return orientations[turned ? image->irot.angle & 3 : 0]
			   [mirrored ? 1 + (image->imir.mode & 1) : 0];
}

static int avif_fail(avifDecoder *decoder, avifResult result, struct packimg_error *error)
{
	int code = result == AVIF_RESULT_OUT_OF_MEMORY ? -ENOMEM : -EBADMSG;

	if (decoder)
		avifDecoderDestroy(decoder);
	return packimg_fail(error, code, "damaged AVIF: %s", avifResultToString(result));
}

/* pixels_max: of any picture in the file; what the codec finds in one is held against it, too. */
static int avif_open(const uint8_t *data, size_t size, uint64_t pixels_max,
		     avifDecoder **ret_decoder, struct packimg_error *error)
{
	avifDecoder *decoder = avifDecoderCreate();

	if (!decoder)
		return packimg_fail(error, -ENOMEM, "out of memory");
	decoder->maxThreads = 1;
	decoder->ignoreExif = AVIF_TRUE;
	decoder->ignoreXMP = AVIF_TRUE;
	decoder->imageSizeLimit =
		(uint32_t)(pixels_max < AVIF_PIXELS_MAX ? pixels_max : AVIF_PIXELS_MAX);
	decoder->imageDimensionLimit = PACKIMG_SIDE_MAX;
	/* what many writers have left out, and what says nothing of the pixels that are wanted */
	decoder->strictFlags =
		AVIF_STRICT_ENABLED & ~(AVIF_STRICT_PIXI_REQUIRED | AVIF_STRICT_CLAP_VALID);
	avifResult result = avifDecoderSetIOMemory(decoder, data, size);
	if (result == AVIF_RESULT_OK)
		result = avifDecoderParse(decoder);
	if (result != AVIF_RESULT_OK)
		return avif_fail(decoder, result, error);
	*ret_decoder = decoder;
	return 0;
}

static int avif_probe(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	avifDecoder *decoder = NULL;
	int r = avif_open(data, size, AVIF_PIXELS_MAX, &decoder, error);

	if (r)
		return r;
	info->width = decoder->image->width;
	info->height = decoder->image->height;
	info->channels = decoder->image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400 ? 1 : 3;
	info->orientation = avif_orientation(decoder->image);
	avifDecoderDestroy(decoder);
	return 0;
}

/* Alpha is dropped. The library would rather blend with black, unless alpha is asked for, too. */
static avifResult avif_convert(const avifImage *image, uint8_t *rgb)
{
	size_t count = (size_t)image->width * image->height;
	uint8_t *rgba = NULL;
	avifRGBImage target;

	avifRGBImageSetDefaults(&target, image);
	target.depth = 8;
	target.format = AVIF_RGB_FORMAT_RGB;
	target.pixels = rgb;
	if (image->alphaPlane) {
		rgba = malloc(4 * count);
		if (!rgba)
			return AVIF_RESULT_OUT_OF_MEMORY;
		target.format = AVIF_RGB_FORMAT_RGBA;
		target.pixels = rgba;
	}
	target.rowBytes = (image->alphaPlane ? 4 : 3) * image->width;
	avifResult result = avifImageYUVToRGB(image, &target);
	for (size_t i = 0; rgba && i < count; i++)
		memcpy(rgb + 3 * i, rgba + 4 * i, 3);
	free(rgba);
	return result;
}

static int avif_read(const uint8_t *data, size_t size, const struct image_info *info,
		     uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	/*
	 * The codec's data may be of a larger picture than the file says, for which there is no
	 * memory.
	 */
	uint64_t pixels_max = (uint64_t)info->width * info->height + AVIF_CROPPED_MAX;
	avifDecoder *decoder = NULL;
	int r = avif_open(data, size, pixels_max, &decoder, error);

	if (r)
		return r;
	avifResult result = avifDecoderNextImage(decoder);
	/* the picture says its size again, and it is that one that is written */
	if (result == AVIF_RESULT_OK &&
	    (decoder->image->width != info->width || decoder->image->height != info->height))
		result = AVIF_RESULT_ISPE_SIZE_MISMATCH;
	if (result == AVIF_RESULT_OK)
		result = avif_convert(decoder->image, rgb);
	if (result != AVIF_RESULT_OK)
		return avif_fail(decoder, result, error);
	avifDecoderDestroy(decoder);
	return 0;
}

/*
 * Planes of up to two bytes a value, alpha among them, as the codec's and as the library's; and
 * pixels with alpha.
 */
const struct image_reading avif_reading = {
	.probe = avif_probe, .read = avif_read, .pixel_memory = 20};
