/* PNG, with libspng. */
#include "format/base/exif.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

/*
 * Features that this version of the library does not know, and excessive metadata, are reported as
 * unsupported rather than as damage.
 */
static int png_fail(int code, struct packimg_error *error)
{
	switch (code) {
	case SPNG_EBIT_DEPTH:
	case SPNG_ECOLOR_TYPE:
	case SPNG_ECOMPRESSION_METHOD:
	case SPNG_EFILTER_METHOD:
	case SPNG_EINTERLACE_METHOD:
	case SPNG_ECHUNK_UNKNOWN_CRITICAL:
		return image_not_supported(error, "PNG of an unknown sort (%s)",
					   spng_strerror(code));
	case SPNG_ECHUNK_LIMITS:
		return packimg_fail(error, -E2BIG,
				    "a PNG with more chunks or text besides its pixels than are "
				    "read; save it without metadata");
	case SPNG_EMEM:
		return packimg_fail(error, -ENOMEM, "out of memory");
	default:
		return packimg_fail(error, -EBADMSG, "damaged PNG: %s", spng_strerror(code));
	}
}

static int png_open(const uint8_t *data, size_t size, spng_ctx **ret_png,
		    struct spng_ihdr *ret_header, struct packimg_error *error)
{
	spng_ctx *png = spng_ctx_new(0);

	if (!png)
		return packimg_fail(error, -ENOMEM, "out of memory");
	spng_set_image_limits(png, PACKIMG_SIDE_MAX, PACKIMG_SIDE_MAX);
	/* also check ancillary chunks, because one of them may hold the orientation */
	spng_set_crc_action(png, SPNG_CRC_ERROR, SPNG_CRC_ERROR);
	spng_set_chunk_limits(png, 64 << 20, 128 << 20);
	int r = spng_set_png_buffer(png, data, size);
	if (!r)
		r = spng_get_ihdr(png, ret_header);
	if (r) {
		spng_ctx_free(png);
		return png_fail(r, error);
	}
	*ret_png = png;
	return 0;
}

/* Name of a chunk, and the first bytes of its content. */
struct interest {
	char name[5];
	const char *content;
};

/* Kinds of chunks that can hold the orientation. */
static const struct interest interests[] = {
	{"eXIf", ""},
	{"iTXt", "XML:com.adobe.xmp"},
	{"tEXt", "Raw profile type exif"},
	{"zTXt", "Raw profile type exif"},
};

static bool is_interesting(const uint8_t *name, const uint8_t *content, size_t size)
{
	for (size_t i = 0; i < sizeof(interests) / sizeof(*interests); i++) {
		size_t begin = strlen(interests[i].content);

		if (memcmp(name, interests[i].name, 4) == 0 && size >= begin &&
		    memcmp(content, interests[i].content, begin) == 0)
			return true;
	}
	return false;
}

/*
 * Copies the start of the file and moves chunks of these kinds from after the pixels to before
 * them, where the library finds them before decoding. Leaves png empty if there are no such chunks.
 * The copy ends after the header of the first IDAT. -EBADMSG if IEND is missing, because the
 * orientation may be missing too.
 */
static int collect_late(const uint8_t *data, size_t size, struct buffer *png)
{
	enum { HEAD = 8, CHECKSUM = 4 };
	size_t pixels = 0, at = 8;
	bool ended = false;

	while (at + HEAD + CHECKSUM <= size && !ended) {
		const uint8_t *chunk = data + at;
		size_t length = (size_t)chunk[0] << 24 | (size_t)chunk[1] << 16 |
				(size_t)chunk[2] << 8 | chunk[3];

		if (length > size - at - HEAD - CHECKSUM)
			break;
		if (!pixels && memcmp(chunk + 4, "IDAT", 4) == 0)
			pixels = at;
		if (pixels && is_interesting(chunk + 4, chunk + HEAD, length) &&
		    ((!png->size && buffer_append(png, data, pixels)) ||
		     buffer_append(png, chunk, HEAD + length + CHECKSUM)))
			return -ENOMEM;
		ended = memcmp(chunk + 4, "IEND", 4) == 0;
		at += HEAD + length + CHECKSUM;
	}
	if (!ended)
		return -EBADMSG;
	return png->size ? buffer_append(png, data + pixels, HEAD) : 0;
}

static int hex_digit(char digit)
{
	return digit >= '0' && digit <= '9'   ? digit - '0'
	       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
	       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
					      : -1;
}

/*
 * Decodes ImageMagick's raw profile in place: an empty line, "exif", the number of bytes, and the
 * bytes in hexadecimal.
 */
static uint8_t raw_profile_orientation(char *text)
{
	uint8_t *out = (uint8_t *)text;
	size_t digits = 0;

	for (int line = 0; line < 3; line++) {
		text = strchr(text, '\n');
		if (!text)
			return 0;
		text++;
	}
	uint8_t *begin = out;
	for (; *text; text++) {
		int value = hex_digit(*text);

		if (value < 0 && !strchr(" \n\r\t", *text))
			return 0;
		if (value < 0)
			continue;
		if (digits++ % 2)
			*out++ |= (uint8_t)value;
		else
			*out = (uint8_t)(value << 4);
	}
	return exif_orientation(begin, digits / 2);
}

/* The first one present wins: eXIf chunk, raw profile, XMP. */
static uint8_t png_orientation(spng_ctx *png)
{
	struct spng_text *texts = NULL;
	struct spng_exif block;
	uint8_t exif = 0, xmp = 0;
	uint32_t count = 0;

	bool has_exif = !spng_get_exif(png, &block);
	if (has_exif)
		exif = exif_orientation((const uint8_t *)block.data, block.length);
	if (!spng_get_text(png, NULL, &count) && count)
		texts = calloc(count, sizeof(*texts));
	if (texts && !spng_get_text(png, texts, &count)) {
		for (uint32_t i = 0; i < count; i++) {
			if (strcmp(texts[i].keyword, "XML:com.adobe.xmp") == 0)
				xmp = xmp_orientation((const uint8_t *)texts[i].text,
						      strlen(texts[i].text));
			else if (!has_exif &&
				 strcmp(texts[i].keyword, "Raw profile type exif") == 0)
				exif = raw_profile_orientation(texts[i].text);
		}
	}
	free(texts);
	return orientation_of(exif, xmp);
}

/* Reads the chunks before the pixels. Closes the file if one is damaged. */
static int png_check_chunks(spng_ctx *png, struct packimg_error *error)
{
	uint32_t count;
	int r = spng_get_text(png, NULL, &count);

	if (!r || r == SPNG_ECHUNKAVAIL)
		return 0;
	spng_ctx_free(png);
	return png_fail(r, error);
}

static int png_probe(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error)
{
	struct buffer early = {0};
	struct spng_ihdr header;
	spng_ctx *png;
	int r = collect_late(data, size, &early);

	if (r) {
		buffer_deinit(&early);
		return packimg_fail(error, r,
				    r == -ENOMEM ? "out of memory"
						 : "damaged PNG: its end is missing");
	}
	r = early.size ? png_open(early.data, early.size, &png, &header, error)
		       : png_open(data, size, &png, &header, error);
	if (!r)
		r = png_check_chunks(png, error);
	if (!r) {
		info->width = header.width;
		info->height = header.height;
		if (header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
		    header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA)
			info->channels = 1;
		info->orientation = png_orientation(png);
		spng_ctx_free(png);
	}
	buffer_deinit(&early);
	return r;
}

static int png_read(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	size_t bytes = (size_t)info->width * info->height * 3;
	struct spng_ihdr header;
	spng_ctx *png;

	int r = png_open(data, size, &png, &header, error);
	if (r)
		return r;
	r = spng_decode_image(png, rgb, bytes, SPNG_FMT_RGB8, 0);
	spng_ctx_free(png);
	return r ? png_fail(r, error) : 0;
}

/* Encodes the rows. row has room for one. Returns the result of the last call. */
static int png_put_rows(spng_ctx *encoder, const struct packimg_raster *raster, uint8_t *row)
{
	size_t pixel = raster->channels * packimg_element_size(raster->element);
	int r = 0;

	for (uint32_t y = 0; !r && y < raster->height; y++) {
		const uint8_t *from = raster->data + (ptrdiff_t)y * raster->step_y;

		for (uint32_t x = 0; x < raster->width; x++)
			memcpy(row + x * pixel, from + (ptrdiff_t)x * raster->step_x, pixel);
		r = spng_encode_row(encoder, row, raster->width * pixel);
	}
	return r;
}

/* Returns the file, which the caller frees, or NULL with the reason in *ret_code. */
static void *png_encode(spng_ctx *encoder, const struct packimg_raster *raster, size_t *ret_size,
			int *ret_code)
{
	struct spng_ihdr header = {
		.width = raster->width,
		.height = raster->height,
		.bit_depth = (uint8_t)(packimg_element_size(raster->element) * 8),
		.color_type = raster->channels == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
			      : raster->channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
						      : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA,
	};
	uint8_t *row = malloc((size_t)raster->width * raster->channels *
			      packimg_element_size(raster->element));
	int r = row ? 0 : SPNG_EMEM;

	spng_set_option(encoder, SPNG_ENCODE_TO_BUFFER, 1);
	r = r ?: spng_set_ihdr(encoder, &header);
	if (!r)
		r = spng_encode_image(encoder, NULL, 0, SPNG_FMT_PNG,
				      SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
	r = r ?: png_put_rows(encoder, raster, row);
	free(row);
	if (r == SPNG_EOI)
		return spng_get_png_buffer(encoder, ret_size, ret_code);
	*ret_code = r;
	return NULL;
}

static int png_write(const struct packimg_raster *raster, struct buffer *png,
		     struct packimg_error *error)
{
	spng_ctx *encoder = spng_ctx_new(SPNG_CTX_ENCODER);
	size_t size = 0;
	int r = SPNG_EMEM;
	void *bytes = encoder ? png_encode(encoder, raster, &size, &r) : NULL;

	spng_ctx_free(encoder);
	if (!bytes)
		return packimg_fail(error, -EIO, "PNG encoder: %s", spng_strerror(r));
	png->size = 0;
	r = buffer_append(png, bytes, size);
	free(bytes);
	return r ? packimg_fail(error, r, "out of memory") : 0;
}
const struct image_reading png_reading = {.probe = png_probe, .read = png_read, .write = png_write};
