/*
 * Source images of every kind decode to the same upright 8-bit RGB or grey pixels; truncated and
 * foreign files are refused.
 */
#include "format/base/exif.h"
#include "tests/test.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/image/raster_file.h"
#include "tools/packimg/image/sample_encoder.h"

#if HAVE_AVIF
#include <avif/avif.h>
#endif
#if HAVE_PNG
#include <spng.h>
#endif
#if HAVE_WEBP
#include <webp/encode.h>
#endif

enum {
	WIDTH = 13,
	HEIGHT = 9,
};

/* Fills a smooth colour ramp, which JPEG preserves well, with a different colour in each corner. */
static void fill(uint8_t *rgb, uint32_t width, uint32_t height)
{
	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			*rgb++ = (uint8_t)(20 + 200 * x / width);
			*rgb++ = (uint8_t)(30 + 200 * y / height);
			*rgb++ = (uint8_t)(40 + 100 * (x + y) / (width + height));
		}
	}
}

/* Copies the data and appends the padding that readers require. */
static uint8_t *pad(const void *data, size_t size)
{
	uint8_t *copy = calloc(1, size + IMAGE_PADDING);

	memcpy(copy, data, size);
	return copy;
}

TEST(orientations)
{
	/*
	 * Upright positions of the stored pixels (0, 0) and (1, 0) per EXIF orientation. The stored
	 * image is 3 x 2.
	 */
	static const struct {
		uint32_t x0, y0, x1, y1;
	} expected[9] = {
		{0},          {0, 0, 1, 0}, {2, 0, 1, 0}, {2, 1, 1, 1}, {0, 1, 1, 1},
		{0, 0, 0, 1}, {1, 0, 1, 1}, {1, 2, 1, 1}, {0, 2, 0, 1},
	};
	static const uint8_t stored[6] = {1, 2, 3, 4, 5, 6};

	for (uint8_t o = 1; o <= 8; o++) {
		uint32_t width = o >= 5 ? 2 : 3;
		uint8_t upright[6];

		image_orient(stored, 3, 2, 1, o, upright);
		assert_int_equal(upright[expected[o].y0 * width + expected[o].x0], 1);
		assert_int_equal(upright[expected[o].y1 * width + expected[o].x1], 2);
	}
}

TEST(exif)
{
	uint8_t little[] = {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1,
			    3,   0,   1,   0, 0, 0, 6, 0, 0, 0, 0,    0};
	uint8_t big[] = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12,
			 0,   3,   0, 0,   0, 1, 0, 8, 0, 0, 0, 0};

	assert_int_equal(exif_orientation(little, sizeof(little)), 6);
	assert_int_equal(exif_orientation(big, sizeof(big)), 8);
	big[19] = 9;
	assert_int_equal(exif_orientation(big, sizeof(big)), 1);
	little[4] = 0xff;
	assert_int_equal(exif_orientation(little, sizeof(little)), 0);
	for (size_t size = 0; size < 22; size++)
		assert_int_equal(exif_orientation(big, size), 0);
}

static void read_all(const uint8_t *data, size_t size, struct image_info *info,
		     struct image_reader *reader, struct resize_picture *pixels)
{
	struct packimg_error error = {{0}};

	int r = image_probe(data, size, info, &error);
	if (!r)
		r = image_read(reader, data, size, info, NULL, 0, 0, pixels, &error);
	if (r)
		fail_msg("%s", error.text);
}

static void make_jpeg(struct packimg_encoder *encoder, uint32_t channels, const uint8_t **data,
		      size_t *size)
{
	uint8_t pixels[WIDTH * HEIGHT * 3];

	fill(pixels, WIDTH, HEIGHT);
	assert_int_equal(packimg_encode_jpeg(encoder, pixels, WIDTH * channels, WIDTH, HEIGHT,
					     channels, 95, false, data, size),
			 0);
}

/* Inserts an EXIF segment with this orientation after the JPEG's first marker. */
static uint8_t *with_orientation(const uint8_t *data, size_t size, uint8_t orientation,
				 size_t *ret_size)
{
	const uint8_t exif[] = {0xff, 0xe1, 0, 34, 'E', 'x',         'i', 'f', 0, 0,    'M', 'M',
				0,    '*',  0, 0,  0,   8,           0,   1,   1, 0x12, 0,   3,
				0,    0,    0, 1,  0,   orientation, 0,   0,   0, 0,    0,   0};
	uint8_t *made = calloc(1, size + sizeof(exif) + IMAGE_PADDING);

	memcpy(made, data, 2);
	memcpy(made + 2, exif, sizeof(exif));
	memcpy(made + 2 + sizeof(exif), data + 2, size - 2);
	*ret_size = size + sizeof(exif);
	return made;
}

TEST(jpeg)
{
	struct packimg_encoder *encoder;
	struct image_reader reader;
	struct image_info info;
	struct resize_picture pixels;
	uint8_t expected[WIDTH * HEIGHT * 3];
	const uint8_t *data;
	size_t size;

	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(image_reader_init(&reader), 0);
	fill(expected, WIDTH, HEIGHT);
	make_jpeg(encoder, 3, &data, &size);
	uint8_t *padded = with_orientation(data, size, 6, &size);
	read_all(padded, size, &info, &reader, &pixels);
	assert_int_equal(info.orientation, 6);
	assert_int_equal(pixels.width, HEIGHT);
	assert_int_equal(pixels.height, WIDTH);
	/* The stored top left pixel is at the upright top right. */
	assert_in_range(pixels.data[(HEIGHT - 1) * 3 + 0], expected[0] - 12, expected[0] + 12);
	assert_in_range(pixels.data[(HEIGHT - 1) * 3 + 1], expected[1] - 12, expected[1] + 12);
	free(padded);
	make_jpeg(encoder, 1, &data, &size);
	padded = pad(data, size);
	read_all(padded, size, &info, &reader, &pixels);
	assert_int_equal(info.channels, 1);
	assert_int_equal(pixels.channels, 1);
	assert_int_equal(pixels.stride, WIDTH);
	free(padded);
	image_reader_deinit(&reader);
	packimg_encoder_free(encoder);
}

TEST(foreign)
{
	struct packimg_error error;
	struct image_info info;

	assert_int_equal(image_probe((const uint8_t *)"\0\0\0\x0cJXL ........", 16, &info, &error),
			 -ENOTSUP);
	assert_non_null(strstr(error.text, "JPEG XL image; what is read is JPEG, "));
	assert_int_equal(image_probe((const uint8_t *)"", 0, &info, &error), -EBADMSG);
	assert_int_equal(image_probe((const uint8_t *)"hello", 5, &info, &error), -EBADMSG);
	assert_int_equal(image_probe((const uint8_t *)"\xff\xd8\xff", 3, &info, &error), -EBADMSG);
	assert_int_equal(image_probe((const uint8_t *)"\x89PNG\r\n\x1a\n", 8, &info, &error),
			 HAVE_PNG ? -EBADMSG : -ENOTSUP);
	assert_int_equal(image_probe((const uint8_t *)"RIFF\0\0\0\0WEBP", 12, &info, &error),
			 HAVE_WEBP ? -EBADMSG : -ENOTSUP);
}

#if HAVE_PNG
/* Makes a PNG of raw samples of this colour type, with a palette of 3 colours if it is indexed. */
static uint8_t *make_png(uint8_t color_type, uint8_t depth, const void *samples, size_t bytes,
			 size_t *ret_size)
{
	struct spng_ihdr header = {
		.width = WIDTH, .height = HEIGHT, .bit_depth = depth, .color_type = color_type};
	struct spng_plte palette = {.n_entries = 3};
	spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
	uint8_t *data, *padded;
	int r;

	palette.entries[1] = (struct spng_plte_entry){10, 20, 30, 0};
	palette.entries[2] = (struct spng_plte_entry){200, 150, 100, 0};
	spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
	assert_int_equal(spng_set_ihdr(png, &header), 0);
	if (color_type == SPNG_COLOR_TYPE_INDEXED)
		assert_int_equal(spng_set_plte(png, &palette), 0);
	assert_int_equal(spng_encode_image(png, samples, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
			 0);
	data = spng_get_png_buffer(png, ret_size, &r);
	assert_non_null(data);
	spng_ctx_free(png);
	padded = pad(data, *ret_size);
	free(data);
	return padded;
}

TEST(png)
{
	struct image_reader reader;
	struct image_info info;
	struct resize_picture pixels;
	uint8_t rgb[WIDTH * HEIGHT * 3], rgba[WIDTH * HEIGHT * 4], index[WIDTH * HEIGHT];
	uint16_t deep[WIDTH * HEIGHT * 3];
	size_t size;

	assert_int_equal(image_reader_init(&reader), 0);
	fill(rgb, WIDTH, HEIGHT);
	for (int i = 0; i < WIDTH * HEIGHT; i++) {
		memcpy(rgba + 4 * i, rgb + 3 * i, 3);
		rgba[4 * i + 3] = (uint8_t)i; /* alpha is dropped, not blended */
		index[i] = (uint8_t)(i % 3);
	}
	for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
		deep[i] = (uint16_t)(rgb[i] << 8 | 0xc0); /* spng expects native byte order */
	uint8_t *data = make_png(SPNG_COLOR_TYPE_TRUECOLOR, 8, rgb, sizeof(rgb), &size);
	read_all(data, size, &info, &reader, &pixels);
	assert_memory_equal(pixels.data, rgb, sizeof(rgb));
	free(data);
	data = make_png(SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, rgba, sizeof(rgba), &size);
	read_all(data, size, &info, &reader, &pixels);
	assert_int_equal(pixels.channels, 3);
	assert_memory_equal(pixels.data, rgb, sizeof(rgb));
	free(data);
	data = make_png(SPNG_COLOR_TYPE_TRUECOLOR, 16, deep, sizeof(deep), &size);
	read_all(data, size, &info, &reader, &pixels);
	assert_memory_equal(pixels.data, rgb, sizeof(rgb));
	free(data);
	data = make_png(SPNG_COLOR_TYPE_INDEXED, 8, index, sizeof(index), &size);
	read_all(data, size, &info, &reader, &pixels);
	assert_int_equal(pixels.channels, 3);
	assert_memory_equal(pixels.data + 3, "\x0a\x14\x1e\xc8\x96\x64", 6);
	free(data);
	data = make_png(SPNG_COLOR_TYPE_GRAYSCALE, 8, index, sizeof(index), &size);
	read_all(data, size, &info, &reader, &pixels);
	assert_int_equal(pixels.channels, 1);
	assert_memory_equal(pixels.data, index, sizeof(index));
	/*
	 * A file truncated before the end of the last IDAT chunk must fail, and never give an
	 * image.
	 */
	for (size_t cut = 8; cut < size - 16; cut++) {
		struct packimg_error error;

		if (!image_probe(data, cut, &info, &error))
			assert_int_equal(
				image_read(&reader, data, cut, &info, NULL, 0, 0, &pixels, &error),
				-EBADMSG);
	}
	free(data);
	image_reader_deinit(&reader);
}

TEST(png_round_trip)
{
	struct image_reader reader;
	struct image_info info;
	struct resize_picture pixels;
	struct packimg_error error;
	struct buffer png = {0};
	uint8_t rgb[WIDTH * HEIGHT * 3];

	assert_int_equal(image_reader_init(&reader), 0);
	fill(rgb, WIDTH, HEIGHT);
	for (uint32_t channels = 1; channels <= 3; channels += 2) {
		const struct resize_picture written = {.data = rgb,
						       .stride = (size_t)WIDTH * channels,
						       .width = WIDTH,
						       .height = HEIGHT,
						       .channels = channels};
		assert_int_equal(image_write_png(&written, &png, &error), 0);
		read_all(png.data, png.size, &info, &reader, &pixels);
		assert_int_equal(pixels.channels, channels);
		assert_memory_equal(pixels.data, rgb, WIDTH * HEIGHT * channels);
	}
	buffer_deinit(&png);
	image_reader_deinit(&reader);
}
#endif

/* Rasters that PNG cannot store are written as .npy, upright. */
TEST(npy)
{
	static const int32_t elements[6] = {1, -2, 3, 4, 5, 1 << 30};
	static const int32_t upright[6] = {1 << 30, 5, 4, 3, -2, 1};
	/* rotated by 180 degrees: from the last element backwards */
	const struct packimg_raster raster = {
		.data = (const uint8_t *)&elements[5],
		.step_x = -4,
		.step_y = -12,
		.width = 3,
		.height = 2,
		.channels = 1,
		.element = PACKIMG_ELEMENT_I32,
	};
	static const char head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
	struct packimg_error error;
	struct buffer file = {0};

	assert_int_equal(raster_file_write(&raster, &file, &error), 0);
	assert_int_equal(file.size, 128 + sizeof(upright));
	assert_memory_equal(file.data, "\x93NUMPY\x01\0\x76\0", 10);
	assert_memory_equal(file.data + 10, head, strlen(head));
	assert_int_equal(file.data[127], '\n');
	assert_memory_equal(file.data + 128, upright, sizeof(upright));
	assert_string_equal(raster_file_ending(PACKIMG_ELEMENT_U16, 3), ".png");
	assert_string_equal(raster_file_ending(PACKIMG_ELEMENT_U16, 2), ".npy");
	buffer_deinit(&file);
}

#if HAVE_WEBP
TEST(webp)
{
	struct image_reader reader;
	struct image_info info;
	struct resize_picture pixels;
	struct packimg_error error;
	uint8_t rgb[WIDTH * HEIGHT * 3], *made = NULL;

	fill(rgb, WIDTH, HEIGHT);
	size_t size = WebPEncodeLosslessRGB(rgb, WIDTH, HEIGHT, WIDTH * 3, &made);
	assert_int_not_equal(size, 0);
	uint8_t *data = pad(made, size);
	WebPFree(made);
	assert_int_equal(image_reader_init(&reader), 0);
	read_all(data, size, &info, &reader, &pixels);
	assert_memory_equal(pixels.data, rgb, sizeof(rgb));
	assert_int_equal(image_read(&reader, data, size / 2, &info, NULL, 0, 0, &pixels, &error),
			 -EBADMSG);
	image_reader_deinit(&reader);
	free(data);
}
#endif

/*
 * The file declares 64 x 64 pixels but contains an image of 4 megapixels, which the library would
 * scale down. It must not be decoded if that exceeds the memory limit.
 */
TEST(avif_larger_inside)
{
#if HAVE_AVIF
	enum { SIDE = 2048 };
	struct packimg_error error = {{0}};
	struct resize_picture pixels;
	struct image_reader reader;
	struct image_info info;
	avifImage *image = avifImageCreate(SIDE, SIDE, 8, AVIF_PIXEL_FORMAT_YUV400);
	avifEncoder *encoder = avifEncoderCreate();
	avifRWData file = AVIF_DATA_EMPTY;

	avifImageAllocatePlanes(image, AVIF_PLANES_YUV);
	memset(image->yuvPlanes[0], 100, (size_t)image->yuvRowBytes[0] * SIDE);
	encoder->speed = AVIF_SPEED_FASTEST;
	assert_int_equal(avifEncoderWrite(encoder, image, &file), AVIF_RESULT_OK);
	avifEncoderDestroy(encoder);
	avifImageDestroy(image);
	uint8_t *data = pad(file.data, file.size);
	uint8_t *sizes = memmem(data, file.size, "ispe", 4);
	assert_non_null(sizes);
	memcpy(sizes + 8, (uint8_t[]){0, 0, 0, 64, 0, 0, 0, 64}, 8);

	assert_int_equal(image_reader_init(&reader), 0);
	assert_int_equal(image_probe(data, file.size, &info, &error), 0);
	assert_int_equal(info.width, 64);
	assert_int_equal(image_read(&reader, data, file.size, &info, NULL, 1, 1, &pixels, &error),
			 -EBADMSG);
	image_reader_deinit(&reader);
	avifRWDataFree(&file);
	free(data);
#else
	skip();
#endif
}

TEST(target_size)
{
	static const struct {
		uint32_t short_side, max_side, width, height, to_width, to_height;
	} cases[] = {
		{256, 0, 500, 375, 341, 256},   {256, 0, 375, 500, 256, 341},
		{256, 0, 200, 900, 200, 900},   {0, 256, 500, 375, 256, 192},
		{0, 256, 256, 10, 256, 10},     {0, 100, 5000, 3, 100, 1},
		{256, 300, 500, 375, 300, 225}, {0, 0, 1, 65535, 1, 65535},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sample_encoder_options options = {.short_side = cases[i].short_side,
							 .max_side = cases[i].max_side};
		uint32_t width, height;

		sample_encoder_target_size(&options, cases[i].width, cases[i].height, &width,
					   &height);
		assert_int_equal(width, cases[i].to_width);
		assert_int_equal(height, cases[i].to_height);
	}
}

/* A sample of a few bytes that declares 12 GB of pixels is refused by every packimg command. */
TEST(bomb)
{
	uint64_t size = (uint64_t)PACKIMG_SIDE_MAX * PACKIMG_SIDE_MAX * 3;
	uint8_t frame[32] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0};
	struct packimg_sample sample = {
		.data = frame,
		.data_size = sizeof(frame),
		.width = PACKIMG_SIDE_MAX,
		.height = PACKIMG_SIDE_MAX,
		.codec = PACKIMG_CODEC_RAW_ZSTD,
		.channels = 3,
		.orientation = 1,
	};
	struct packimg_region all = {0, 0, PACKIMG_SIDE_MAX, PACKIMG_SIDE_MAX};
	struct packimg_decoder *decoder;
	struct packimg_pixels pixels;

	memcpy(frame + 5, &size, sizeof(size));
	assert_int_equal(image_decoder_new(&decoder), 0);
	assert_int_equal(packimg_decode(decoder, &sample, &all, 0, 0, &pixels, NULL), -E2BIG);
	packimg_decoder_free(decoder);
}
