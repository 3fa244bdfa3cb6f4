#include "tools/packimg/image/tiff_samples.h"

#include "tools/packimg/image/cielab.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BITS_MAX = 16,
	COLOURS_MAX = 4,
	READ_AHEAD = 2, /* bytes after a row that reading its last sample may access */
};

/*
 * Layout of the samples. They are stored in blocks (strips or tiles); with separate planes, each
 * plane has its own blocks.
 */
struct samples {
	TIFF *file;
	uint32_t width, height; /* size of the image */
	uint32_t block_width, block_height;
	size_t row, size; /* bytes of one row of a block, and of a whole block, in one plane */
	uint16_t bits, photometric;
	uint16_t count;   /* number of samples per pixel in a plane */
	uint16_t colours; /* number of samples per pixel to read, the first ones */
	uint16_t planes;  /* number of planes: one per colour, or a single one for all colours */
	uint8_t *blocks;
	struct cielab *cielab; /* only for CIELAB colours */
};

static uint16_t colours_of(uint16_t photometric)
{
	return photometric == PHOTOMETRIC_SEPARATED                                  ? 4
	       : photometric == PHOTOMETRIC_RGB || photometric == PHOTOMETRIC_CIELAB ? 3
										     : 1;
}

static uint16_t tiff_field(TIFF *file, uint32_t tag)
{
	uint16_t value = 0;

	TIFFGetFieldDefaulted(file, tag, &value);
	return value;
}

/*
 * Returns true for premultiplied colours that libtiff handles: it divides 8 and 16 bits by alpha.
 */
static bool is_multiplied(TIFF *file)
{
	uint16_t count = 0, *kinds = NULL;

	TIFFGetFieldDefaulted(file, TIFFTAG_EXTRASAMPLES, &count, &kinds);
	return count && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
}

bool tiff_samples_are_ours(TIFF *file)
{
	uint16_t photometric = UINT16_MAX, bits = tiff_field(file, TIFFTAG_BITSPERSAMPLE),
		 count = tiff_field(file, TIFFTAG_SAMPLESPERPIXEL);

	TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &photometric);
	if (!bits || bits > BITS_MAX || is_multiplied(file))
		return false;
	if (photometric == PHOTOMETRIC_CIELAB)
		return bits >= 8 && count >= 3;
	if (photometric == PHOTOMETRIC_SEPARATED)
		return count >= 4 && tiff_field(file, TIFFTAG_INKSET) == INKSET_CMYK;
	if (bits == 8 || bits == 16)
		return false;
	if (photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE)
		return count > 1 || (bits != 1 && bits != 2 && bits != 4);
	return photometric == PHOTOMETRIC_RGB && count >= 3;
}

static void samples_init(struct samples *samples, TIFF *file, const struct image_info *info)
{
	*samples = (struct samples){
		.file = file,
		.width = info->width,
		.height = info->height,
		.block_width = info->width,
		.bits = tiff_field(file, TIFFTAG_BITSPERSAMPLE),
		.photometric = tiff_field(file, TIFFTAG_PHOTOMETRIC),
		.count = tiff_field(file, TIFFTAG_SAMPLESPERPIXEL),
		.planes = 1,
	};
	samples->colours = colours_of(samples->photometric);
	if (tiff_field(file, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE) {
		samples->planes = samples->colours;
		samples->count = 1;
	}
	if (TIFFIsTiled(file)) {
		TIFFGetField(file, TIFFTAG_TILEWIDTH, &samples->block_width);
		TIFFGetField(file, TIFFTAG_TILELENGTH, &samples->block_height);
		samples->row = (size_t)TIFFTileRowSize64(file);
		samples->size = (size_t)TIFFTileSize64(file);
		return;
	}
	TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &samples->block_height);
	if (samples->block_height > info->height)
		samples->block_height = info->height;
	samples->row = (size_t)TIFFScanlineSize64(file);
	samples->size = samples->row * samples->block_height;
}

static uint8_t *block_of(const struct samples *samples, uint16_t plane)
{
	return samples->blocks + plane * (samples->size + READ_AHEAD);
}

/* Reads the blocks that contain this pixel, one per plane; -EBADMSG if a block is incomplete. */
static int tiff_read_blocks(const struct samples *samples, uint32_t x, uint32_t y)
{
	uint32_t left = samples->height - y,
		 rows = left < samples->block_height ? left : samples->block_height;

	for (uint16_t plane = 0; plane < samples->planes; plane++) {
		bool tiled = TIFFIsTiled(samples->file);
		size_t wanted = tiled ? samples->size : samples->row * rows;
		uint8_t *block = block_of(samples, plane);
		tmsize_t got =
			tiled ? TIFFReadEncodedTile(samples->file,
						    TIFFComputeTile(samples->file, x, y, 0, plane),
						    block, (tmsize_t)wanted)
			      : TIFFReadEncodedStrip(samples->file,
						     TIFFComputeStrip(samples->file, y, plane),
						     block, (tmsize_t)wanted);
		if (got < 0 || (size_t)got < wanted)
			return -EBADMSG;
	}
	return 0;
}

/*
 * Returns a sample. Samples are packed from the highest bit of a byte on, whatever the file's byte
 * order; libtiff returns 16-bit samples in host order.
 */
static uint32_t sample_at(const uint8_t *row, uint32_t bits, size_t index)
{
	uint16_t whole;

	if (bits == 16) {
		memcpy(&whole, row + 2 * index, 2);
		return whole;
	}
	const uint8_t *at = row + index * bits / 8;
	uint32_t begin = index * bits % 8, value = (uint32_t)at[0] << 16 | at[1] << 8 | at[2];

	return value >> (24 - begin - bits) & ((1u << bits) - 1);
}

/* Converts a sample to 8 bits: takes the highest 8 bits, or scales narrower samples to 0 .. 255. */
static uint8_t byte_of(uint32_t value, uint32_t bits)
{
	return (uint8_t)(bits >= 8 ? value >> (bits - 8) : value * 255 / ((1u << bits) - 1));
}

/* Converts inks to RGB: reduces white by black, then by each ink. Rounds like Pillow. */
static void tiff_put_inks(const uint8_t *inks, uint8_t *rgb)
{
	int light = 255 - inks[3];

	for (int c = 0; c < 3; c++)
		rgb[c] = (uint8_t)(light - (inks[c] * light + 127) / 255);
}

static void tiff_put_pixel(const struct samples *samples, const uint8_t *colours, uint8_t *rgb)
{
	if (samples->photometric == PHOTOMETRIC_RGB)
		memcpy(rgb, colours, 3);
	else if (samples->photometric == PHOTOMETRIC_SEPARATED)
		tiff_put_inks(colours, rgb);
	else if (samples->photometric == PHOTOMETRIC_CIELAB) /* a* and b* are signed */
		cielab_rgb(samples->cielab,
			   (uint8_t[3]){colours[0], colours[1] ^ 128, colours[2] ^ 128}, rgb);
	else
		memset(rgb,
		       samples->photometric == PHOTOMETRIC_MINISWHITE ? 255 - *colours : *colours,
		       3);
}

static void put_row(const struct samples *samples, uint32_t row, uint32_t width, uint8_t *rgb)
{
	for (uint32_t x = 0; x < width; x++, rgb += 3) {
		uint8_t colours[COLOURS_MAX];

		for (uint16_t c = 0; c < samples->colours; c++) {
			const uint8_t *from =
				block_of(samples, samples->planes > 1 ? c : 0) + row * samples->row;
			size_t index = (size_t)x * samples->count + (samples->planes > 1 ? 0 : c);

			colours[c] = byte_of(sample_at(from, samples->bits, index), samples->bits);
		}
		tiff_put_pixel(samples, colours, rgb);
	}
}

static void tiff_put_block(const struct samples *samples, uint32_t x, uint32_t y, uint8_t *rgb)
{
	uint32_t right = samples->width - x, below = samples->height - y;
	uint32_t width = right < samples->block_width ? right : samples->block_width;

	for (uint32_t row = 0; row < samples->block_height && row < below; row++)
		put_row(samples, row, width, rgb + 3 * ((size_t)samples->width * (y + row) + x));
}

static int tiff_put_blocks(const struct samples *samples, uint8_t *rgb)
{
	for (uint32_t y = 0; y < samples->height; y += samples->block_height)
		for (uint32_t x = 0; x < samples->width; x += samples->block_width) {
			int r = tiff_read_blocks(samples, x, y);

			if (r)
				return r;
			tiff_put_block(samples, x, y, rgb);
		}
	return 0;
}

int tiff_samples_read(TIFF *file, const struct image_info *info, uint64_t memory_max, uint8_t *rgb)
{
	struct samples samples;

	samples_init(&samples, file, info);
	if (!samples.block_width || !samples.block_height || !samples.size)
		return -EBADMSG;
	if (samples.size > memory_max / samples.planes - READ_AHEAD)
		return -E2BIG;
	samples.blocks = calloc(samples.planes, samples.size + READ_AHEAD);
	if (samples.photometric == PHOTOMETRIC_CIELAB)
		samples.cielab = malloc(sizeof(*samples.cielab));
	if (samples.cielab)
		cielab_init(samples.cielab);
	int r = samples.blocks && (samples.cielab || samples.photometric != PHOTOMETRIC_CIELAB)
			? tiff_put_blocks(&samples, rgb)
			: -ENOMEM;
	free(samples.blocks);
	free(samples.cielab);
	return r;
}
