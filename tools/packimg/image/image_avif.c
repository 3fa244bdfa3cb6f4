/* AVIF, with libavif: a still image, or the first image of a sequence. */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/avif_boxes.h"
#include "tools/packimg/image/avif_grid.h"
#include "tools/packimg/image/avif_library.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* renamed in libavif 1.0 */
#if AVIF_VERSION >= 1000000
#define MIRRORING axis
#else
#define MIRRORING mode
#endif

enum {
	AVIF_PIXELS_MAX = 1 << 28,  /* default limit of libavif */
	AVIF_CROPPED_MAX = 1 << 20, /* maximum number of pixels of the tiles outside the image */
};

/*
 * Returns the orientation given by the file's rotation and mirroring (ISO/IEC 23008-12, 6.5.10 and
 * 6.5.12), which override EXIF.
 */
static uint8_t avif_orientation(const avifImage *image)
{
	/* [quarter turns counterclockwise][mirroring: none, top to bottom, left to right] */
	static const uint8_t orientations[4][3] = {{1, 4, 2}, {8, 5, 7}, {3, 2, 4}, {6, 7, 5}};
	bool turned = image->transformFlags & AVIF_TRANSFORM_IROT;
	bool mirrored = image->transformFlags & AVIF_TRANSFORM_IMIR;

	return orientations[turned ? image->irot.angle & 3 : 0]
			   [mirrored ? 1 + (image->imir.MIRRORING & 1) : 0];
}

/* A file being read: its original bytes, or an equivalent copy that libavif accepts. */
struct avif {
	const struct avif_library *library;
	avifDecoder *decoder;
	struct avif_grid grid;
	struct buffer plain;
};

static void avif_close(struct avif *avif)
{
	if (avif->decoder)
		avif->library->avifDecoderDestroy(avif->decoder);
	buffer_deinit(&avif->plain);
}

/* Returns true if libavif's result or message means that it does not support the file. */
static bool avif_is_unread(avifResult result, const char *said)
{
	return result == AVIF_RESULT_UNSUPPORTED_DEPTH ||
	       result == AVIF_RESULT_NO_CODEC_AVAILABLE || result == AVIF_RESULT_REFORMAT_FAILED ||
	       result == AVIF_RESULT_NO_AV1_ITEMS_FOUND || result == AVIF_RESULT_NOT_IMPLEMENTED ||
	       strstr(said, "unsupported") || strstr(said, "are too large");
}

static int avif_fail(struct avif *avif, avifResult result, struct packimg_error *error)
{
	int r;

	if (result == AVIF_RESULT_OUT_OF_MEMORY)
		r = packimg_fail(error, -ENOMEM, "out of memory");
	else if (result == AVIF_RESULT_INVALID_IMAGE_GRID && avif->grid.shared)
		r = image_not_supported(error, "AVIF of a grid that shares a tile with another");
	else if (avif_is_unread(result, avif->decoder->diag.error))
		r = image_not_supported(error, "AVIF of this sort (%s)",
					*avif->decoder->diag.error
						? avif->decoder->diag.error
						: avif->library->avifResultToString(result));
	else
		r = packimg_fail(error, -EBADMSG, "damaged AVIF: %s",
				 avif->library->avifResultToString(result));
	avif_close(avif);
	return r;
}

static int avif_make_readable(struct avif *avif, const uint8_t *data, size_t size,
			      struct packimg_error *error)
{
	int r = avif_grid_sort(data, size, &avif->plain, &avif->grid);

	if (!r)
		r = avif_make_plain(data, size, &avif->plain);
	if (r)
		r = packimg_fail(error, r, "out of memory");
	else if (avif->grid.twice)
		r = image_not_supported(error, "AVIF of a grid that has a tile in several places");
	if (r)
		avif_close(avif);
	return r;
}

/* Opens a file. pixels_max limits every image in the file, and the size reported by the codec. */
static int avif_open(struct avif *avif, const uint8_t *data, size_t size, uint64_t pixels_max,
		     struct packimg_error *error)
{
	const struct avif_library *library = avif_library();

	if (!library)
		return packimg_fail(error, -ENOTSUP,
				    "AVIF image; install %s, with which this packimg reads it",
				    AVIF_SONAME);
	avifDecoder *decoder = library->avifDecoderCreate();

	*avif = (struct avif){.library = library, .decoder = decoder};
	if (!decoder)
		return packimg_fail(error, -ENOMEM, "out of memory");
	decoder->maxThreads = 1;
	decoder->ignoreExif = AVIF_TRUE;
	decoder->ignoreXMP = AVIF_TRUE;
	decoder->imageSizeLimit =
		(uint32_t)(pixels_max < AVIF_PIXELS_MAX ? pixels_max : AVIF_PIXELS_MAX);
	decoder->imageDimensionLimit = PACKIMG_SIDE_MAX;
	/*
	 * tolerate properties that many writers omit or get wrong and that do not affect the pixels
	 */
	decoder->strictFlags =
		AVIF_STRICT_ENABLED & ~(AVIF_STRICT_PIXI_REQUIRED | AVIF_STRICT_CLAP_VALID);
	int r = avif_make_readable(avif, data, size, error);
	if (r)
		return r;
	if (avif->plain.size)
		data = avif->plain.data;
	avifResult result = library->avifDecoderSetIOMemory(decoder, data, size);
	if (result == AVIF_RESULT_OK)
		result = library->avifDecoderParse(decoder);
	return result == AVIF_RESULT_OK ? 0 : avif_fail(avif, result, error);
}

static int avif_probe(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	struct avif avif;
	int r = avif_open(&avif, data, size, AVIF_PIXELS_MAX, error);

	if (r)
		return r;
	const avifImage *image = avif.decoder->image;
	info->width = image->width;
	info->height = image->height;
	info->channels = image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400 ? 1 : 3;
	info->orientation = avif_orientation(image);
	avif_close(&avif);
	return 0;
}

/*
 * Converts to RGB without alpha. Requests alpha and drops it, because libavif would otherwise blend
 * the colours with black.
 */
static avifResult avif_convert(const struct avif_library *library, const avifImage *image,
			       uint8_t *rgb)
{
	size_t count = (size_t)image->width * image->height;
	uint8_t *rgba = NULL;
	avifRGBImage target;

	library->avifRGBImageSetDefaults(&target, image);
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
	avifResult result = library->avifImageYUVToRGB(image, &target);
	for (size_t i = 0; rgba && i < count; i++)
		memcpy(rgb + 3 * i, rgba + 4 * i, 3);
	free(rgba);
	return result;
}

static int avif_read(const uint8_t *data, size_t size, const struct image_info *info,
		     uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	/*
	 * The coded image may be larger than the file declares: limit it to the available memory.
	 */
	uint64_t pixels_max = (uint64_t)info->width * info->height + AVIF_CROPPED_MAX;
	struct avif avif;
	int r = avif_open(&avif, data, size, pixels_max, error);

	if (r)
		return r;
	const avifImage *image = avif.decoder->image;
	avifResult result = avif.library->avifDecoderNextImage(avif.decoder);
	/* the decoded image may have another size, and pixels would be written in that size */
	if (result == AVIF_RESULT_OK &&
	    (image->width != info->width || image->height != info->height))
		result = AVIF_RESULT_ISPE_SIZE_MISMATCH;
	if (result == AVIF_RESULT_OK)
		result = avif_convert(avif.library, image, rgb);
	if (result != AVIF_RESULT_OK)
		return avif_fail(&avif, result, error);
	avif_close(&avif);
	return 0;
}

/*
 * Memory: planes of up to two bytes per value, including alpha, of both codec and library; and RGBA
 * pixels.
 */
const struct image_reading avif_reading = {
	.probe = avif_probe, .read = avif_read, .pixel_memory = 20};
