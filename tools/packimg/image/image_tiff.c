/* TIFF, with libtiff: the first image of a file. */
#include "format/base/exif.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/image/tiff_samples.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

struct tiff {
	const uint8_t *data;
	uint64_t size, at;
	TIFF *file;
	/*
	 * first message of libtiff, empty if there is none; libtiff's functions require this size
	 */
	char reason[1024];
};

/* I/O functions for libtiff, for a file in memory. */

static tmsize_t tiff_take(thandle_t handle, void *bytes, tmsize_t count)
{
	struct tiff *tiff = (struct tiff *)handle;
	uint64_t left = tiff->at < tiff->size ? tiff->size - tiff->at : 0;
	uint64_t taken = (uint64_t)count < left ? (uint64_t)count : left;

	memcpy(bytes, tiff->data + (taken ? tiff->at : 0), taken);
	tiff->at += taken;
	return (tmsize_t)taken;
}

static tmsize_t tiff_put(thandle_t handle, void *bytes, tmsize_t count)
{
	return -1;
}

static toff_t tiff_seek(thandle_t handle, toff_t offset, int from)
{
	struct tiff *tiff = (struct tiff *)handle;

	tiff->at = from == SEEK_SET   ? offset
		   : from == SEEK_CUR ? tiff->at + offset
				      : tiff->size + offset;
	return tiff->at;
}

static toff_t tiff_size(thandle_t handle)
{
	return ((struct tiff *)handle)->size;
}

static int tiff_map(thandle_t handle, void **ret_base, toff_t *ret_size)
{
	struct tiff *tiff = (struct tiff *)handle;

	*ret_base =
		(void *)(uintptr_t)
			tiff->data; /* libtiff never writes, because the file is opened read-only */
	*ret_size = tiff->size;
	return 1;
}

static void tiff_unmap(thandle_t handle, void *base, toff_t size)
{
}

static int tiff_close_nothing(thandle_t handle)
{
	return 0;
}

static bool contains_any(const char *text, const char *const *words)
{
	while (*words && !strstr(text, *words))
		words++;
	return *words;
}

/*
 * Returns true if a warning of libtiff means missing or wrong pixels. For example, if libtiff
 * ignores the colour table, it converts indices to greys.
 */
static bool tiff_is_loss(const char *text)
{
	static const char *const words[] = {
		"orrupt",       "remature",     "mismatch", "lack of data",
		"Inconsistent", "\"ColorMap\"", NULL};

	return contains_any(text, words);
}

/*
 * Returns true if a warning is about an unknown tag, which libtiff skips and which does not affect
 * pixels.
 */
static bool tiff_is_harmless(const char *text)
{
	static const char *const words[] = {"Null count for \"Tag ", "of custom tag ", NULL};

	return contains_any(text, words);
}

/* Returns true if an error of libtiff means that it does not support this kind of file. */
static bool tiff_is_unread(const char *text)
{
	static const char *const words[] = {"Sorry", "upport", "not implemented",
					    "different values per sample", NULL};

	return contains_any(text, words);
}

__attribute__((format(printf, 4, 0))) static int
tiff_said(TIFF *file, void *user, const char *where, const char *format, va_list arguments)
{
	struct tiff *tiff = user;
	char text[sizeof(tiff->reason)];

	if (*tiff->reason)
		return 1;
	vsnprintf(text, sizeof(text), format, arguments);
	if (!tiff_is_harmless(text))
		memcpy(tiff->reason, text, sizeof(text));
	return 1;
}

/* Handles warnings, most of which are about unknown tags or obsolete compression schemes. */
__attribute__((format(printf, 4, 0))) static int
tiff_warned(TIFF *file, void *user, const char *where, const char *format, va_list arguments)
{
	struct tiff *tiff = user;
	char text[sizeof(tiff->reason)];

	if (*tiff->reason)
		return 1;
	vsnprintf(text, sizeof(text), format, arguments);
	if (tiff_is_loss(text))
		memcpy(tiff->reason, text, sizeof(text));
	return 1;
}

static int tiff_fail(struct tiff *tiff, int code, struct packimg_error *error)
{
	if (tiff->file)
		TIFFClose(tiff->file);
	if (code == -EBADMSG && tiff_is_unread(tiff->reason))
		code = -ENOTSUP;
	else if (code == -EBADMSG && strstr(tiff->reason, "limit defined in open options"))
		code = -E2BIG;
	if (code == -ENOMEM)
		return packimg_fail(error, code, "out of memory");
	if (code == -E2BIG)
		return packimg_fail(error, code,
				    "a TIFF whose strips or tiles take too much memory for its "
				    "size; save it with smaller ones");
	if (code == -ENOTSUP)
		return image_not_supported(error, "TIFF of this sort (%s)", tiff->reason);
	return packimg_fail(error, code, "damaged TIFF: %s",
			    *tiff->reason ? tiff->reason : "its image cannot be read");
}

enum {
	TIFF_MEMORY_MIN = 16 << 20, /* lower bound of the limit on a single allocation */
	TIFF_PIXEL_MEMORY = 64,     /* maximum bytes per pixel of a strip that holds all pixels */
};

/*
 * Limits a single allocation to what the file and its pixels make plausible, because tags can
 * request any amount.
 */
static tmsize_t tiff_memory(size_t size, uint64_t pixels, uint64_t memory_max)
{
	uint64_t likely = TIFF_MEMORY_MIN + 8 * (uint64_t)size + TIFF_PIXEL_MEMORY * pixels;

	return (tmsize_t)(likely < memory_max ? likely : memory_max);
}

static int tiff_open(struct tiff *tiff, const uint8_t *data, size_t size, uint64_t pixels,
		     uint64_t memory_max, struct packimg_error *error)
{
	TIFFOpenOptions *options = TIFFOpenOptionsAlloc();

	*tiff = (struct tiff){.data = data, .size = size};
	if (!options)
		return packimg_fail(error, -ENOMEM, "out of memory");
	TIFFOpenOptionsSetMaxSingleMemAlloc(options, tiff_memory(size, pixels, memory_max));
	TIFFOpenOptionsSetErrorHandlerExtR(options, tiff_said, tiff);
	TIFFOpenOptionsSetWarningHandlerExtR(options, tiff_warned, tiff);
	tiff->file =
		TIFFClientOpenExt("image", "r", tiff, tiff_take, tiff_put, tiff_seek,
				  tiff_close_nothing, tiff_size, tiff_map, tiff_unmap, options);
	TIFFOpenOptionsFree(options);
	return tiff->file ? 0 : tiff_fail(tiff, -EBADMSG, error);
}

/* Returns the orientation given by the tag, else by XMP. */
static uint8_t tiff_orientation(TIFF *file)
{
	uint16_t orientation = 0;
	uint32_t size = 0;
	void *text = NULL;

	if (TIFFGetField(file, TIFFTAG_ORIENTATION, &orientation))
		return orientation >= 1 && orientation <= 8 ? (uint8_t)orientation : 1;
	if (!TIFFGetField(file, TIFFTAG_XMLPACKET, &size, &text) || !text)
		return 1;
	return orientation_of(0, xmp_orientation(text, size));
}

/* Returns false for other sample formats, whose bits libtiff would read as unsigned integers. */
static bool tiff_is_read(struct tiff *tiff)
{
	uint16_t format = SAMPLEFORMAT_UINT;

	TIFFGetFieldDefaulted(tiff->file, TIFFTAG_SAMPLEFORMAT, &format);
	if (format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID)
		return tiff_samples_are_ours(tiff->file) ||
		       TIFFRGBAImageOK(tiff->file, tiff->reason);
	snprintf(tiff->reason, sizeof(tiff->reason),
		 "its samples are no unsigned integers, but of sample format %u", format);
	return false;
}

static int tiff_probe(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	uint16_t photometric = PHOTOMETRIC_RGB;
	struct tiff tiff;
	int r = tiff_open(&tiff, data, size, 0, IMAGE_MEMORY_MAX, error);

	if (r)
		return r;
	if (!TIFFGetField(tiff.file, TIFFTAG_IMAGEWIDTH, &info->width) ||
	    !TIFFGetField(tiff.file, TIFFTAG_IMAGELENGTH, &info->height))
		return tiff_fail(&tiff, -EBADMSG, error);
	if (!tiff_is_read(&tiff))
		return tiff_fail(&tiff, -ENOTSUP, error);
	TIFFGetField(tiff.file, TIFFTAG_PHOTOMETRIC, &photometric);
	if (photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE)
		info->channels = 1;
	info->orientation = tiff_orientation(tiff.file);
	TIFFClose(tiff.file);
	return 0;
}

/*
 * Replaces tables of libtiff that lighten colours with associated alpha and round 16 bits: alpha is
 * dropped, and 16 bits lose their low byte, as with other kinds.
 */
static void tiff_plain_tables(TIFFRGBAImage *image)
{
	for (uint32_t i = 0; image->UaToAa && i < 1 << 16; i++)
		image->UaToAa[i] = (uint8_t)i;
	for (uint32_t i = 0; image->Bitdepth16To8 && i < 1 << 16; i++)
		image->Bitdepth16To8[i] = (uint8_t)(i >> 8);
}

static int tiff_raster(struct tiff *tiff, const struct image_info *info, uint32_t *raster)
{
	TIFFRGBAImage image;
	int r = 0;

	if (!TIFFRGBAImageBegin(&image, tiff->file, 1, tiff->reason))
		return -EBADMSG;
	tiff_plain_tables(&image);
	/* request the stored orientation, so that libtiff does not rotate */
	image.req_orientation = image.orientation;
	if (!TIFFRGBAImageGet(&image, raster, info->width, info->height))
		r = -EBADMSG;
	TIFFRGBAImageEnd(&image);
	return r;
}

/*
 * Returns true if colours are premultiplied by alpha. They are then divided by it, because alpha is
 * dropped and there is nothing to blend with. Fully transparent pixels become black, whatever
 * colour the file has there.
 */
static bool tiff_is_multiplied(TIFF *file)
{
	uint16_t count = 0, *kinds = NULL;

	return TIFFGetField(file, TIFFTAG_EXTRASAMPLES, &count, &kinds) && count &&
	       kinds[0] == EXTRASAMPLE_ASSOCALPHA;
}

static uint8_t divided(uint32_t value, uint32_t alpha)
{
	if (!alpha)
		return 0;
	value = value * 255 / alpha;
	return value > 255 ? 255 : (uint8_t)value;
}

static void tiff_put_row(const uint32_t *raster, uint32_t width, bool multiplied, uint8_t *rgb)
{
	for (; width > 0; width--, raster++, rgb += 3) {
		uint32_t alpha = multiplied ? TIFFGetA(*raster) : 255;

		rgb[0] = divided(TIFFGetR(*raster), alpha);
		rgb[1] = divided(TIFFGetG(*raster), alpha);
		rgb[2] = divided(TIFFGetB(*raster), alpha);
	}
}

/* Reads an image that libtiff converts to RGB. */
static int tiff_converted(struct tiff *tiff, const struct image_info *info, uint8_t *rgb)
{
	uint32_t *raster = malloc((size_t)info->width * info->height * sizeof(*raster));

	if (!raster)
		return -ENOMEM;
	int r = tiff_raster(tiff, info, raster);
	bool multiplied = tiff_is_multiplied(tiff->file);
	for (uint32_t y = 0; !r && y < info->height; y++)
		tiff_put_row(raster + (size_t)y * info->width, info->width, multiplied,
			     rgb + 3 * (size_t)y * info->width);
	free(raster);
	return r;
}

static int tiff_read(const uint8_t *data, size_t size, const struct image_info *info,
		     uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	size_t count = (size_t)info->width * info->height;
	uint64_t library_max = memory_max - count * sizeof(uint32_t);
	struct tiff tiff;
	int r = tiff_open(&tiff, data, size, count, library_max, error);

	if (r)
		return r;
	r = tiff_samples_are_ours(tiff.file)
		    ? tiff_samples_read(tiff.file, info,
					(uint64_t)tiff_memory(size, count, library_max), rgb)
		    : tiff_converted(&tiff, info, rgb);
	if (!r && *tiff.reason)
		r = -EBADMSG;
	if (r)
		return tiff_fail(&tiff, r, error);
	TIFFClose(tiff.file);
	return 0;
}

/* RGBA pixels; strips and tiles are covered by the limit on a single allocation. */
const struct image_reading tiff_reading = {
	.probe = tiff_probe, .read = tiff_read, .pixel_memory = sizeof(uint32_t)};
