#include "format/augment/mosaic.h"
#include "format/augment/apply/stage.h"
#include "format/augment/frame_raster.h"
#include "format/augment/grammar/transforms.h"
#include "format/base/random.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <math.h>
#include <string.h>

bool pipeline_joins(const struct pipeline *pipeline)
{
	return pipeline_mosaic_step(pipeline) != NULL;
}

void mosaic_draw(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t index,
		 struct mosaic *ret_mosaic)
{
	const struct transform *step = pipeline_mosaic_step(pipeline);
	const struct transform_size *size = transform_size_at(step, epoch);
	struct mosaic mosaic = {.width = size->width, .height = size->height, .count = 1};
	struct random_stream random;

	random_init(&random, seed, epoch, index, RANDOM_MOSAIC);
	if ((double)random_float(&random) < step->probability)
		mosaic.count += MOSAIC_OTHERS;
	mosaic.factor =
		step->scale[0] + (step->scale[1] - step->scale[0]) * (double)random_float(&random);
	double x = mosaic.width * (0.5 + mosaic.factor * ((double)random_float(&random) - 0.5));
	double y = mosaic.height * (0.5 + mosaic.factor * ((double)random_float(&random) - 0.5));

	mosaic.x = (int64_t)rint(x);
	mosaic.y = (int64_t)rint(y);
	mosaic.quarter = random_below(&random, 1 + MOSAIC_OTHERS);
	for (unsigned i = 0; i < MOSAIC_OTHERS; i++) {
		mosaic.others[i] = (uint64_t)random_u32(&random) << 32;
		mosaic.others[i] |= random_u32(&random);
	}
	*ret_mosaic = mosaic;
}

/* What a picture of `side` pixels shows of `length` pixels that begin at `at`. */
struct span {
	uint32_t from, at, count;
};

static struct span span_shown(int64_t at, uint32_t length, uint32_t side)
{
	int64_t low = at < 0 ? 0 : at, end = at + length;
	int64_t high = end < side ? end : side;

	if (low >= high)
		return (struct span){0};
	return (struct span){(uint32_t)(low - at), (uint32_t)low, (uint32_t)(high - low)};
}

/* Returns at least one pixel. */
static uint32_t side_scaled(uint32_t side, double factor)
{
	double scaled = rint(side * factor);

	return scaled < 1 ? 1 : (uint32_t)scaled;
}

bool mosaic_place(const struct mosaic *mosaic, uint32_t number, uint32_t width, uint32_t height,
		  struct mosaic_tile *ret_tile)
{
	double across = (double)mosaic->width / width, down = (double)mosaic->height / height;
	double factor = mosaic->factor * (across < down ? across : down);
	uint32_t w = side_scaled(width, factor), h = side_scaled(height, factor);
	uint32_t quarter = (mosaic->quarter + number) % (1 + MOSAIC_OTHERS);
	int64_t left = quarter % 2 ? mosaic->x : mosaic->x - w;
	int64_t top = quarter / 2 ? mosaic->y : mosaic->y - h;

	if (mosaic->count == 1) {
		left = (int64_t)rint(((double)mosaic->width - w) / 2);
		top = (int64_t)rint(((double)mosaic->height - h) / 2);
	}
	struct span x = span_shown(left, w, mosaic->width), y = span_shown(top, h, mosaic->height);

	*ret_tile = (struct mosaic_tile){w, h, x.from, y.from, x.at, y.at, x.count, y.count};
	return x.count > 0 && y.count > 0;
}

static void fill_part(const struct mosaic *mosaic, const struct mosaic_tile *tile,
		      const uint8_t *pixel, size_t size, uint8_t *picture)
{
	const struct mosaic_tile all = {.width = mosaic->width, .height = mosaic->height};
	size_t stride = mosaic->width * size;

	tile = tile ? tile : &all;
	picture += tile->y * stride + tile->x * size;
	for (uint32_t x = 0; x < tile->width; x++)
		memcpy(picture + x * size, pixel, size);
	for (uint32_t y = 1; y < tile->height; y++)
		memcpy(picture + y * stride, picture, tile->width * size);
}

void mosaic_fill_image(const struct pipeline *pipeline, const struct mosaic *mosaic,
		       const struct mosaic_tile *tile, uint8_t *picture)
{
	fill_part(mosaic, tile, pipeline_mosaic_step(pipeline)->fill, 3, picture);
}

void mosaic_fill_raster(const struct frame_raster *form, const struct mosaic *mosaic,
			const struct mosaic_tile *tile, uint8_t *picture)
{
	size_t size = packimg_element_size(form->element);
	uint8_t pixel[PACKIMG_RASTER_CHANNELS_MAX * sizeof(uint64_t)];

	for (uint32_t i = 0; i < form->channels; i++)
		memcpy(pixel + i * size, form->fill, size);
	fill_part(mosaic, tile, pixel, size * form->channels, picture);
}

/* Adds the time since `start`, without that in the decoder, which is added for itself. */
static void add_times(struct pipeline_times *times, const struct pipeline_scratch *scratch,
		      uint64_t start)
{
	if (!times)
		return;
	times->decode += scratch->times.decode;
	times->resize += ticks_since(start) - scratch->times.decode;
}

int mosaic_put_image(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		     const struct packimg_sample *sample, const struct mosaic *mosaic,
		     const struct mosaic_tile *tile, uint8_t *picture, struct pipeline_times *times,
		     struct packimg_error *error)
{
	size_t stride = (size_t)mosaic->width * 3;
	struct canvas canvas = {.data = picture + tile->y * stride + (size_t)tile->x * 3,
				.stride = stride,
				.width = tile->width,
				.height = tile->height,
				.channels = 3,
				.bytes = true,
				.rows = &scratch->rows,
				.store_ticks = &scratch->times.store};
	uint64_t start = ticks_now();
	struct geometry geometry;

	scratch->times = (struct pipeline_times){0};
	geometry_make_tile(pipeline, sample->width, sample->height, tile, &geometry);
	int r = stage_run(scratch, sample, &geometry, 0, &canvas, error);
	add_times(times, scratch, start);
	return r;
}

int mosaic_put_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		      const struct packimg_sample *raster, const struct frame_raster *form,
		      const struct mosaic *mosaic, const struct mosaic_tile *tile, uint8_t *picture,
		      struct pipeline_times *times, struct packimg_error *error)
{
	size_t pixel = packimg_element_size(form->element) * form->channels;
	size_t stride = mosaic->width * pixel, row = tile->width * pixel;
	struct frame_raster stored = *form;
	uint64_t start = ticks_now();
	struct geometry geometry;

	scratch->times = (struct pipeline_times){0};
	stored.output = (enum schema_element)form->element;
	int r = raster_check_size(raster, form, error);
	if (r == 0 && block_reserve(&scratch->between[0], row * tile->height) < 0)
		r = sample_explain(error, -ENOMEM, raster, "has no memory for its mask");
	if (r == 0) {
		geometry_make_tile(pipeline, raster->width, raster->height, tile, &geometry);
		r = raster_run(scratch, &geometry, raster, &stored, NULL, scratch->between[0].data,
			       error);
	}
	picture += tile->y * stride + tile->x * pixel;
	for (uint32_t y = 0; r == 0 && y < tile->height; y++)
		memcpy(picture + y * stride, (uint8_t *)scratch->between[0].data + y * row, row);
	add_times(times, scratch, start);
	return r;
}

int mosaic_finish_image(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			const struct mosaic *mosaic, const uint8_t *picture, uint64_t index,
			uint64_t seed, uint64_t epoch, void *output, struct pipeline_times *times,
			struct packimg_error *error)
{
	const struct packimg_sample joined = {.index = index,
					      .data = picture,
					      .data_size = mosaic->width * mosaic->height * 3,
					      .width = mosaic->width,
					      .height = mosaic->height,
					      .label = PACKIMG_LABEL_NONE,
					      .codec = PACKIMG_CODEC_RAW,
					      .channels = 3,
					      .orientation = 1};

	return pipeline_apply(pipeline, scratch, &joined, seed, epoch, output, times, error);
}

int mosaic_finish_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			 const struct mosaic *mosaic, const struct frame_raster *form,
			 const uint8_t *picture, uint64_t index, uint64_t seed, uint64_t epoch,
			 void *output, struct pipeline_times *times, struct packimg_error *error)
{
	const struct packimg_sample joined = {
		.index = index, .width = mosaic->width, .height = mosaic->height};
	const size_t pixel = packimg_element_size(form->element) * form->channels;
	const struct packimg_raster raster = {.data = picture,
					      .step_x = (ptrdiff_t)pixel,
					      .step_y = (ptrdiff_t)(mosaic->width * pixel),
					      .width = mosaic->width,
					      .height = mosaic->height,
					      .channels = form->channels,
					      .element = form->element};
	struct frame_raster whole = *form;

	whole.width = mosaic->width;
	whole.height = mosaic->height;
	return raster_finish(pipeline, scratch, &joined, &whole, &raster, seed, epoch, output,
			     times, error);
}

void pipeline_scratch_tile(struct pipeline_scratch *scratch, const struct mosaic_tile *tile)
{
	scratch->tile = tile;
}
