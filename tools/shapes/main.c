/*
 * shapes: draws the small image set that tools/quickstart trains on.
 *
 * The set has ten classes of textured, rotated and stretched figures on cluttered backgrounds. The
 * images are JPEG files in class folders: OUT/train/CLASS/NNNNNN.jpg and OUT/val/CLASS/NNNNNN.jpg.
 * Equal options give equal files on one machine. On other machines pixels may differ in their
 * lowest bits, because C and JPEG libraries round differently.
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/text/number.h"
#include "format/packimg.h"
#include "tools/shapes/draw.h"
#include "tools/shapes/figure.h"

struct settings {
	const char *out;
	unsigned long count, size, quality;
	uint64_t seed;
	double val;
};

static const struct argp_option options[] = {
	{"count", 'n', "N", 0,
	 "Total number of images, split evenly over the classes (default 6000)", 0},
	{"size", 's', "PIXELS", 0, "Side of the square images (default 64)", 0},
	{"seed", 'S', "N", 0, "Seed of the images (default 1)", 0},
	{"val", 'v', "FRACTION", 0, "Share of held-out images, into OUT/val (default 0.1667)", 0},
	{"quality", 'q', "Q", 0, "JPEG quality 1..100 (default 90)", 0},
	{0},
};

static unsigned long parse_count(struct argp_state *state, const char *name, const char *text,
				 unsigned long low, unsigned long high)
{
	uint64_t value;

	if (number_u64(text, low, high, &value))
		argp_error(state, "--%s=%s: must be a whole number from %lu to %lu", name, text,
			   low, high);
	return value;
}

static error_t shapes_parse_option(int key, char *argument, struct argp_state *state)
{
	struct settings *settings = state->input;

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
		if (number_double(argument, &settings->val) ||
		    !(settings->val >= 0 && settings->val <= 1))
			argp_error(state, "--val=%s: must be a number from 0 to 1", argument);
		return 0;
	case ARGP_KEY_ARG:
		if (settings->out)
			argp_error(state, "more than one directory: %s and %s", settings->out,
				   argument);
		settings->out = argument;
		return 0;
	case ARGP_KEY_END:
		if (!settings->out)
			argp_error(state, "a directory to write to is required");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
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
 * Writes image `index`. Its class is index % FIGURE_COUNT; the first `held_out` images of each
 * class go to val.
 */
static int make_image(const struct settings *settings, struct packimg_encoder *encoder,
		      uint8_t *pixels, unsigned long index, unsigned long held_out)
{
	enum figure figure = index % FIGURE_COUNT;
	unsigned long number = index / FIGURE_COUNT;
	unsigned side = (unsigned)settings->size;
	/*
	 * Multiplying by distinct odd constants gives neighbouring images and seeds unrelated keys.
	 */
	uint64_t key = (settings->seed + 1) * 0xd1342543de82ef95u + index * 0x2545f4914f6cdd1du;
	const uint8_t *data;
	size_t size;
	char path[PATH_MAX];

	draw_image(key, figure, side, pixels);
	int r = packimg_encode_jpeg(encoder, pixels, (size_t)side * 3, side, side, 3,
				    (int)settings->quality, false, &data, &size);
	if (r) {
		fprintf(stderr, "shapes: image %lu: the JPEG library refused it\n", index);
		return r;
	}
	snprintf(path, sizeof(path), "%s/%s/%s/%06lu.jpg", settings->out,
		 number < held_out ? "val" : "train", figure_names[figure], number);
	r = write_file(path, data, size);
	if (r == -EEXIST)
		fprintf(stderr,
			"shapes: %s exists: remove the old set first, or name another directory\n",
			path);
	else if (r)
		fprintf(stderr, "shapes: %s: %s\n", path, strerror(-r));
	return r;
}

static int shapes_run(const struct settings *settings)
{
	unsigned long per_class = settings->count / FIGURE_COUNT;
	unsigned long held_out = (unsigned long)lround((double)per_class * settings->val);
	struct packimg_encoder *encoder = NULL;

	if (strlen(settings->out) > PATH_MAX - 64) {
		fprintf(stderr, "shapes: the name of the directory is too long\n");
		return -ENAMETOOLONG;
	}
	int r = make_tree(settings->out);
	if (r)
		return r;
	uint8_t *pixels = malloc(settings->size * settings->size * 3);
	r = pixels ? packimg_encoder_new(&encoder) : -ENOMEM;
	for (unsigned long i = 0; i < per_class * FIGURE_COUNT && !r; i++)
		r = make_image(settings, encoder, pixels, i, held_out);
	packimg_encoder_free(encoder);
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
		.parser = shapes_parse_option,
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
	return shapes_run(&settings) ? 1 : 0;
}
