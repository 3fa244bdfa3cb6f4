#include "transform.h"
#include "effects.h"
#include "plan.h"
#include "resize.h"
#include "steps.h"
#include "store.h"
#include "ticks.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Source rows that a copy asks for ahead of the one at hand. */
	COPY_AHEAD = 8,
	/* One row in so many is timed on its way through the store. */
	TIMED_ROWS = 32,
	/* Pixels around what an output depends on that samples of chroma may stand for: one stands for four at most, half of it on either side. */
	CHROMA_PIXELS_MAX = 4,
};

struct transform_scratch {
	struct packimg_decoder *decoder;
	struct resize *resize;
	struct effects *effects;
	enum augment_isa isa;
	const struct store_kernels *kernels;
	uint8_t *between[2]; /* pictures between two stages */
	size_t between_size[2];
	uint8_t *stage; /* of the store */
	uint8_t *row;	/* one finished row with its borders, */
	uint8_t *fill;	/* and one of nothing but fill; TRANSFORM_SIDE_MAX pixels each */
	struct transform_times times; /* of the sample at hand; resize is filled in last */
};

/* Pixels that a stage reads. region_x, region_y: place of pixel 0, 0 of the region in data (fractions of a scaled decode). */
struct picture {
	const uint8_t *data;
	size_t stride;
	uint32_t width, height; /* that may be read from data on */
	double region_x, region_y;
	double region_width, region_height;
	bool cold; /* in a mapped file, rather than just made */
	/* Not 0: rows come from the decoder as they are asked for, into a ring of so many. */
	uint32_t ring;
	uint32_t rows_ready;
	struct transform_scratch *scratch;
	struct packimg_error *error;
};

/* Where a stage writes: a picture of bytes, or rows for the store. */
struct canvas {
	uint8_t *data;	     /* NULL: through the store */
	bool bytes;	     /* interleaved bytes, as data would hold them */
	bool placed;	     /* the row at hand is made in the store's own place */
	struct store *store; /* of the last stage, NULL before */
	size_t stride;
	uint32_t width, height, channels;
	struct transform_scratch *scratch;
	/* The part that shows image; what is around it is fill. */
	uint32_t x, y, content_width, content_height;
};

int transform_scratch_new(struct transform_scratch **ret_scratch)
{
	struct transform_scratch *scratch = calloc(1, sizeof(*scratch));
	enum augment_isa isa = augment_isa_chosen();
	int r = -ENOMEM;

	if (!scratch)
		return -ENOMEM;
	scratch->isa = isa;
	scratch->kernels = store_kernels_get(isa);
	scratch->row = calloc(2, (size_t)TRANSFORM_SIDE_MAX * 4);
	scratch->stage = aligned_alloc(STORE_LINE, STORE_STAGE_SIZE);
	if (!scratch->row || !scratch->stage)
		goto fail;
	scratch->fill = scratch->row + (size_t)TRANSFORM_SIDE_MAX * 4;
	r = resize_new_isa(isa, &scratch->resize);
	if (r < 0)
		goto fail;
	r = effects_new(isa, &scratch->effects);
	if (r < 0)
		goto fail;
	r = packimg_decoder_new(&scratch->decoder);
	if (r < 0)
		goto fail;
	*ret_scratch = scratch;
	return 0;
fail:
	transform_scratch_free(scratch);
	return r;
}

void transform_scratch_free(struct transform_scratch *scratch)
{
	if (!scratch)
		return;
	packimg_decoder_free(scratch->decoder);
	resize_free(scratch->resize);
	effects_free(scratch->effects);
	free(scratch->between[0]);
	free(scratch->between[1]);
	free(scratch->stage);
	free(scratch->row);
	free(scratch);
}

static int between_reserve(struct transform_scratch *scratch, unsigned which, size_t size)
{
	if (size <= scratch->between_size[which])
		return 0;
	uint8_t *data = malloc(size + size / 4);

	if (!data)
		return -ENOMEM;
	free(scratch->between[which]);
	scratch->between[which] = data;
	scratch->between_size[which] = size + size / 4;
	return 0;
}

static int explain(struct packimg_error *error, int result, const struct packimg_sample *sample,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));

static int explain(struct packimg_error *error, int result, const struct packimg_sample *sample,
		   const char *format, ...)
{
	if (!error)
		return result;
	va_list arguments;
	int used = snprintf(error->text, sizeof(error->text),
			    "sample %llu: ", (unsigned long long)sample->index);

	va_start(arguments, format);
	vsnprintf(error->text + used, sizeof(error->text) - (size_t)used, format, arguments);
	va_end(arguments);
	return result;
}

static void fill_pixels(uint8_t *output, uint32_t count, uint32_t channels, const uint8_t fill[3])
{
	for (uint32_t x = 0; x < count; x++, output += channels) {
		memcpy(output, fill, 3);
		if (channels == 4)
			output[3] = 0;
	}
}

/* Content of one row on its way to the store. */
static void canvas_store(struct canvas *canvas, uint32_t row, const uint8_t *pixels)
{
	if (canvas->placed) {
		store_placed(canvas->store);
		return;
	}
	if (canvas->content_width < canvas->width) {
		uint8_t *bordered = canvas->scratch->row;

		memcpy(bordered + (size_t)canvas->x * canvas->channels, pixels,
		       (size_t)canvas->content_width * canvas->channels);
		pixels = bordered;
	}
	store_row(canvas->store, canvas->y + row, pixels);
}

/* canvas_store, some of the rows by the clock; a resize_sink. */
static void canvas_sink(void *context, uint32_t row, const uint8_t *pixels)
{
	struct canvas *canvas = context;

	if (row % TIMED_ROWS != TIMED_ROWS / 2) {
		canvas_store(canvas, row, pixels);
		return;
	}
	uint64_t start = ticks_now();

	canvas_store(canvas, row, pixels);
	canvas->scratch->times.store += ticks_since(start) * TIMED_ROWS;
}

/* Whole rows of bytes are made where the store wants them; a resize_place. */
static uint8_t *canvas_place(void *context, uint32_t row)
{
	struct canvas *canvas = context;
	uint8_t *place = NULL;

	if (canvas->content_width == canvas->width)
		place = store_place(canvas->store, canvas->y + row);
	canvas->placed = place != NULL;
	return place;
}

/* Fills what the image does not cover. */
static void canvas_fill(struct canvas *canvas, const uint8_t fill[3])
{
	bool sides = canvas->content_width < canvas->width;

	if (!canvas->data) {
		if (sides)
			fill_pixels(canvas->scratch->row, canvas->width, canvas->channels, fill);
		if (canvas->content_height < canvas->height)
			fill_pixels(canvas->scratch->fill, canvas->width, canvas->channels, fill);
	}
	for (uint32_t y = 0; y < canvas->height; y++) {
		bool inside = y - canvas->y < canvas->content_height;
		uint32_t right = canvas->x + canvas->content_width;

		if (inside && (!sides || !canvas->data))
			continue;
		if (!canvas->data) {
			store_row(canvas->store, y, canvas->scratch->fill);
			continue;
		}
		uint8_t *row = canvas->data + y * canvas->stride;

		fill_pixels(row, inside ? canvas->x : canvas->width, canvas->channels, fill);
		if (inside)
			fill_pixels(row + (size_t)right * canvas->channels, canvas->width - right,
				    canvas->channels, fill);
	}
}

/* Pixels that outputs grid .. grid + count - 1 of an axis depend on, also by way of chroma if that is resized itself: [*ret_low, *ret_high). */
static void axis_reach(const struct plan_axis *axis, int64_t grid, uint32_t count, bool planes,
		       uint32_t *ret_low, uint32_t *ret_high)
{
	if (plan_axis_copies(axis) && !planes) {
		*ret_low = axis->low + (uint32_t)grid;
		*ret_high = *ret_low + count;
		return;
	}
	double step = (double)(axis->high - axis->low) / axis->grid;
	double support = step > 1 ? step : 1;

	if (planes)
		support = CHROMA_PIXELS_MAX / 2 +
			  (step > CHROMA_PIXELS_MAX ? step : CHROMA_PIXELS_MAX);
	double low = floor(axis->low + (grid + 0.5) * step - support + 0.5);
	double high = floor(axis->low + (grid + count - 0.5) * step + support + 0.5);

	*ret_low = low > axis->low ? (uint32_t)low : axis->low;
	*ret_high = high < axis->high ? (uint32_t)high : axis->high;
}

/* Size that the region will have once resized, for the decoder's choice of scale; 0: only full scale will do. */
static uint32_t axis_hint(const struct plan_axis *axis, uint32_t size)
{
	double hint = ceil((double)size * axis->grid / (axis->high - axis->low));

	return plan_axis_copies(axis) ? 0 : hint < size ? (uint32_t)hint : size;
}

/* The axis in the coordinates of the picture that holds pixels low .. of the stage's input, possibly at a smaller scale. */
static struct resize_axis axis_place(const struct plan_axis *axis, int64_t grid, uint32_t count,
				     uint32_t low, uint32_t high, double begin, double extent,
				     uint32_t size)
{
	double step = (double)(axis->high - axis->low) / axis->grid;
	double scale = extent / (high - low);
	double end = ceil(begin + extent - 1e-6);

	return (struct resize_axis){
		.origin = begin + (axis->low + grid * step - low) * scale,
		.step = step * scale,
		.low = 0,
		.high = end < size ? (uint32_t)end : size,
		.count = count,
		.reverse = axis->reverse,
	};
}

struct stage_region {
	int64_t grid_x, grid_y; /* first grid pixel shown */
	uint32_t low_x, high_x, low_y, high_y;
};

/* What to ask the decoder for. */
static struct packimg_region stage_wanted(const struct plan_stage *stage,
					  const struct stage_region *region,
					  uint32_t *ret_hint_width, uint32_t *ret_hint_height)
{
	uint32_t width = region->high_x - region->low_x, height = region->high_y - region->low_y;

	*ret_hint_width = axis_hint(&stage->x, width);
	*ret_hint_height = axis_hint(&stage->y, height);
	/* An axis that only copies needs every pixel of its own. */
	if (*ret_hint_width == 0 || *ret_hint_height == 0)
		*ret_hint_width = *ret_hint_height = 0;
	return (struct packimg_region){
		.x = region->low_x, .y = region->low_y, .width = width, .height = height};
}

static int decode_begin(struct transform_scratch *scratch, const struct packimg_sample *sample,
			const struct plan_stage *stage, const struct stage_region *region,
			struct picture *ret_picture, struct packimg_error *error)
{
	struct packimg_pixels pixels;
	uint32_t hint_width, hint_height;
	struct packimg_region wanted = stage_wanted(stage, region, &hint_width, &hint_height);
	uint64_t start = ticks_now();
	int r = packimg_decode_begin(scratch->decoder, sample, &wanted, hint_width, hint_height,
				     &pixels, error);

	scratch->times.decode += ticks_since(start);
	if (r < 0)
		return r;
	/*
	 * Whole pixels of the offset go into the pointer: how much more than the region a codec returns must not reach the
	 * arithmetic of the filters.
	 */
	uint32_t x = (uint32_t)floor(pixels.x + 1e-6), y = (uint32_t)floor(pixels.y + 1e-6);

	*ret_picture = (struct picture){
		.data = pixels.data + y * pixels.stride + (size_t)x * 3,
		.stride = pixels.stride,
		.width = pixels.width - x,
		.height = pixels.height - y,
		.region_x = pixels.x - x,
		.region_y = pixels.y - y,
		.region_width = pixels.region_width,
		.region_height = pixels.region_height,
		.cold = sample->codec == PACKIMG_CODEC_RAW,
		.ring = pixels.ring,
		.scratch = scratch,
		.error = error,
	};
	return 0;
}

/* Sees to it that the rows before end are there; a resize_source's rows. */
static int picture_rows(void *context, uint32_t end)
{
	struct picture *picture = context;

	if (end <= picture->rows_ready || !picture->ring)
		return 0;
	uint64_t start = ticks_now();
	int r = packimg_decode_rows(picture->scratch->decoder, end, &picture->rows_ready,
				    picture->error);

	picture->scratch->times.decode += ticks_since(start);
	return r;
}

static const uint8_t *picture_row(const struct picture *picture, uint32_t row)
{
	return picture->data + (size_t)(row & (picture->ring - 1)) * picture->stride;
}

static int copy_rows(const struct plan_stage *stage, struct picture *picture, struct canvas *canvas)
{
	const struct store_kernels *kernels = canvas->scratch->kernels;
	size_t row_size = (size_t)canvas->width * 3;
	bool upright = !stage->x.reverse && !stage->y.reverse;

	if (upright && !picture->ring && canvas->bytes && canvas->channels == 3 &&
	    canvas->content_width == canvas->width && canvas->content_height == canvas->height &&
	    picture->stride == row_size) {
		if (canvas->data)
			memcpy(canvas->data, picture->data, canvas->height * row_size);
		else
			store_rows(canvas->store, picture->data);
		return 0;
	}
	/* For the store a row is put together between its borders, which are there already. */
	uint8_t *line = canvas->scratch->row + (size_t)canvas->x * canvas->channels;

	for (uint32_t i = 0; i < canvas->content_height; i++) {
		uint32_t row = stage->y.reverse ? canvas->content_height - 1 - i : i;
		const uint8_t *pixels = picture_row(picture, i);
		int r = picture_rows(picture, i + 1);
		uint32_t ahead = i + COPY_AHEAD < canvas->content_height ? i + COPY_AHEAD : i;

		if (r < 0)
			return r;
		for (size_t at = 0; picture->cold && at < (size_t)3 * canvas->content_width;
		     at += 64)
			__builtin_prefetch(picture->data + ahead * picture->stride + at, 0, 2);
		if (canvas->data)
			line = canvas->data + (canvas->y + row) * canvas->stride +
			       (size_t)canvas->x * canvas->channels;
		else if (canvas_place(canvas, row))
			line = canvas_place(canvas, row);
		kernels->copy(line, pixels, canvas->content_width, canvas->channels,
			      stage->x.reverse);
		if (!canvas->data && canvas->placed)
			store_placed(canvas->store);
		else if (!canvas->data)
			store_row(canvas->store, canvas->y + row, canvas->scratch->row);
	}
	return 0;
}

static struct resize_target canvas_target(struct canvas *canvas)
{
	if (!canvas->data)
		return (struct resize_target){.channels = canvas->channels,
					      .sink = canvas_sink,
					      .place = canvas_place,
					      .context = canvas};
	return (struct resize_target){
		.channels = canvas->channels,
		.data = canvas->data + canvas->y * canvas->stride +
			(size_t)canvas->x * canvas->channels,
		.stride = (ptrdiff_t)canvas->stride,
	};
}

static int resize_rows(struct transform_scratch *scratch, const struct plan_stage *stage,
		       const struct stage_region *region, struct picture *picture,
		       struct canvas *canvas)
{
	struct resize_source source = {.data = picture->data,
				       .stride = picture->stride,
				       .width = picture->width,
				       .height = picture->height,
				       .channels = 3,
				       .cold = picture->cold,
				       .ring = picture->ring,
				       .rows = picture_rows,
				       .context = picture};
	struct resize_axis x = axis_place(&stage->x, region->grid_x, canvas->content_width,
					  region->low_x, region->high_x, picture->region_x,
					  picture->region_width, picture->width);
	struct resize_axis y = axis_place(&stage->y, region->grid_y, canvas->content_height,
					  region->low_y, region->high_y, picture->region_y,
					  picture->region_height, picture->height);
	struct resize_target target = canvas_target(canvas);
	bool whole = !canvas->data && canvas->content_width == canvas->width;

	if (whole && store_bypass(canvas->store))
		target = (struct resize_target){.data = store_bypass(canvas->store),
						.stride = (ptrdiff_t)canvas->stride,
						.channels = canvas->channels,
						.stream = true};
	return resize_region(scratch->resize, &source, &x, &y, &target);
}

/* A sample's planes on their way from the decoder. */
struct planes {
	struct packimg_planes decoded;
	uint32_t rows_ready; /* of Y */
	struct transform_scratch *scratch;
	struct packimg_error *error;
};

struct plane {
	struct planes *all;
	unsigned which;
};

/* Sees to it that a plane's rows before end are there; a resize_source's rows. */
static int plane_rows(void *context, uint32_t end)
{
	const struct plane *plane = context;
	struct planes *all = plane->all;
	const struct packimg_plane *luma = &all->decoded.planes[0];
	const struct packimg_plane *own = &all->decoded.planes[plane->which];
	double rows = (end - own->y) * own->y_factor / luma->y_factor + luma->y;
	uint32_t needed = rows < luma->height ? (uint32_t)ceil(rows - 1e-6) : luma->height;

	if (needed <= all->rows_ready)
		return 0;
	uint64_t start = ticks_now();
	int r = packimg_decode_rows(all->scratch->decoder, needed, &all->rows_ready, all->error);

	all->scratch->times.decode += ticks_since(start);
	return r;
}

/*
 * Resizes a sample by planes. 0; PACKIMG_NO_PLANES, or -ENOTSUP after it has begun, where a sample has to be resized as pixels; other errors
 * as resize_rows.
 */
static int resize_by_planes(struct transform_scratch *scratch, const struct packimg_sample *sample,
			    const struct plan_stage *stage, const struct stage_region *region,
			    struct canvas *canvas, struct packimg_error *error)
{
	struct planes all = {.scratch = scratch, .error = error};
	struct resize_target target = canvas_target(canvas);
	struct resize_plane planes[3];
	struct plane contexts[3];
	uint32_t hint_width, hint_height;
	struct packimg_region wanted = stage_wanted(stage, region, &hint_width, &hint_height);
	uint64_t start = ticks_now();
	int r = packimg_decode_begin_planes(scratch->decoder, sample, &wanted, hint_width,
					    hint_height, &all.decoded, error);

	scratch->times.decode += ticks_since(start);
	if (r != 0)
		return r;
	for (unsigned i = 0; i < 3; i++) {
		const struct packimg_plane *plane = &all.decoded.planes[i];

		contexts[i] = (struct plane){&all, i};
		planes[i].source = (struct resize_source){
			.data = plane->data,
			.stride = plane->stride,
			.width = plane->width,
			.height = plane->height,
			.channels = 1,
			.ring = plane->ring,
			.first = plane->first,
			.rows = plane_rows,
			.context = &contexts[i],
		};
		planes[i].x = axis_place(&stage->x, region->grid_x, canvas->content_width,
					 region->low_x, region->high_x, plane->x,
					 (double)wanted.width / plane->x_factor, plane->width);
		planes[i].y = axis_place(&stage->y, region->grid_y, canvas->content_height,
					 region->low_y, region->high_y, plane->y,
					 (double)wanted.height / plane->y_factor, plane->height);
	}
	return resize_planes(scratch->resize, planes, &target);
}

/* The rectangle of a picture between two stages. */
static struct picture between_picture(const struct transform_scratch *scratch, unsigned which,
				      const struct plan_stage *stage,
				      const struct stage_region *region)
{
	size_t stride = (size_t)stage->x.source * 3;

	return (struct picture){
		.data = scratch->between[which] + region->low_y * stride +
			(size_t)region->low_x * 3,
		.stride = stride,
		.width = stage->x.source - region->low_x,
		.height = stage->y.source - region->low_y,
		.region_width = region->high_x - region->low_x,
		.region_height = region->high_y - region->low_y,
	};
}

/* Begins a stage's output anew: all that is not image is there then. */
static void canvas_begin(struct canvas *canvas, const struct plan_stage *stage)
{
	struct transform_scratch *scratch = canvas->scratch;

	if (canvas->store && canvas->content_height == canvas->height && !stage->y.reverse) {
		store_begin_stream(canvas->store, scratch->stage);
		if (canvas->store->streaming)
			canvas->data = NULL;
	}
	if (canvas->content_width < canvas->width || canvas->content_height < canvas->height)
		canvas_fill(canvas, stage->fill);
}

/* The pixels of a stage's input that it depends on. */
static void stage_reach(const struct plan_stage *stage, const struct canvas *canvas, bool planes,
			struct stage_region *region)
{
	axis_reach(&stage->x, region->grid_x, canvas->content_width, planes, &region->low_x,
		   &region->high_x);
	axis_reach(&stage->y, region->grid_y, canvas->content_height, planes, &region->low_y,
		   &region->high_y);
}

static int explain_resize(struct packimg_error *error, int result,
			  const struct packimg_sample *sample, const struct plan_stage *stage)
{
	return result == -EINVAL
		       ? explain(error, result, sample,
				 "cannot be resized from %u x %u to %u x %u pixels: a side is at "
				 "most %d",
				 stage->x.source, stage->y.source, stage->x.grid, stage->y.grid,
				 RESIZE_SIDE_MAX)
		       : result;
}

/* Which part of the canvas shows image, and from where in the stage's grid on. */
static void canvas_content(struct canvas *canvas, const struct plan_stage *stage,
			   struct stage_region *region)
{
	canvas->content_width = plan_axis_content(&stage->x, &canvas->x, &region->grid_x);
	canvas->content_height = plan_axis_content(&stage->y, &canvas->y, &region->grid_y);
	if (canvas->content_width == 0 || canvas->content_height == 0)
		canvas->x = canvas->y = canvas->content_width = canvas->content_height = 0;
}

/* Runs stage number index of a plan onto its canvas. */
static int stage_run(struct transform_scratch *scratch, const struct packimg_sample *sample,
		     const struct plan *plan, unsigned index, struct canvas *canvas,
		     struct packimg_error *error)
{
	const struct plan_stage *stage = &plan->stages[index];
	bool copies = plan_axis_copies(&stage->x) && plan_axis_copies(&stage->y);
	struct stage_region region;
	struct picture picture;
	int r;

	canvas_content(canvas, stage, &region);
	canvas_begin(canvas, stage);
	if (canvas->content_width == 0)
		return 0;
	if (index == 0 && stage->chroma_fast && !copies) {
		stage_reach(stage, canvas, true, &region);
		r = resize_by_planes(scratch, sample, stage, &region, canvas, error);
		if (r != PACKIMG_NO_PLANES && r != -ENOTSUP)
			return explain_resize(error, r, sample, stage);
		canvas_begin(canvas, stage);
	}
	stage_reach(stage, canvas, false, &region);
	if (index == 0) {
		r = decode_begin(scratch, sample, stage, &region, &picture, error);
		if (r < 0)
			return r;
	} else {
		picture = between_picture(scratch, (index - 1) % 2, stage, &region);
	}
	if (copies)
		return copy_rows(stage, &picture, canvas);
	r = resize_rows(scratch, stage, &region, &picture, canvas);
	return explain_resize(error, r, sample, stage);
}

static int check_sample(const struct transform *transform, const struct packimg_sample *sample,
			const struct transform_shape *shape, struct packimg_error *error)
{
	if (transform_needs_statistics(transform))
		return explain(error, -EINVAL, sample,
			       "normalize(dataset) has not been given the dataset's statistics");
	if (transform->fixed_width &&
	    (sample->width != transform->fixed_width || sample->height != transform->fixed_height))
		return explain(error, -EINVAL, sample,
			       "is %u x %u pixels, but this pipeline was fixed to %u x %u; add a "
			       "step that sets "
			       "the size, such as resize(%ux%u)",
			       sample->width, sample->height, transform->fixed_width,
			       transform->fixed_height, transform->fixed_width,
			       transform->fixed_height);
	if (shape->width == 0)
		return explain(error, -EINVAL, sample,
			       "this pipeline does not set a size; add a step that does, such as "
			       "random_resized_crop(224)");
	return 0;
}

/* Makes a stage's output as pixels, and runs its effects on them. Then they are in scratch->effects, or without any in between. */
static int stage_keep(struct transform_scratch *scratch, const struct packimg_sample *sample,
		      const struct plan *plan, unsigned index, struct packimg_error *error)
{
	const struct plan_stage *stage = &plan->stages[index];
	uint32_t channels = stage->effect_count ? 4 : 3;
	struct canvas canvas = {.stride = (size_t)stage->x.count * channels,
				.width = stage->x.count,
				.height = stage->y.count,
				.channels = channels,
				.bytes = true,
				.scratch = scratch};
	bool between = index + 1 < plan->stage_count;
	int r = between ? between_reserve(scratch, index % 2,
					  (size_t)canvas.width * canvas.height * 3)
			: 0;

	canvas.data = scratch->between[index % 2];
	if (r == 0 && stage->effect_count)
		r = effects_begin(scratch->effects, canvas.width, canvas.height, &canvas.data);
	if (r == 0)
		r = stage_run(scratch, sample, plan, index, &canvas, error);
	if (r < 0 || stage->effect_count == 0)
		return r;
	uint64_t start = ticks_now();

	r = effects_run(scratch->effects, plan->effects.effects + stage->effect_begin,
			stage->effect_count);
	scratch->times.augment += ticks_since(start);
	return r;
}

/* Brings the picture of a stage with effects to where the next one reads. */
static void effects_to_between(struct transform_scratch *scratch, const struct plan_stage *stage,
			       uint8_t *pixels)
{
	for (uint32_t y = 0; y < stage->y.count; y++, pixels += (size_t)stage->x.count * 3)
		effects_take_row(scratch->effects, y, pixels);
}

/* Brings the picture of the last stage into the finished sample. */
static void effects_to_store(struct transform_scratch *scratch, const struct transform_shape *shape,
			     struct store *store)
{
	bool whole = store_row_channels(shape) == 4;
	uint64_t start = ticks_now();

	store_begin_stream(store, scratch->stage);
	for (uint32_t y = 0; y < shape->height; y++) {
		uint8_t *place = whole ? NULL : store_place(store, y);

		if (!whole)
			effects_take_row(scratch->effects, y, place ? place : scratch->row);
		if (place)
			store_placed(store);
		else
			store_row(store, y,
				  whole ? effects_row(scratch->effects, y) : scratch->row);
	}
	scratch->times.store += ticks_since(start);
}

static int apply_plan(const struct transform *transform, struct transform_scratch *scratch,
		      const struct packimg_sample *sample, const struct plan *plan,
		      const struct transform_shape *shape, void *output,
		      struct packimg_error *error)
{
	const double none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
	unsigned last = plan->stage_count - 1;
	bool kept = plan->stages[last].effect_count > 0;
	struct store store;
	int r;

	for (unsigned i = 0; i < (kept ? last + 1 : last); i++) {
		r = stage_keep(scratch, sample, plan, i, error);
		if (r < 0)
			return r;
		if (i < last && plan->stages[i].effect_count)
			effects_to_between(scratch, &plan->stages[i], scratch->between[i % 2]);
	}
	bool normalize = transform->statistics != STATISTICS_NONE;

	store_init(&store, scratch->isa, shape, normalize ? transform->mean : none,
		   normalize ? transform->std : one, output);
	if (kept) {
		effects_to_store(scratch, shape, &store);
		store_finish(&store);
		return 0;
	}
	struct canvas canvas = {.stride = (size_t)shape->width * shape->channels,
				.width = shape->width,
				.height = shape->height,
				.channels = store_row_channels(shape),
				.store = &store,
				.scratch = scratch};

	/* Interleaved bytes can be written where they belong. */
	canvas.bytes = shape->element == TRANSFORM_U8 && shape->layout == TRANSFORM_NHWC;
	canvas.data = canvas.bytes ? output : NULL;
	r = stage_run(scratch, sample, plan, last, &canvas, error);
	store_finish(&store);
	return r;
}

static int apply(const struct transform *transform, struct transform_scratch *scratch,
		 const struct packimg_sample *sample, uint64_t seed, uint64_t epoch, void *output,
		 struct packimg_error *error)
{
	struct transform_error reason;
	struct transform_shape shape;
	struct plan plan;
	int r;

	transform_shape(transform, epoch, &shape);
	r = check_sample(transform, sample, &shape, error);
	if (r < 0)
		return r;
	r = plan_make(transform, sample->width, sample->height, seed, epoch, sample->index, &plan,
		      &reason);
	if (r < 0)
		return explain(error, r, sample, "%s", reason.text);
	r = apply_plan(transform, scratch, sample, &plan, &shape, output, error);
	for (unsigned i = 0; r == 0 && i < plan.erasure_count; i++)
		erase_sample(&plan.erasures[i], &shape, output);
	return r;
}

int transform_apply(const struct transform *transform, struct transform_scratch *scratch,
		    const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
		    void *output, struct transform_times *times, struct packimg_error *error)
{
	struct transform_times *mine = &scratch->times;
	uint64_t start = times ? ticks_now() : 0;

	*mine = (struct transform_times){0};
	int r = apply(transform, scratch, sample, seed, epoch, output, error);

	if (times) {
		uint64_t rest = ticks_since(start) - mine->decode - mine->augment;

		/* An estimate must not exceed what it is part of. */
		if (mine->store > rest)
			mine->store = rest;
		times->decode += mine->decode;
		times->augment += mine->augment;
		times->store += mine->store;
		times->resize += rest - mine->store;
	}
	return r;
}

/* What transform_apply will ask the decoder for; false: nothing. */
static bool ahead_part(const struct transform *transform, const struct packimg_sample *sample,
		       uint64_t seed, uint64_t epoch, struct packimg_ahead *ret_part)
{
	struct transform_error reason;
	struct transform_shape shape;
	struct stage_region region;
	struct canvas canvas = {0};
	struct plan plan;

	transform_shape(transform, epoch, &shape);
	if (check_sample(transform, sample, &shape, NULL) < 0 ||
	    plan_make(transform, sample->width, sample->height, seed, epoch, sample->index, &plan,
		      &reason) < 0)
		return false;
	const struct plan_stage *stage = &plan.stages[0];
	bool copies = plan_axis_copies(&stage->x) && plan_axis_copies(&stage->y);

	canvas_content(&canvas, stage, &region);
	if (canvas.content_width == 0)
		return false;
	stage_reach(stage, &canvas, stage->chroma_fast && !copies, &region);
	ret_part->sample = sample;
	ret_part->region = stage_wanted(stage, &region, &ret_part->size_hint_width,
					&ret_part->size_hint_height);
	return true;
}

void transform_ahead(const struct transform *transform, struct transform_scratch *scratch,
		     const struct packimg_sample *samples, uint32_t count, uint64_t seed,
		     uint64_t epoch)
{
	struct packimg_ahead parts[PACKIMG_AHEAD_MAX];
	uint32_t taken = 0;

	for (uint32_t i = 0; i < count && taken < PACKIMG_AHEAD_MAX; i++)
		taken += ahead_part(transform, &samples[i], seed, epoch, &parts[taken]);
	packimg_decode_ahead(scratch->decoder, parts, taken);
}
