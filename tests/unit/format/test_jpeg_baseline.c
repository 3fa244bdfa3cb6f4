/* Our baseline decoder against libjpeg-turbo: equal pixels, whole images and regions, and errors instead of harm. */
#include "jpeg_baseline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct picture {
	unsigned char *jpeg;
	unsigned long jpeg_size;
	uint8_t *pixels; /* as libjpeg-turbo decodes it */
	uint32_t width, height, components;
	uint8_t *index; /* NULL: none */
	size_t index_size;
};

struct coding {
	int components, h, v, quality, restart;
	bool optimise, progressive;
};

static uint32_t state = 1;

static uint32_t draw(uint32_t bound)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)state * bound >> 32);
}

/* Smooth areas, edges and noise, so that blocks are empty, sparse and full. */
static void paint(uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels)
{
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < channels; c++) {
				uint32_t value = x * (c + 1) + y * 2;

				if (x > width / 2)
					value = (x / 5 + y / 7) & 1 ? 250 : 5 + 40 * c;
				if (y > height / 2)
					value = draw(256);
				*pixels++ = (uint8_t)value;
			}
}

static void encode(struct picture *picture, const struct coding *coding)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	uint8_t *pixels = malloc((size_t)picture->width * picture->height * 3);

	paint(pixels, picture->width, picture->height, (uint32_t)coding->components);
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	picture->jpeg = NULL;
	jpeg_mem_dest(&c, &picture->jpeg, &picture->jpeg_size);
	c.image_width = picture->width;
	c.image_height = picture->height;
	c.input_components = coding->components;
	c.in_color_space = coding->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, coding->quality, FALSE);
	c.comp_info[0].h_samp_factor = coding->h;
	c.comp_info[0].v_samp_factor = coding->v;
	c.restart_interval = (unsigned)coding->restart;
	c.optimize_coding = coding->optimise;
	if (coding->progressive)
		jpeg_simple_progression(&c);
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height) {
		JSAMPROW row = pixels + (size_t)c.next_scanline * picture->width *
						(unsigned)coding->components;
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	free(pixels);
}

static void decode_reference(struct picture *picture)
{
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;

	d.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&d);
	jpeg_mem_src(&d, picture->jpeg, picture->jpeg_size);
	jpeg_read_header(&d, TRUE);
	d.out_color_space = JCS_RGB;
	jpeg_start_decompress(&d);
	picture->pixels = malloc((size_t)picture->width * picture->height * 3);
	while (d.output_scanline < d.output_height) {
		JSAMPROW row = picture->pixels + (size_t)d.output_scanline * picture->width * 3;
		jpeg_read_scanlines(&d, &row, 1);
	}
	jpeg_finish_decompress(&d);
	jpeg_destroy_decompress(&d);
}

static struct picture make(uint32_t width, uint32_t height, const struct coding *coding)
{
	struct picture picture = {
		.width = width, .height = height, .components = (uint32_t)coding->components};

	encode(&picture, coding);
	decode_reference(&picture);
	return picture;
}

static void drop(struct picture *picture)
{
	free(picture->jpeg);
	free(picture->pixels);
	free(picture->index);
	*picture = (struct picture){0};
}

static int decode(struct jpeg_baseline *decoder, const struct picture *picture, bool indexed,
		  uint32_t x, uint32_t y, uint32_t width, uint32_t height,
		  const uint8_t **ret_pixels)
{
	struct jpeg_source source = {
		.data = picture->jpeg,
		.size = picture->jpeg_size,
		.index = indexed ? picture->index : NULL,
		.index_size = picture->index_size,
		.width = picture->width,
		.height = picture->height,
		.components = picture->components,
	};

	return jpeg_baseline_decode(decoder, &source, x, y, width, height, ret_pixels);
}

static int make_index(struct jpeg_baseline *decoder, struct picture *picture)
{
	struct jpeg_source source = {
		.data = picture->jpeg,
		.size = picture->jpeg_size,
		.width = picture->width,
		.height = picture->height,
		.components = picture->components,
	};
	const uint8_t *index;
	int r = jpeg_baseline_index(decoder, &source, &index, &picture->index_size);

	if (r == 0) {
		picture->index = malloc(picture->index_size);
		memcpy(picture->index, index, picture->index_size);
	}
	return r;
}

static void check_region(struct jpeg_baseline *decoder, const struct picture *picture, uint32_t x,
			 uint32_t y, uint32_t width, uint32_t height)
{
	for (int indexed = 0; indexed <= (picture->index != NULL); indexed++) {
		const uint8_t *pixels;

		assert_int_equal(decode(decoder, picture, indexed, x, y, width, height, &pixels),
				 0);
		for (uint32_t row = 0; row < height; row++)
			assert_memory_equal(pixels + (size_t)row * width * 3,
					    picture->pixels +
						    ((size_t)(y + row) * picture->width + x) * 3,
					    3 * (size_t)width);
	}
}

static const uint8_t samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

static void test_equal_pixels(void **unused)
{
	struct jpeg_baseline *decoder;
	static const uint32_t sizes[][2] = {{5, 3},   {8, 8},	 {16, 16}, {17, 31},
					    {64, 48}, {131, 77}, {200, 9}};

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned s = 0; s < 5; s++)
			for (unsigned k = 0; k < 6; k++) {
				struct coding coding = {
					.components = s == 4 ? 1 : 3,
					.h = s == 4 ? 1 : samplings[s][0],
					.v = s == 4 ? 1 : samplings[s][1],
					.quality = (int[]){30, 75, 90, 96, 100, 90}[k],
					.restart = (int[]){0, 0, 1, 3, 0, 7}[k],
					.optimise = k & 1,
				};
				struct picture picture = make(sizes[i][0], sizes[i][1], &coding);

				assert_int_equal(make_index(decoder, &picture),
						 coding.restart ? -ENOTSUP : 0);
				check_region(decoder, &picture, 0, 0, picture.width,
					     picture.height);
				for (unsigned n = 0; n < 20; n++) {
					uint32_t w = 1 + draw(picture.width),
						 h = 1 + draw(picture.height);

					check_region(decoder, &picture, draw(picture.width - w + 1),
						     draw(picture.height - h + 1), w, h);
				}
				drop(&picture);
			}
	jpeg_baseline_free(decoder);
}

static void test_leaves_the_rest(void **unused)
{
	struct jpeg_baseline *decoder;
	struct coding coding = {
		.components = 3, .h = 2, .v = 2, .quality = 90, .progressive = true};
	struct picture picture = make(40, 40, &coding);
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -ENOTSUP);
	assert_int_equal(make_index(decoder, &picture), -ENOTSUP);
	drop(&picture);
	coding.progressive = false;
	picture = make(40, 40, &coding);
	assert_int_equal(decode(decoder, &picture, false, 1, 0, 40, 40, &pixels), -EINVAL);
	picture.height = 41;
	assert_int_equal(decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -EBADMSG);
	drop(&picture);
	jpeg_baseline_free(decoder);
}

/* Every truncation fails when the last rows are asked for; flipped bytes do no harm (the sanitizers watch). */
static void test_damaged_scan(void **unused)
{
	struct jpeg_baseline *decoder;
	struct coding coding = {
		.components = 3, .h = 2, .v = 1, .quality = 85, .restart = 4, .optimise = true};
	struct picture picture = make(90, 50, &coding), broken = picture;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	for (size_t size = 0; size + 4 < picture.jpeg_size; size++) {
		broken.jpeg = malloc(size ? size : 1); /* so that reading beyond it is seen */
		broken.jpeg_size = size;
		memcpy(broken.jpeg, picture.jpeg, size);
		assert_true(decode(decoder, &broken, false, 0, 0, 90, 50, &pixels) < 0);
		assert_true(make_index(decoder, &broken) < 0);
		free(broken.jpeg);
	}
	broken.jpeg_size = picture.jpeg_size;
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			broken.jpeg[draw((uint32_t)picture.jpeg_size)] = (unsigned char)draw(256);
		decode(decoder, &broken, false, 3, 5, 60, 40, &pixels);
	}
	free(broken.jpeg);
	drop(&picture);
	jpeg_baseline_free(decoder);
}

/* A wrong index, a wrong scan under a right one: an error or pixels, never harm. */
static void test_damaged_index(void **unused)
{
	struct jpeg_baseline *decoder;
	struct coding coding = {.components = 3, .h = 2, .v = 2, .quality = 92, .optimise = true};
	struct picture picture = make(150, 190, &coding), broken;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(make_index(decoder, &picture), 0);
	broken = picture;
	broken.index_size--;
	assert_int_equal(decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = 0;
	assert_int_equal(decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = picture.index_size;
	broken.index = malloc(picture.index_size);
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		memcpy(broken.index, picture.index, picture.index_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			if (n & 1)
				broken.index[draw((uint32_t)broken.index_size)] =
					(uint8_t)draw(256);
			else
				broken.jpeg[draw((uint32_t)picture.jpeg_size)] =
					(unsigned char)draw(256);
		decode(decoder, &broken, true, 10, 20, 100, 150, &pixels);
	}
	free(broken.index);
	free(broken.jpeg);
	drop(&picture);
	jpeg_baseline_free(decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_pixels),
		cmocka_unit_test(test_leaves_the_rest),
		cmocka_unit_test(test_damaged_scan),
		cmocka_unit_test(test_damaged_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
