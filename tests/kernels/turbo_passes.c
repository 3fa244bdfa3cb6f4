#include "tests/kernels/turbo_passes.h"

#include "tests/unit/format/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { PASSES = 300, ROWS_MAX = 16, COMPONENTS = 3 };

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Reads as many rows as a block has at once, always to the same buffer. */
static void read_raw(struct jpeg_decompress_struct *cinfo)
{
	static uint8_t samples[COMPONENTS][ROWS_MAX][TURBO_PASS_WIDTH + 64];
	JSAMPROW rows[COMPONENTS][ROWS_MAX];
	JSAMPARRAY planes[COMPONENTS] = {rows[0], rows[1], rows[2]};

	for (int c = 0; c < COMPONENTS; c++)
		for (int y = 0; y < ROWS_MAX; y++)
			rows[c][y] = samples[c][y];
	while (cinfo->output_scanline < cinfo->output_height)
		jpeg_read_raw_data(cinfo, planes, ROWS_MAX);
}

static void read_rgb(struct jpeg_decompress_struct *cinfo, uint8_t *pixels)
{
	while (cinfo->output_scanline < cinfo->output_height) {
		JSAMPROW rows[ROWS_MAX];

		for (unsigned y = 0; y < ROWS_MAX; y++)
			rows[y] = pixels +
				  (size_t)(cinfo->output_scanline + y) * TURBO_PASS_WIDTH * 3;
		jpeg_read_scanlines(cinfo, rows, ROWS_MAX);
	}
}

/* Starts decompression and reads all coefficients. */
static void begin(struct jpeg_decompress_struct *cinfo, const struct turbo_pass *pass,
		  const uint8_t *data, size_t size)
{
	jpeg_create_decompress(cinfo);
	jpeg_mem_src(cinfo, data, size);
	jpeg_read_header(cinfo, TRUE);
	cinfo->buffered_image = TRUE;
	cinfo->raw_data_out = pass->raw;
	cinfo->dct_method = JDCT_ISLOW;
	cinfo->scale_num = 1;
	cinfo->scale_denom = pass->denominator;
	if (!pass->raw)
		cinfo->out_color_space = JCS_RGB;
	jpeg_start_decompress(cinfo);
	while (jpeg_consume_input(cinfo) != JPEG_REACHED_EOI)
		;
}

static bool as_plain(const uint8_t *pixels, const uint8_t *data, size_t size)
{
	uint32_t width, height;
	int components;
	uint8_t *plain = image_decode_plain(data, size, 1, &width, &height, &components);
	bool same = memcmp(plain, pixels, (size_t)width * height * 3) == 0;

	free(plain);
	if (!same)
		fprintf(stderr, "libjpeg-turbo's passes over coefficients make other pixels than "
				"it makes of the file\n");
	return same;
}

double turbo_pass_ns(const struct turbo_pass *pass)
{
	struct jpeg_kind kind = {.components = pass->components, .h = pass->h, .v = pass->v};
	static uint8_t pixels[TURBO_PASS_WIDTH * (TURBO_PASS_HEIGHT + ROWS_MAX) * 3];
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	double best = 1e18;
	size_t size;
	uint8_t *data = image_jpeg(TURBO_PASS_WIDTH, TURBO_PASS_HEIGHT, &kind, 1, &size);

	cinfo.err = jpeg_std_error(&errors);
	begin(&cinfo, pass, data, size);
	for (int i = 0; i < PASSES; i++) {
		double start = cpu_ns();

		jpeg_start_output(&cinfo, cinfo.input_scan_number);
		if (pass->raw)
			read_raw(&cinfo);
		else
			read_rgb(&cinfo, pixels);
		jpeg_finish_output(&cinfo);
		double time = cpu_ns() - start;

		best = time < best ? time : best;
	}
	if (!pass->raw && !as_plain(pixels, data, size))
		best = -1;
	jpeg_destroy_decompress(&cinfo);
	free(data);
	return best;
}
