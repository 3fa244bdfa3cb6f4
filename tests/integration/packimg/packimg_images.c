/*
 * Draws the images for packimg's tests into the directory named on the command line:
 *   tree/{ant,bee,cat}/NN.jpg   ordinary JPEGs of many sizes
 *   kinds/{one,two}/...         every kind of source that packimg reads
 *   bad/x/...                   invalid or incomplete image files, and a good one
 */
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h> /* requires stdio.h before it */

#if HAVE_PNG
#include <spng.h>
#endif
#if HAVE_WEBP
#include <webp/encode.h>
#endif

static const char *root;
static struct packimg_encoder *encoder;

static void die(const char *what)
{
	fprintf(stderr, "packimg_images: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void write_file(const char *name, const void *data, size_t size)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0777) && errno != EEXIST)
			die(path);
		*slash = '/';
	}
	file = fopen(path, "wb");
	if (!file || (size && fwrite(data, size, 1, file) != 1) || fclose(file))
		die(path);
}

/* Draws a colour ramp with some structure; different seeds give different images. */
static uint8_t *draw(uint32_t width, uint32_t height, uint32_t channels, uint32_t seed)
{
	uint8_t *pixels = malloc((size_t)width * height * channels), *p = pixels;

	if (!pixels)
		die("memory");
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < channels; c++)
				*p++ = (uint8_t)(40 + 120 * x / width + 60 * y / height +
						 ((x / 5 + y / 7 + c + seed) % 4) * 8 + seed % 16);
	return pixels;
}

static const uint8_t *encode(uint32_t width, uint32_t height, uint32_t channels, uint32_t seed,
			     size_t *ret_size)
{
	uint8_t *pixels = draw(width, height, channels, seed);
	const uint8_t *data;

	if (packimg_encode_jpeg(encoder, pixels, (size_t)width * channels, width, height, channels,
				90, false, &data, ret_size))
		die("encoder");
	free(pixels);
	return data;
}

static void write_jpeg(const char *name, uint32_t width, uint32_t height, uint32_t channels,
		       uint32_t seed)
{
	size_t size;
	const uint8_t *data = encode(width, height, channels, seed, &size);

	write_file(name, data, size);
}

static void write_oriented(const char *name, uint8_t orientation)
{
	const uint8_t exif[] = {0xff, 0xe1, 0, 34, 'E', 'x',         'i', 'f', 0, 0,    'M', 'M',
				0,    '*',  0, 0,  0,   8,           0,   1,   1, 0x12, 0,   3,
				0,    0,    0, 1,  0,   orientation, 0,   0,   0, 0,    0,   0};
	struct buffer file = {0};
	const uint8_t *data;
	size_t size;

	data = encode(40, 20, 3, 5, &size);
	if (buffer_append(&file, data, 2) || buffer_append(&file, exif, sizeof(exif)) ||
	    buffer_append(&file, data + 2, size - 2))
		die("memory");
	write_file(name, file.data, file.size);
	buffer_deinit(&file);
}

/*
 * Writes JPEGs that the library's encoder does not produce: CMYK, progressive scans, or restart
 * intervals of a given number of MCUs.
 */
static void write_special(const char *name, J_COLOR_SPACE space, int components, bool progressive,
			  unsigned restart)
{
	enum { WIDTH = 48, HEIGHT = 32 };
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	uint8_t *pixels = draw(WIDTH, HEIGHT, (uint32_t)components, 9);
	unsigned char *data = NULL;
	unsigned long size = 0;

	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &data, &size);
	jpeg.image_width = WIDTH;
	jpeg.image_height = HEIGHT;
	jpeg.input_components = components;
	jpeg.in_color_space = space;
	jpeg_set_defaults(&jpeg);
	if (progressive)
		jpeg_simple_progression(&jpeg);
	jpeg.restart_interval = restart;
	jpeg_start_compress(&jpeg, TRUE);
	while (jpeg.next_scanline < HEIGHT) {
		JSAMPROW row = pixels + (size_t)jpeg.next_scanline * WIDTH * (size_t)components;

		jpeg_write_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	write_file(name, data, size);
	free(data);
	free(pixels);
}

#if HAVE_PNG
static void write_png(const char *name, uint8_t color_type, uint8_t depth, uint32_t bytes_per_pixel)
{
	struct spng_ihdr header = {
		.width = 30, .height = 50, .bit_depth = depth, .color_type = color_type};
	struct spng_plte palette = {.n_entries = 256};
	uint8_t *pixels = draw(header.width, header.height, bytes_per_pixel, 3);
	spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
	void *data;
	size_t size;
	int r;

	for (unsigned i = 0; i < 256; i++)
		palette.entries[i] =
			(struct spng_plte_entry){(uint8_t)i, (uint8_t)(255 - i), 99, 0};
	spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
	if (spng_set_ihdr(png, &header) ||
	    (color_type == SPNG_COLOR_TYPE_INDEXED && spng_set_plte(png, &palette)) ||
	    spng_encode_image(png, pixels, (size_t)header.width * header.height * bytes_per_pixel,
			      SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE))
		die("PNG encoder");
	data = spng_get_png_buffer(png, &size, &r);
	write_file(name, data, size);
	free(data);
	spng_ctx_free(png);
	free(pixels);
}
#endif

static void draw_tree(void)
{
	static const char *const classes[] = {"ant", "bee", "cat"};
	char name[64];

	for (uint32_t c = 0; c < 3; c++) {
		for (uint32_t i = 0; i < 12; i++) {
			uint32_t width = 16 + (c * 37 + i * 53) % 150,
				 height = 16 + (c * 71 + i * 29) % 150;

			snprintf(name, sizeof(name), "tree/%s/%02u.jpg", classes[c], i);
			write_jpeg(name, width, height, i == 7 ? 1 : 3, c * 12 + i);
		}
	}
}

static void draw_kinds(void)
{
	write_jpeg("kinds/one/grey.jpg", 33, 21, 1, 1);
	write_jpeg("kinds/one/Upper.JPEG", 33, 21, 3, 1);
	write_oriented("kinds/one/upright.jpg", 1);
	write_oriented("kinds/one/turned.jpg", 6);
	write_special("kinds/two/cmyk.jpg", JCS_CMYK, 4, false, 0);
	write_special("kinds/two/progressive.jpg", JCS_RGB, 3, true, 0);
	/* a row has 3 MCUs: the first file can have an index, the second cannot */
	write_special("kinds/two/restart-row.jpg", JCS_RGB, 3, false, 3);
	write_special("kinds/two/restart-within.jpg", JCS_RGB, 3, false, 2);
#if HAVE_PNG
	write_png("kinds/two/rgb.png", SPNG_COLOR_TYPE_TRUECOLOR, 8, 3);
	write_png("kinds/two/alpha.png", SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, 4);
	write_png("kinds/two/deep.png", SPNG_COLOR_TYPE_TRUECOLOR, 16, 6);
	write_png("kinds/two/grey.png", SPNG_COLOR_TYPE_GRAYSCALE, 8, 1);
	write_png("kinds/two/palette.png", SPNG_COLOR_TYPE_INDEXED, 8, 1);
#endif
#if HAVE_WEBP
	uint8_t *pixels = draw(60, 40, 3, 2), *made;
	size_t size = WebPEncodeRGB(pixels, 60, 40, 180, 90, &made);

	write_file("kinds/two/photo.webp", made, size);
	WebPFree(made);
	free(pixels);
#endif
}

static void draw_bad(void)
{
	size_t size;
	const uint8_t *data = encode(100, 80, 3, 4, &size);
	uint8_t *broken = malloc(size);

	if (!broken)
		die("memory");
	write_file("bad/x/good.jpg", data, size);
	write_file("bad/x/truncated.jpg", data, size / 2);
	write_file("bad/x/empty.jpg", "", 0);
	write_file("bad/x/text.jpg", "this is no image\n", 17);
	write_file("bad/x/gif.jpg", "GIF89a\1\0\1\0\0\0\0;", 14);
	write_file("bad/x/header.png", "\x89PNG\r\n\x1a\n", 8);
	/* All markers are present, but the scan is damaged. */
	memcpy(broken, data, size);
	memset(broken + size * 3 / 4, 0, size / 8);
	write_file("bad/x/scan.jpg", broken, size);
	memcpy(broken, data, size);
	/* sample precision: follows the marker and length of the frame header */
	((uint8_t *)memmem(broken, size, "\xff\xc0", 2))[4] = 12;
	write_file("bad/x/twelve.jpg", broken, size);
	free(broken);
}

/* pairs.pimg: four samples, of which three have two JPEGs and one has one; none has an index. */
static void write_pairs(void)
{
	struct packimg_writer *writer;
	char path[4096];

	snprintf(path, sizeof(path), "%s/pairs.pimg", root);
	if (packimg_writer_new(path, NULL, &writer, NULL) ||
	    packimg_writer_schema(writer, "left: image\nright: image u8[h,w,3] sparse\n", NULL))
		die("pairs.pimg");
	for (uint32_t i = 0; i < 7; i++) {
		struct packimg_item item = {
			.width = 64,
			.height = 64,
			.label = PACKIMG_LABEL_NONE,
			.codec = PACKIMG_CODEC_JPEG,
			.channels = 3,
			.orientation = 1,
		};

		item.data = encode(64, 64, 3, i, &item.data_size);
		if (i % 2 ? packimg_writer_image(writer, 0, &item, NULL)
			  : packimg_writer_add(writer, &item, NULL))
			die("pairs.pimg");
	}
	if (packimg_writer_finish(writer, NULL))
		die("pairs.pimg");
	packimg_writer_free(writer);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: packimg_images FOLDER\n");
		return 2;
	}
	root = argv[1];
	if (packimg_encoder_new(&encoder))
		die("encoder");
	draw_tree();
	draw_kinds();
	draw_bad();
	write_pairs();
	packimg_encoder_free(encoder);
	return 0;
}
