/*
 * BMP of Windows and OS/2: palettes of 1, 4 and 8 bits, also run-length encoded; 16, 24 and 32 bits
 * with any masks. Debian's libraries for BMP accept truncated files, read few variants, or require
 * a window system.
 */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <string.h>

enum {
	FILE_HEADER = 14,
	HEADER_OS2 = 12,
	HEADER_WINDOWS = 40, /* smallest header other than OS/2's */
	HEADER_MASKS = 52,   /* headers of at least this size include the masks */
	HEADER_MAX = 124,
	RGB = 0,
	RLE8,
	RLE4,
	BITFIELDS,
	COLOURS_MAX = 256,
};

struct bmp {
	const uint8_t *data;
	size_t size;
	uint32_t width, height, bits, compression;
	uint32_t masks[3]; /* red, green, blue */
	uint32_t colours;
	uint8_t palette[COLOURS_MAX][3];
	bool grey; /* all colours of the palette are grey */
	bool top_down;
	size_t start; /* offset of the bitmap header */
	/*
	 * offset of the pixels; 0 if the file header does not give it and the tables have not been
	 * read
	 */
	size_t offset;
};

static uint32_t bmp_get(const uint8_t *from, int bytes)
{
	uint32_t value = 0;

	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | from[i];
	return value;
}

static int bmp_damaged(struct packimg_error *error, const char *what)
{
	return packimg_fail(error, -EBADMSG, "damaged BMP: %s", what);
}

static int bmp_not_supported(struct packimg_error *error, const char *what, uint32_t value)
{
	return image_not_supported(error, "BMP with a %s of %u", what, value);
}

/*
 * Reads the tables between headers and pixels: the masks, unless they are in the header, and the
 * palette.
 */
static int bmp_tables(struct bmp *bmp, size_t at, uint32_t header, uint32_t colours,
		      struct packimg_error *error)
{
	size_t step = header == HEADER_OS2 ? 3 : 4;

	if (bmp->compression == BITFIELDS) {
		size_t masks = header >= HEADER_MASKS ? bmp->start + HEADER_WINDOWS : at;

		if (masks + 12 > bmp->size)
			return bmp_damaged(error, "it ends within its masks");
		for (int i = 0; i < 3; i++)
			bmp->masks[i] = bmp_get(bmp->data + masks + 4 * i, 4);
		at = header >= HEADER_MASKS ? at : at + 12;
	}
	if (bmp->bits > 8) {
		if (!bmp->start)
			bmp->offset = at + step * colours;
		return 0;
	}
	bmp->colours = colours && colours < 1u << bmp->bits ? colours : 1u << bmp->bits;
	if (at + step * bmp->colours > bmp->size)
		return bmp_damaged(error, "it ends within its colours");
	if (!bmp->start)
		bmp->offset = at + step * bmp->colours;
	bmp->grey = true;
	for (uint32_t i = 0; i < bmp->colours; i++)
		for (int c = 0; c < 3; c++) {
			bmp->palette[i][c] = bmp->data[at + step * i + 2 - (size_t)c];
			bmp->grey &= bmp->palette[i][c] == bmp->palette[i][0];
		}
	return 0;
}

static int bmp_check(const struct bmp *bmp, struct packimg_error *error)
{
	uint32_t bits = bmp->bits;

	if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
		return bmp_not_supported(error, "number of bits", bits);
	if (bmp->compression > BITFIELDS || (bmp->compression == RLE8 && bits != 8) ||
	    (bmp->compression == RLE4 && bits != 4) || (bmp->compression == BITFIELDS && bits < 16))
		return bmp_not_supported(error, "compression", bmp->compression);
	return 0;
}

/*
 * Reads the headers. The file header gives the offset of the pixels; without it, they directly
 * follow the tables.
 */
static int bmp_open(struct bmp *bmp, const uint8_t *data, size_t size, struct packimg_error *error)
{
	size_t start = data[0] == 'B' ? FILE_HEADER : 0;
	uint32_t header = size < start + 4 ? 0 : bmp_get(data + start, 4), colours = 0;
	const uint8_t *fields = data + start + 4;

	*bmp = (struct bmp){.data = data, .size = size, .start = start};
	if (data[1] == 'A')
		return image_not_supported(error, "BMP that is an array of bitmaps");
	if (!header || header > size - start)
		return bmp_damaged(error, "it ends within its headers");
	if (header != HEADER_OS2 && header != 40 && header != 52 && header != 56 && header != 64 &&
	    header != 108 && header != 124)
		return bmp_not_supported(error, "header", header);
	bmp->offset = start ? bmp_get(data + 10, 4) : 0;
	if (header == HEADER_OS2) {
		bmp->width = bmp_get(fields, 2);
		bmp->height = bmp_get(fields + 2, 2);
		bmp->bits = bmp_get(fields + 6, 2);
	} else {
		bmp->width = bmp_get(fields, 4);
		bmp->height = bmp_get(fields + 4, 4);
		bmp->top_down = bmp->height >> 31;
		bmp->height = bmp->top_down ? -bmp->height : bmp->height;
		bmp->bits = bmp_get(fields + 10, 2);
		bmp->compression = bmp_get(fields + 12, 4);
		colours = bmp_get(fields + 28, 4);
	}
	int r = bmp_check(bmp, error);
	return r ? r : bmp_tables(bmp, start + header, header, colours, error);
}

static int bmp_probe(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error)
{
	struct bmp bmp;
	int r = bmp_open(&bmp, data, size, error);

	info->width = bmp.width;
	info->height = bmp.height;
	info->channels = bmp.grey ? 1 : 3;
	return r;
}

/* Returns the output row of stored row y. */
static uint8_t *bmp_row(const struct bmp *bmp, uint8_t *rgb, uint32_t y)
{
	return rgb + 3 * (size_t)bmp->width * (bmp->top_down ? y : bmp->height - 1 - y);
}

static bool put_index(const struct bmp *bmp, uint32_t index, uint8_t *out)
{
	if (index >= bmp->colours)
		return false;
	memcpy(out, bmp->palette[index], 3);
	return true;
}

/* Extracts the bits of a mask, scaled to 0 .. 255. */
static uint8_t bmp_masked(uint32_t value, uint32_t mask)
{
	return mask ? (uint8_t)((uint64_t)(value & mask) * 255 / mask) : 0;
}

static bool bmp_indices(const struct bmp *bmp, const uint8_t *in, uint8_t *out)
{
	uint32_t each = 8 / bmp->bits, mask = (1u << bmp->bits) - 1;

	for (uint32_t x = 0; x < bmp->width; x++) {
		uint32_t shift = (each - 1 - x % each) * bmp->bits;

		if (!put_index(bmp, in[x / each] >> shift & mask, out + 3 * (size_t)x))
			return false;
	}
	return true;
}

static bool bmp_colours(const struct bmp *bmp, const uint8_t *in, uint8_t *out)
{
	static const uint32_t masks_16[3] = {0x7c00, 0x3e0, 0x1f},
			      masks_32[3] = {0xff0000, 0xff00, 0xff};
	bool given = bmp->masks[0] | bmp->masks[1] | bmp->masks[2];
	const uint32_t *masks = given ? bmp->masks : bmp->bits == 16 ? masks_16 : masks_32;
	int bytes = (int)bmp->bits / 8;

	for (uint32_t x = 0; x < bmp->width; x++, in += bytes)
		for (int c = 0; c < 3; c++)
			*out++ = bmp_masked(bmp_get(in, bytes), masks[c]);
	return true;
}

static int bmp_rows(const struct bmp *bmp, uint8_t *rgb, struct packimg_error *error)
{
	uint64_t row = ((uint64_t)bmp->width * bmp->bits + 7) / 8,
		 stride = (row + 3) & ~UINT64_C(3);

	/* the last row may lack its padding */
	if (bmp->offset > bmp->size || stride * (bmp->height - 1) + row > bmp->size - bmp->offset)
		return bmp_damaged(error, "it ends within its pixels");
	for (uint32_t y = 0; y < bmp->height; y++) {
		const uint8_t *in = bmp->data + bmp->offset + stride * y;
		uint8_t *out = bmp_row(bmp, rgb, y);

		if (!(bmp->bits <= 8 ? bmp_indices(bmp, in, out) : bmp_colours(bmp, in, out)))
			return bmp_damaged(error, "a pixel's colour is not in its table");
	}
	return 0;
}

/* State of a run-length decoder. */
struct run {
	const struct bmp *bmp;
	const uint8_t *at, *end;
	uint8_t *rgb;
	uint32_t x, y;
	const char *fault; /* error message; NULL if none so far */
};

static bool run_fail(struct run *run, const char *fault)
{
	run->fault = fault;
	return false;
}

static bool run_put(struct run *run, uint32_t index)
{
	uint32_t x = run->x++;

	return put_index(run->bmp, index, bmp_row(run->bmp, run->rgb, run->y) + 3 * (size_t)x) ||
	       run_fail(run, "a pixel's colour is not in its table");
}

/* Returns true if `count` pixels fit in the row at the current position. */
static bool run_fits(struct run *run, uint32_t count)
{
	return (run->y < run->bmp->height && count <= run->bmp->width - run->x) ||
	       run_fail(run, "pixels go over the end of their row or of the picture");
}

/* Returns true if `count` bytes remain; otherwise reports that the data ends early. */
static bool run_has(struct run *run, size_t bytes)
{
	return bytes <= (size_t)(run->end - run->at) || run_fail(run, "it ends within its pixels");
}

/* Copies literal pixels, which are padded to an even number of bytes. */
static bool run_absolute(struct run *run, uint32_t count)
{
	bool half = run->bmp->bits == 4;
	uint32_t bytes = half ? (count + 1) / 2 : count;

	if (!run_fits(run, count) || !run_has(run, bytes + (bytes & 1)))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (!run_put(run, !half   ? run->at[i]
				  : i % 2 ? run->at[i / 2] & 15
					  : run->at[i / 2] >> 4))
			return false;
	run->at += bytes + (bytes & 1);
	return true;
}

static bool run_repeat(struct run *run, uint32_t count, uint8_t value)
{
	bool half = run->bmp->bits == 4;

	if (!run_fits(run, count))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (!run_put(run, !half ? value : i % 2 ? value & 15 : value >> 4))
			return false;
	return true;
}

/* Moves the current position, at most to the end of a row. */
static bool run_jump(struct run *run)
{
	if (!run_has(run, 2))
		return false;
	run->x += run->at[0];
	run->y += run->at[1];
	run->at += 2;
	return (run->x <= run->bmp->width && run->y < run->bmp->height) ||
	       run_fail(run, "a jump leads out of the picture");
}

/*
 * Decodes up to the end of the bitmap. The specification ([MS-WMF], 3.1.6.2) does not require the
 * end code, which adds no pixel: it may be missing if the last row is full or ended. Pixels beyond
 * the end of a row and jumps out of the image are not specified, and count as damage.
 */
static bool run_all(struct run *run)
{
	enum { END_OF_LINE, END_OF_BITMAP, JUMP };

	for (;;) {
		bool complete = run->y >= run->bmp->height ||
				(run->y == run->bmp->height - 1 && run->x == run->bmp->width);

		if (complete && run->end - run->at < 2)
			return true;
		if (!run_has(run, 2))
			return false;
		uint8_t count = run->at[0], value = run->at[1];
		run->at += 2;
		if (!count && value == END_OF_BITMAP)
			return true;
		if (!count && value == END_OF_LINE) {
			run->x = 0;
			run->y++;
		} else if (!(count           ? run_repeat(run, count, value)
			     : value == JUMP ? run_jump(run)
					     : run_absolute(run, value))) {
			return false;
		}
	}
}

/* Pixels that no code covers get the first colour. */
static int bmp_runs(const struct bmp *bmp, uint8_t *rgb, struct packimg_error *error)
{
	struct run run = {.bmp = bmp, .end = bmp->data + bmp->size, .rgb = rgb};

	if (bmp->offset > bmp->size)
		return bmp_damaged(error, "it ends within its pixels");
	run.at = bmp->data + bmp->offset;
	for (size_t i = 0; i < (size_t)bmp->width * bmp->height; i++)
		memcpy(rgb + 3 * i, bmp->palette[0], 3);
	return run_all(&run) ? 0 : bmp_damaged(error, run.fault);
}

static int bmp_read(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	struct bmp bmp;
	int r = bmp_open(&bmp, data, size, error);

	if (r)
		return r;
	return bmp.compression == RLE8 || bmp.compression == RLE4 ? bmp_runs(&bmp, rgb, error)
								  : bmp_rows(&bmp, rgb, error);
}

const struct image_reading bmp_reading = {.probe = bmp_probe, .read = bmp_read};
