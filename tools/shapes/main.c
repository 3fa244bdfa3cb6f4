/*
 * shapes: draws the small image set that the project learns to walk on.
 *
 * Ten classes of textured, turned, stretched figures on cluttered backgrounds, as ordinary JPEG
 * files in class folders: OUT/train/CLASS/NNNNNN.jpg and OUT/val/CLASS/NNNNNN.jpg. The same options
 * give the same files on one machine; between machines single bits may differ, as far as their C
 * and JPEG libraries do.
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "tools/shapes/draw.h"
#include "tools/shapes/figure.h"

struct settings {
	const char *out;
	unsigned long count, size, quality;
	uint64_t seed;
	double val;
};

static const struct argp_option options[] = {
	{"count", 'n', "N", 0, "Images in all, split evenly over the classes (default 6000)", 0},
	{"size", 's', "PIXELS", 0, "Side of the square images (default 64)", 0},
	{"seed", 'S', "N", 0, "Another seed draws another set (default 1)", 0},
	{"val", 'v', "FRACTION", 0, "Share of held-out images, into OUT/val (default 0.1667)", 0},
	{"quality", 'q', "Q", 0, "JPEG quality 1..100 (default 90)", 0},
	{0},
};

static unsigned long parse_count(struct argp_state *state, const char *name, const char *text,
				 unsigned long low, unsigned long high)
{
	char *end;

	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < low || value > high)
		argp_error(state, "--%s=%s: must be a whole number from %lu to %lu", name, text,
			   low, high);
	return value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct settings *settings = state->input;
	char *end;

	switch (key) {
	case 'n':
		settings->count = parse_count(state, "count", argument, FIGURE_COUNT, 10000000);
		return 0;
	case 's':
		settings->size = parse_count(state, "size", argument, DRAW_SIDE_MIN, DRAW_SIDE_MAX);
		return 0;
	case 'S':
		settings->seed = parse_count(state, "seed", argument, 0, ULONG_MAX);
		return 0;
	case 'q':
		settings->quality = parse_count(state, "quality", argument, 1, 100);
		return 0;
	case 'v':
		settings->val = strtod(argument, &end);
		if (end == argument || *end || !(settings->val >= 0 && settings->val <= 1))
			argp_error(state, "--val=%s: must be a number from 0 to 1", argument);
		return 0;
	case ARGP_KEY_ARG:
		if (settings->out)
			argp_error(state, "one directory is enough: %s or %s?", settings->out,
				   argument);
		settings->out = argument;
		return 0;
	case ARGP_KEY_END:
		if (!settings->out)
			argp_error(state, "where to? Name a directory");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

struct encoder {
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	jmp_buf failed;
	unsigned char *data;
	unsigned long size;
};

static void encoder_failed(j_common_ptr jpeg)
{
	struct encoder *encoder = jpeg->client_data;

	longjmp(encoder->failed, 1);
}

/* Leaves the JPEG file in encoder->data, which the caller frees. */
static int encode(struct encoder *encoder, const uint8_t *pixels, unsigned side, int quality)
{
	encoder->data = NULL;
	encoder->size = 0;
	encoder->jpeg.err = jpeg_std_error(&encoder->errors);
	encoder->errors.error_exit = encoder_failed;
	encoder->jpeg.client_data = encoder;
	if (setjmp(encoder->failed)) {
		jpeg_destroy_compress(&encoder->jpeg);
		return -EIO;
	}
	jpeg_create_compress(&encoder->jpeg);
	jpeg_mem_dest(&encoder->jpeg, &encoder->data, &encoder->size);
	encoder->jpeg.image_width = side;
	encoder->jpeg.image_height = side;
	encoder->jpeg.input_components = 3;
	encoder->jpeg.in_color_space = JCS_RGB;
	jpeg_set_defaults(&encoder->jpeg);
	jpeg_set_quality(&encoder->jpeg, quality, TRUE);
	jpeg_start_compress(&encoder->jpeg, TRUE);
	while (encoder->jpeg.next_scanline < side) {
		JSAMPROW row = (JSAMPROW)(pixels + (size_t)encoder->jpeg.next_scanline * side * 3);

		jpeg_write_scanlines(&encoder->jpeg, &row, 1);
	}
	jpeg_finish_compress(&encoder->jpeg);
	jpeg_destroy_compress(&encoder->jpeg);
	return 0;
}

static int write_file(const char *path, const unsigned char *data, size_t size)
{
	FILE *file = fopen(path, "wbxe");
	int r = 0;

	if (!file)
		return -errno;
	if (fwrite(data, 1, size, file) != size)
		r = -EIO;
	if (fclose(file) && !r)
		r = -errno;
	return r;
}

static int make_directory(const char *path)
{
	if (mkdir(path, 0777) && errno != EEXIST) {
		fprintf(stderr, "shapes: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	return 0;
}

static int make_tree(const char *out)
{
	static const char *const parts[] = {"train", "val"};
	char path[PATH_MAX];
	int r = make_directory(out);

	for (size_t part = 0; part < 2 && !r; part++) {
		snprintf(path, sizeof(path), "%s/%s", out, parts[part]);
		r = make_directory(path);
		for (size_t i = 0; i < FIGURE_COUNT && !r; i++) {
			snprintf(path, sizeof(path), "%s/%s/%s", out, parts[part], figure_names[i]);
			r = make_directory(path);
		}
	}
	return r;
}

/*
 * Image number `index` of the set: its class is index % FIGURE_COUNT; the first `held_out` of a
 * class go to val.
 */
static int make_image(const struct settings *settings, struct encoder *encoder, uint8_t *pixels,
		      unsigned long index, unsigned long held_out)
{
	enum figure figure = index % FIGURE_COUNT;
	unsigned long number = index / FIGURE_COUNT;
	/* Distinct odd multipliers keep the keys of neighbouring images and seeds apart. */
	uint64_t key = (settings->seed + 1) * 0xd1342543de82ef95u + index * 0x2545f4914f6cdd1du;
	char path[PATH_MAX];

	draw_image(key, figure, (unsigned)settings->size, pixels);
	int r = encode(encoder, pixels, (unsigned)settings->size, (int)settings->quality);
	if (r) {
		fprintf(stderr, "shapes: image %lu: the JPEG library refused it\n", index);
		free(encoder->data);
		return r;
	}
	snprintf(path, sizeof(path), "%s/%s/%s/%06lu.jpg", settings->out,
		 number < held_out ? "val" : "train", figure_names[figure], number);
	r = write_file(path, encoder->data, encoder->size);
	free(encoder->data);
	if (r == -EEXIST)
		fprintf(stderr,
			"shapes: %s exists: remove the old set first, or name another directory\n",
			path);
	else if (r)
		fprintf(stderr, "shapes: %s: %s\n", path, strerror(-r));
	return r;
}

static int run(const struct settings *settings)
{
	unsigned long per_class = settings->count / FIGURE_COUNT;
	unsigned long held_out = (unsigned long)lround((double)per_class * settings->val);
	struct encoder encoder;

	if (strlen(settings->out) > PATH_MAX - 64) {
		fprintf(stderr, "shapes: the name of the directory is too long\n");
		return -ENAMETOOLONG;
	}
	int r = make_tree(settings->out);
	if (r)
		return r;
	uint8_t *pixels = malloc(settings->size * settings->size * 3);
	if (!pixels)
		return -ENOMEM;
	for (unsigned long i = 0; i < per_class * FIGURE_COUNT && !r; i++)
		r = make_image(settings, &encoder, pixels, i, held_out);
	free(pixels);
	if (!r)
		printf("%lu images of %lu x %lu in %s/train, %lu in %s/val, %d classes\n",
		       (per_class - held_out) * FIGURE_COUNT, settings->size, settings->size,
		       settings->out, held_out * FIGURE_COUNT, settings->out, FIGURE_COUNT);
	return r;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "OUT",
		.doc = "Draws a seeded set of JPEG images, ten classes of shapes on cluttered "
		       "backgrounds, as class "
		       "folders under OUT/train and OUT/val.",
	};
	struct settings settings = {
		.count = 6000, .size = 64, .quality = 90, .seed = 1, .val = 1.0 / 6};

	if (argp_parse(&argp, argc, argv, 0, NULL, &settings))
		return 1;
	figure_init();
	return run(&settings) ? 1 : 0;
}
