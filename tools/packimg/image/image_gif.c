/* GIF, with giflib: the first frame, on the file's canvas. */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

struct gif {
	const uint8_t *data; /* bytes not yet read */
	size_t size;
	GifFileType *file;
	/*
	 * index of the canvas colour around the frame; NO_TRANSPARENT_COLOR means the first colour
	 */
	int transparent;
};

static int gif_input(GifFileType *file, GifByteType *bytes, int count)
{
	struct gif *gif = file->UserData;
	size_t taken = (size_t)count < gif->size ? (size_t)count : gif->size;

	memcpy(bytes, gif->data, taken);
	gif->data += taken;
	gif->size -= taken;
	return (int)taken;
}

static void gif_close(struct gif *gif)
{
	if (gif->file)
		DGifCloseFile(gif->file, NULL);
}

static int gif_fail(struct gif *gif, int code, struct packimg_error *error)
{
	const char *reason = GifErrorString(gif->file ? gif->file->Error : code);

	gif_close(gif);
	return packimg_fail(error, -EBADMSG, "damaged GIF: %s",
			    reason ? reason : "it has no image");
}

enum {
	READ_BITS_MAX = 8,  /* largest initial code size that giflib reads, in bits */
	CODE_BITS_MAX = 12, /* maximum code size (GIF89a, appendix F) */
};

/*
 * Explains giflib's error for a frame with more than 8 bits per pixel. The number of bits is the
 * last byte that giflib has read. The format allows 12-bit codes, and the first codes have one bit
 * more than a pixel.
 */
static int gif_fail_at_frame(struct gif *gif, struct packimg_error *error)
{
	uint8_t bits = gif->data[-1];

	if (!gif->size || gif->file->Error != D_GIF_ERR_READ_FAILED || bits <= READ_BITS_MAX)
		return gif_fail(gif, 0, error);
	gif_close(gif);
	return bits < CODE_BITS_MAX
		       ? image_not_supported(error, "GIF whose codes begin with %u bits a pixel",
					     bits)
		       : packimg_fail(error, -EBADMSG,
				      "damaged GIF: its codes are longer than %d bits",
				      CODE_BITS_MAX);
}

/* Reads extensions. Only the graphic control extension affects the next image. */
static int gif_extension(struct gif *gif)
{
	GraphicsControlBlock block;
	GifByteType *bytes;
	int code;

	if (DGifGetExtension(gif->file, &code, &bytes) == GIF_ERROR)
		return GIF_ERROR;
	if (code == GRAPHICS_EXT_FUNC_CODE && bytes && bytes[0] == 4 &&
	    DGifExtensionToGCB(bytes[0], bytes + 1, &block) == GIF_OK)
		gif->transparent = block.TransparentColor;
	while (bytes)
		if (DGifGetExtensionNext(gif->file, &bytes) == GIF_ERROR)
			return GIF_ERROR;
	return GIF_OK;
}

/*
 * Opens a file and reads up to the pixels of the first frame. On failure closes everything and
 * returns an error.
 */
static int gif_open(struct gif *gif, const uint8_t *data, size_t size, struct packimg_error *error)
{
	GifRecordType type = UNDEFINED_RECORD_TYPE;
	int code = 0;

	*gif = (struct gif){.data = data, .size = size, .transparent = NO_TRANSPARENT_COLOR};
	gif->file = DGifOpen(gif, gif_input, &code);
	if (!gif->file)
		return gif_fail(gif, code, error);
	while (type != IMAGE_DESC_RECORD_TYPE) {
		if (DGifGetRecordType(gif->file, &type) == GIF_ERROR ||
		    (type == EXTENSION_RECORD_TYPE && gif_extension(gif) == GIF_ERROR))
			return gif_fail(gif, 0, error);
		if (type == TERMINATE_RECORD_TYPE) {
			gif_close(gif);
			return packimg_fail(error, -ENOTSUP,
					    "not supported: GIF without an image; leave it out");
		}
	}
	if (DGifGetImageDesc(gif->file) == GIF_ERROR)
		return gif_fail_at_frame(gif, error);
	return 0;
}

static uint32_t max_u32(GifWord size, GifWord end)
{
	return (uint32_t)(end > size ? end : size);
}

static int gif_probe(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error)
{
	struct gif gif;
	int r = gif_open(&gif, data, size, error);

	if (r)
		return r;
	/* Like in Pillow, a frame that exceeds the canvas enlarges it. */
	const GifImageDesc *frame = &gif.file->Image;
	info->width = max_u32(gif.file->SWidth, frame->Left + frame->Width);
	info->height = max_u32(gif.file->SHeight, frame->Top + frame->Height);
	gif_close(&gif);
	return 0;
}

/* Returns the palette; greys if there is no colour table. */
static uint32_t gif_colours(const GifFileType *file, uint8_t colours[256][3])
{
	const ColorMapObject *map = file->Image.ColorMap ? file->Image.ColorMap : file->SColorMap;
	int count = map ? map->ColorCount : 256;

	for (int i = 0; i < 256; i++) {
		GifColorType colour = {0};

		if (!map)
			colour = (GifColorType){(uint8_t)i, (uint8_t)i, (uint8_t)i};
		else if (i < count)
			colour = map->Colors[i];
		memcpy(colours[i], &(uint8_t[3]){colour.Red, colour.Green, colour.Blue}, 3);
	}
	return (uint32_t)count;
}

/*
 * First row and step of the interlaced passes: every eighth row, the rows halfway between them, and
 * so on (GIF89a, appendix E). The last entry is for images that are not interlaced.
 */
static const struct {
	int first, step;
} passes[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}, {0, 1}};

/* Returns 0, giflib's error, or -ERANGE for an index outside the colour table. */
static int gif_row(struct gif *gif, uint8_t *row, const uint8_t colours[256][3], uint32_t count,
		   uint8_t *out)
{
	if (DGifGetLine(gif->file, row, gif->file->Image.Width) == GIF_ERROR)
		return -EBADMSG;
	for (int x = 0; x < gif->file->Image.Width; x++) {
		if (row[x] >= count)
			return -ERANGE;
		memcpy(out + 3 * (size_t)x, colours[row[x]], 3);
	}
	return 0;
}

static int gif_rows(struct gif *gif, const struct image_info *info, uint8_t *row, uint8_t *rgb)
{
	const GifImageDesc *frame = &gif->file->Image;
	size_t stride = 3 * (size_t)info->width;
	uint8_t colours[256][3];
	uint32_t count = gif_colours(gif->file, colours);
	int around = gif->transparent == NO_TRANSPARENT_COLOR ? 0 : gif->transparent & 255;

	if (frame->Width < (int)info->width || frame->Height < (int)info->height)
		for (size_t i = 0; i < stride * info->height; i += 3)
			memcpy(rgb + i, colours[around], 3);
	for (int pass = frame->Interlace ? 0 : 4; pass < (frame->Interlace ? 4 : 5); pass++)
		for (int y = passes[pass].first; y < frame->Height; y += passes[pass].step) {
			int r = gif_row(gif, row, colours, count,
					rgb + (size_t)(frame->Top + y) * stride +
						3 * (size_t)frame->Left);
			if (r)
				return r;
		}
	return 0;
}

/* The LZW codes defined so far, and the number of pixels of each. */
struct gif_codes {
	uint32_t clear, count;
	uint64_t pixels;   /* total of all codes read */
	uint32_t previous; /* pixels of the previous code; 0 after the table was cleared */
	uint32_t lengths[4096];
};

static bool gif_take_code(struct gif_codes *codes, uint32_t code)
{
	bool added = codes->previous && codes->count < 4096;

	if (code == codes->clear) {
		codes->count = codes->clear + 2;
		codes->previous = 0;
		return true;
	}
	if (added)
		codes->lengths[codes->count++] = codes->previous + 1;
	if (code >= (codes->previous ? codes->count : codes->clear))
		return false;
	codes->previous = code < codes->clear ? 1 : codes->lengths[code];
	codes->pixels += codes->previous;
	return true;
}

/*
 * Returns true if all codes of the frame are defined when they occur. Undefined codes exist only in
 * damaged files, but giflib decodes them to arbitrary pixels.
 */
static bool gif_codes_are_defined(const uint8_t *data, size_t size)
{
	struct gif_codes codes = {0};
	struct gif gif;
	int code = 0;

	if (gif_open(&gif, data, size, NULL))
		return false;
	uint64_t pixels = (uint64_t)gif.file->Image.Width * (uint64_t)gif.file->Image.Height;
	/* the last byte read by giflib is the number of bits per pixel */
	bool good = gif.data[-1] <= 8;
	codes.clear = 1u << (gif.data[-1] & 15);
	codes.count = codes.clear + 2;
	while (good && code >= 0 && codes.pixels < pixels)
		good = DGifGetLZCodes(gif.file, &code) == GIF_OK &&
		       (code < 0 || gif_take_code(&codes, (uint32_t)code));
	gif_close(&gif);
	return good;
}

static int gif_read(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	struct gif gif;
	int r = gif_open(&gif, data, size, error);

	if (r)
		return r;
	uint8_t *row = malloc((size_t)gif.file->Image.Width + 1);
	r = row ? gif_rows(&gif, info, row, rgb) : -ENOMEM;
	free(row);
	if (r == -EBADMSG)
		return gif_fail(&gif, 0, error);
	gif_close(&gif);
	if (r == -ERANGE)
		return packimg_fail(error, -EBADMSG,
				    "damaged GIF: a pixel's colour is not in its table");
	if (!r && !gif_codes_are_defined(data, size))
		return packimg_fail(error, -EBADMSG, "damaged GIF: a code is undefined");
	return r ? packimg_fail(error, r, "out of memory") : 0;
}

const struct image_reading gif_reading = {.probe = gif_probe, .read = gif_read};
