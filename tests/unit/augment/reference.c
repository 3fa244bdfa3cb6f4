#include "tests/unit/augment/reference.h"
#include "format/base/random.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *pixel_at(const struct reference *picture, int64_t x, int64_t y)
{
	return picture->pixels + ((size_t)y * picture->width + (size_t)x) * 3;
}

static struct reference empty(uint32_t width, uint32_t height, unsigned resizes)
{
	return (struct reference){.width = width,
				  .height = height,
				  .pixels = calloc((size_t)width * height, 3),
				  .resizes = resizes};
}

static void replace(struct reference *picture, struct reference next)
{
	free(picture->pixels);
	*picture = next;
}

/*
 * Reflects a coordinate: walks |to| pixels from 0 and turns at the ends. Returns the last position.
 */
static int64_t walk(int64_t to, uint32_t count)
{
	int64_t at = 0, step = to < 0 ? -1 : 1;

	for (; to; to += to < 0 ? 1 : -1) {
		if (at + step < 0 || at + step >= count)
			step = -step;
		at += step;
	}
	return at;
}

/* Crops; outside the picture pads with fill, or with the reflected picture if fill is NULL. */
static void crop(struct reference *picture, int64_t x, int64_t y, uint32_t width, uint32_t height,
		 const uint8_t *fill)
{
	struct reference next = empty(width, height, picture->resizes);

	for (uint32_t j = 0; j < height; j++)
		for (uint32_t i = 0; i < width; i++) {
			bool inside = x + i >= 0 && x + i < picture->width && y + j >= 0 &&
				      y + j < picture->height;

			if (inside || fill)
				memcpy(pixel_at(&next, i, j),
				       inside ? pixel_at(picture, x + i, y + j) : fill, 3);
			else
				memcpy(pixel_at(&next, i, j),
				       pixel_at(picture, walk(x + i, picture->width),
						walk(y + j, picture->height)),
				       3);
		}
	replace(picture, next);
}

static double weight(uint32_t size, uint32_t grid, uint32_t output, uint32_t input)
{
	double step = (double)size / grid, support = step > 1 ? step : 1;
	double distance = fabs(input + 0.5 - (output + 0.5) * step) / support;

	return distance < 1 ? 1 - distance : 0;
}

/* Keys' cubic kernel with a = -0.5, stretched when the picture shrinks. */
static double weight_cubic(uint32_t size, uint32_t grid, uint32_t output, uint32_t input)
{
	double step = (double)size / grid, wide = step > 1 ? step : 1;
	double x = fabs(input + 0.5 - (output + 0.5) * step) / wide;

	return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
	       : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
		       : 0;
}

static double to_byte(double value)
{
	return floor(fmin(fmax(value, 0), 255) + 0.5);
}

/* Bicubic resizing rounds to bytes between the passes, like Pillow. */
static void resize(struct reference *picture, uint32_t width, uint32_t height, bool bicubic)
{
	double (*weigh)(uint32_t, uint32_t, uint32_t, uint32_t) = bicubic ? weight_cubic : weight;

	if (width == picture->width && height == picture->height)
		return;
	struct reference next = empty(width, height, picture->resizes + 1);
	double *rows = calloc((size_t)picture->height * width, 3 * sizeof(double));

	for (uint32_t i = 0; i < width; i++) {
		double total = 0;

		for (uint32_t k = 0; k < picture->width; k++)
			total += weigh(picture->width, width, i, k);
		for (uint32_t k = 0; k < picture->width; k++) {
			double w = weigh(picture->width, width, i, k) / total;

			for (uint32_t j = 0; w != 0 && j < picture->height; j++)
				for (int c = 0; c < 3; c++)
					rows[((size_t)j * width + i) * 3 + c] +=
						w * pixel_at(picture, k, j)[c];
		}
	}
	for (size_t i = 0; bicubic && i < (size_t)picture->height * width * 3; i++)
		rows[i] = to_byte(rows[i]);
	for (uint32_t j = 0; j < height; j++) {
		double total = 0, *sums = calloc(width, 3 * sizeof(double));

		for (uint32_t k = 0; k < picture->height; k++)
			total += weigh(picture->height, height, j, k);
		for (uint32_t k = 0; k < picture->height; k++) {
			double w = weigh(picture->height, height, j, k) / total;

			for (uint32_t i = 0; w != 0 && i < 3 * width; i++)
				sums[i] += w * rows[(size_t)k * width * 3 + i];
		}
		for (uint32_t i = 0; i < 3 * width; i++)
			pixel_at(&next, 0, j)[i] = (uint8_t)to_byte(sums[i]);
		free(sums);
	}
	free(rows);
	replace(picture, next);
}

static void flip(struct reference *picture, bool vertical)
{
	struct reference next = empty(picture->width, picture->height, picture->resizes);

	for (uint32_t j = 0; j < picture->height; j++)
		for (uint32_t i = 0; i < picture->width; i++)
			memcpy(pixel_at(&next, i, j),
			       pixel_at(picture, vertical ? i : picture->width - 1 - i,
					vertical ? picture->height - 1 - j : j),
			       3);
	replace(picture, next);
}

/* Same as RandomResizedCrop.get_params(), as described in torchvision's documentation. */
static void random_region(const struct transform *transform, const struct reference *picture,
			  struct random_stream *random, uint32_t region[4])
{
	double width = picture->width, height = picture->height;

	for (int i = 0; i < 10; i++) {
		double area = width * height *
			      (transform->scale[0] + (transform->scale[1] - transform->scale[0]) *
							     (double)random_float(random));
		double low = log(transform->ratio[0]), high = log(transform->ratio[1]);
		double ratio = exp(low + (high - low) * (double)random_float(random));
		double w = nearbyint(sqrt(area * ratio)), h = nearbyint(sqrt(area / ratio));

		if (w > 0 && w <= width && h > 0 && h <= height) {
			region[1] = random_below(random, (uint32_t)(height - h) + 1);
			region[0] = random_below(random, (uint32_t)(width - w) + 1);
			region[2] = (uint32_t)w;
			region[3] = (uint32_t)h;
			return;
		}
	}
	if (width / height < transform->ratio[0])
		height = nearbyint(width / transform->ratio[0]);
	else if (width / height > transform->ratio[1])
		width = nearbyint(height * transform->ratio[1]);
	region[2] = width < 1 ? 1 : (uint32_t)width;
	region[3] = height < 1 ? 1 : (uint32_t)height;
	region[0] = (picture->width - region[2]) / 2;
	region[1] = (picture->height - region[3]) / 2;
}

static int64_t python_round_half(int64_t twice)
{
	/* round half to even */
	int64_t floor = twice >> 1;

	return (twice & 1) && (floor & 1) ? floor + 1 : floor;
}

static void center_crop(struct reference *picture, uint32_t width, uint32_t height)
{
	const uint8_t black[3] = {0};
	int64_t left = width > picture->width ? (width - picture->width) / 2 : 0;
	int64_t top = height > picture->height ? (height - picture->height) / 2 : 0;

	crop(picture, -left, -top, width > picture->width ? width : picture->width,
	     height > picture->height ? height : picture->height, black);
	crop(picture, python_round_half((int64_t)picture->width - width),
	     python_round_half((int64_t)picture->height - height), width, height, black);
}

static int pad(struct reference *picture, const struct transform *transform)
{
	if (transform->reflect &&
	    (transform->pad[0] >= picture->width || transform->pad[1] >= picture->height))
		return -EINVAL;
	crop(picture, -(int64_t)transform->pad[0], -(int64_t)transform->pad[1],
	     picture->width + 2 * transform->pad[0], picture->height + 2 * transform->pad[1],
	     transform->reflect ? NULL : transform->fill);
	return 0;
}

static int random_crop(struct reference *picture, const struct transform *transform,
		       const struct transform_size *size, struct random_stream *random)
{
	if (pad(picture, transform) < 0)
		return -EINVAL;
	if (picture->width < size->width || picture->height < size->height)
		return -EINVAL;
	if (picture->width == size->width && picture->height == size->height)
		return 0;
	uint32_t y = random_below(random, picture->height - size->height + 1);
	uint32_t x = random_below(random, picture->width - size->width + 1);

	crop(picture, x, y, size->width, size->height, NULL);
	return 0;
}

static void zoom_out(struct reference *picture, const struct transform *transform,
		     struct random_stream *random)
{
	if ((double)random_float(random) >= transform->probability)
		return;
	double factor = transform->scale[0] +
			(transform->scale[1] - transform->scale[0]) * (double)random_float(random);
	uint32_t width = (uint32_t)(picture->width * factor),
		 height = (uint32_t)(picture->height * factor);
	int64_t left = (int64_t)((width - picture->width) * (double)random_float(random));
	int64_t top = (int64_t)((height - picture->height) * (double)random_float(random));

	crop(picture, -left, -top, width, height, transform->fill);
}

/* Runs one transform. The numbers drawn from `lasting` are the same in every epoch. */
static int run_transform(struct reference *picture, const struct transform *transform,
			 uint64_t epoch, struct random_stream *random,
			 struct random_stream *lasting)
{
	const struct transform_size *size = &transform->sizes[0];
	uint32_t region[4];

	for (unsigned i = 1; i < transform->size_count; i++)
		if (transform->sizes[i].epoch <= epoch)
			size = &transform->sizes[i];
	switch (transform->kind) {
	case TRANSFORM_RANDOM_RESIZED_CROP:
		random_region(transform, picture, random, region);
		crop(picture, region[0], region[1], region[2], region[3], NULL);
		resize(picture, size->width, size->height, transform->bicubic);
		return 0;
	case TRANSFORM_RESIZE:
		if (size->height)
			resize(picture, size->width, size->height, transform->bicubic);
		else if (picture->width <= picture->height)
			resize(picture, size->width, size->width * picture->height / picture->width,
			       transform->bicubic);
		else
			resize(picture, size->width * picture->width / picture->height, size->width,
			       transform->bicubic);
		return 0;
	case TRANSFORM_CENTER_CROP:
		center_crop(picture, size->width, size->height);
		return 0;
	case TRANSFORM_PAD:
		return pad(picture, transform);
	case TRANSFORM_ZOOM_OUT:
		zoom_out(picture, transform, random);
		return 0;
	case TRANSFORM_RANDOM_CROP:
		return random_crop(picture, transform, size, random);
	default:
		if (transform->alternate ? (random_u32(lasting) % 2 != epoch % 2)
					 : ((double)random_float(random) < transform->probability))
			flip(picture, transform->kind == TRANSFORM_VFLIP);
		return 0;
	}
}

int reference_run(const struct pipeline *pipeline, const uint8_t *pixels, uint32_t width,
		  uint32_t height, uint64_t seed, uint64_t epoch, uint64_t sample,
		  struct reference *ret_picture)
{
	struct reference picture = empty(width, height, 0);
	struct random_stream random, lasting;

	memcpy(picture.pixels, pixels, (size_t)width * height * 3);
	random_init(&random, seed, epoch, sample, RANDOM_AUGMENT);
	random_init(&lasting, seed, 0, sample, RANDOM_LASTING);
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		int r = run_transform(&picture, &pipeline->transforms[i], epoch, &random, &lasting);

		if (r < 0) {
			free(picture.pixels);
			return r;
		}
	}
	*ret_picture = picture;
	return 0;
}
