#include "format/augment/apply/stage.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	/* Rows to prefetch ahead of the current one when copying. */
	COPY_AHEAD = 8,
	/*
	 * Extra margin for chroma: one chroma sample covers at most four pixels, two on either side
	 * of its centre.
	 */
	CHROMA_PIXELS_MAX = 4,
};

/* The part of the grid that a stage shows, and the input pixels that this part depends on. */
struct stage_region {
	int64_t grid_x, grid_y; /* first grid pixel shown */
	uint32_t low_x, high_x, low_y, high_y;
};

/*
 * Input pixels of a stage: in a mapped file (cold), in memory, or decoded on demand into a ring.
 * region_x and region_y are the coordinates in data of the region's pixel (0, 0); they are
 * fractional if decoded at a reduced scale.
 */
struct picture {
	struct resize_source source; /* may extend beyond the region */
	double region_x, region_y;
	double region_width, region_height;
};

/* State of decoding rows. */
struct decoding {
	struct pipeline_scratch *scratch;
	struct packimg_error *error;
	uint32_t rows_ready; /* decoded rows; for planes, rows of Y */
};

int sample_explain(struct packimg_error *error, int result, const struct packimg_sample *sample,
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

/*
 * Computes the input pixels [*ret_low, *ret_high) that grid pixels grid .. grid + count - 1 of an
 * axis depend on. If planes is set, includes pixels on which they depend through separately resized
 * chroma.
 */
static void axis_reach(const struct geometry_axis *axis, int64_t grid, uint32_t count, bool planes,
		       bool bicubic, uint32_t *ret_low, uint32_t *ret_high)
{
	if (geometry_axis_copies(axis) && !planes && !bicubic) {
		*ret_low = axis->low + (uint32_t)grid;
		*ret_high = *ret_low + count;
		return;
	}
	double step = (double)(axis->high - axis->low) / axis->grid;
	double support = step > 1 ? step : 1;

	/* One more pixel, because this computation and the filter's may round differently. */
	if (bicubic)
		support = 2 * support + 1;
	if (planes)
		support = CHROMA_PIXELS_MAX / 2 +
			  (step > CHROMA_PIXELS_MAX ? step : CHROMA_PIXELS_MAX);
	double low = floor(axis->low + (grid + 0.5) * step - support + 0.5);
	double high = floor(axis->low + (grid + count - 0.5) * step + support + 0.5);

	*ret_low = low > axis->low ? (uint32_t)low : axis->low;
	*ret_high = high < axis->high ? (uint32_t)high : axis->high;
}

/*
 * Returns the size hint from which the decoder chooses its scale; 0 to require full scale. The hint
 * depends on the whole axis, not on the part shown, so that a crop of a resized picture has the
 * same pixels. pipeline_defer() relies on this.
 */
static uint32_t axis_hint(const struct geometry_axis *axis, uint32_t size)
{
	uint32_t denominator = 8;

	while (denominator > 1 && axis->high - axis->low < (uint64_t)denominator * 2 * axis->grid)
		denominator /= 2;
	return geometry_axis_copies(axis) ? 0 : size / (2 * denominator);
}

/*
 * Converts an axis to the coordinates of a picture that holds pixels low .. high of the stage's
 * input, possibly at a smaller scale.
 */
static struct resize_axis axis_in_picture(const struct geometry_axis *axis, int64_t grid,
					  uint32_t count, uint32_t low, uint32_t high, double begin,
					  double extent, uint32_t size)
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

/* Returns the region and size hints to request from the decoder. */
static struct packimg_region stage_wanted(const struct geometry_stage *stage,
					  const struct stage_region *region,
					  uint32_t *ret_hint_width, uint32_t *ret_hint_height)
{
	uint32_t width = region->high_x - region->low_x, height = region->high_y - region->low_y;

	*ret_hint_width = axis_hint(&stage->x, width);
	*ret_hint_height = axis_hint(&stage->y, height);
	/* An axis that only copies needs full scale, and so does Pillow's filter. */
	if (*ret_hint_width == 0 || *ret_hint_height == 0 || stage->bicubic)
		*ret_hint_width = *ret_hint_height = 0;
	return (struct packimg_region){
		.x = region->low_x, .y = region->low_y, .width = width, .height = height};
}

/* Computes the input pixels that the shown part of a stage depends on. */
static void stage_reach(const struct geometry_stage *stage, const struct canvas *canvas,
			bool planes, struct stage_region *region)
{
	bool copies = geometry_axis_copies(&stage->x) && geometry_axis_copies(&stage->y);
	bool bicubic = stage->bicubic && !copies;

	axis_reach(&stage->x, region->grid_x, canvas->content_width, planes, bicubic,
		   &region->low_x, &region->high_x);
	axis_reach(&stage->y, region->grid_y, canvas->content_height, planes, bicubic,
		   &region->low_y, &region->high_y);
}

/* Decodes the rows before `end`. */
static int decode_rows(struct decoding *decoding, uint32_t end)
{
	if (end <= decoding->rows_ready)
		return 0;
	uint64_t start = ticks_now();
	int r = packimg_decode_rows(decoding->scratch->decoder, end, &decoding->rows_ready,
				    decoding->error);

	decoding->scratch->times.decode += ticks_since(start);
	return r;
}

/* The rows callback of a resize_source: decode_rows(). */
static int picture_rows(void *context, uint32_t end)
{
	return decode_rows(context, end);
}

static int decode_begin(struct decoding *decoding, const struct packimg_sample *sample,
			const struct geometry_stage *stage, const struct stage_region *region,
			struct picture *ret_picture)
{
	struct pipeline_scratch *scratch = decoding->scratch;
	struct packimg_pixels pixels;
	uint32_t hint_width, hint_height;
	struct packimg_region wanted = stage_wanted(stage, region, &hint_width, &hint_height);
	const struct shared_part part = {wanted, hint_width, hint_height};
	uint64_t start = ticks_now();
	int r = shared_pictures_find(&scratch->shared, sample, &part, &pixels)
			? 0
			: packimg_decode_begin(scratch->decoder, sample, &wanted, hint_width,
					       hint_height, &pixels, decoding->error);

	scratch->times.decode += ticks_since(start);
	if (r < 0)
		return r;
	/*
	 * Move the whole pixels of the offset into the pointer: results must not depend on how much
	 * more than the region a codec returns.
	 */
	uint32_t x = (uint32_t)floor(pixels.x + 1e-6), y = (uint32_t)floor(pixels.y + 1e-6);

	*ret_picture = (struct picture){
		.source = {.data = pixels.data + y * pixels.stride + (size_t)x * 3,
			   .stride = pixels.stride,
			   .width = pixels.width - x,
			   .height = pixels.height - y,
			   .channels = 3,
			   .cold = sample->codec == PACKIMG_CODEC_RAW,
			   .ring = pixels.ring,
			   .rows = picture_rows,
			   .context = decoding},
		.region_x = pixels.x - x,
		.region_y = pixels.y - y,
		.region_width = pixels.region_width,
		.region_height = pixels.region_height,
	};
	return 0;
}

static const uint8_t *source_row(const struct resize_source *source, uint32_t row)
{
	return source->data + (size_t)(row & (source->ring - 1)) * source->stride;
}

static int stage_copy_rows(const struct converter_kernels *kernels,
			   const struct geometry_stage *stage, const struct resize_source *source,
			   struct canvas *canvas)
{
	size_t row_size = (size_t)canvas->width * 3;
	bool upright = !stage->x.reverse && !stage->y.reverse;

	if (upright && !source->ring && canvas->bytes && canvas->channels == 3 &&
	    canvas->content_width == canvas->width && canvas->content_height == canvas->height &&
	    source->stride == row_size && canvas->stride == row_size) {
		if (canvas->data)
			memcpy(canvas->data, source->data, canvas->height * row_size);
		else
			converter_rows(canvas->converter, source->data);
		return 0;
	}
	for (uint32_t i = 0; i < canvas->content_height; i++) {
		uint32_t row = stage->y.reverse ? canvas->content_height - 1 - i : i;
		const uint8_t *pixels = source_row(source, i);
		int r = source->ring ? source->rows(source->context, i + 1) : 0;
		uint32_t ahead = i + COPY_AHEAD < canvas->content_height ? i + COPY_AHEAD : i;

		if (r < 0)
			return r;
		for (size_t at = 0; source->cold && at < (size_t)3 * canvas->content_width;
		     at += 64)
			__builtin_prefetch(source->data + ahead * source->stride + at, 0, 2);
		kernels->copy(canvas_row(canvas, row), pixels, canvas->content_width,
			      canvas->channels, stage->x.reverse);
		canvas_row_written(canvas, row);
	}
	return 0;
}

/* Maps index `at` into a grid that is mirrored at its outermost pixels without repeating them. */
static uint32_t stage_reflected(int64_t at, uint32_t grid)
{
	return (uint32_t)(at < 0 ? -at : at < grid ? at : 2 * ((int64_t)grid - 1) - at);
}

/* Makes one row of a stage that shows a reflection. */
static void reflect_row(const struct converter_kernels *kernels, const struct geometry_axis *axis,
			const uint8_t *pixels, uint8_t *output, uint32_t channels)
{
	int64_t low = axis->offset < 0 ? -axis->offset : 0, high = axis->grid - axis->offset;
	uint32_t count = axis->count, begin = low < count ? (uint32_t)low : count;
	uint32_t end = high > count ? count : high > begin ? (uint32_t)high : begin;

	if (begin < end)
		kernels->copy(output + (size_t)(axis->reverse ? count - end : begin) * channels,
			      pixels + (axis->offset + begin) * 3, end - begin, channels,
			      axis->reverse);
	for (uint32_t i = 0; i < count; i++) {
		if (i == begin && begin < end)
			i = end;
		if (i == count)
			break;
		uint8_t *to = output + (size_t)(axis->reverse ? count - 1 - i : i) * channels;

		memcpy(to, pixels + (size_t)3 * stage_reflected(axis->offset + i, axis->grid), 3);
		if (channels == 4)
			to[3] = 0;
	}
}

static void reflect_rows(const struct converter_kernels *kernels,
			 const struct geometry_stage *stage, const uint8_t *picture,
			 struct canvas *canvas)
{
	const struct geometry_axis *y = &stage->y;

	for (uint32_t i = 0; i < y->count; i++) {
		uint32_t row = y->reverse ? y->count - 1 - i : i;
		size_t from = stage_reflected(y->offset + i, y->grid);

		reflect_row(kernels, &stage->x, picture + from * stage->x.source * 3,
			    canvas_row(canvas, row), canvas->channels);
		canvas_row_written(canvas, row);
	}
}

static int resize_rows(struct pipeline_scratch *scratch, const struct geometry_stage *stage,
		       const struct stage_region *region, const struct picture *picture,
		       struct canvas *canvas)
{
	struct resize_axis x = axis_in_picture(&stage->x, region->grid_x, canvas->content_width,
					       region->low_x, region->high_x, picture->region_x,
					       picture->region_width, picture->source.width);
	struct resize_axis y = axis_in_picture(&stage->y, region->grid_y, canvas->content_height,
					       region->low_y, region->high_y, picture->region_y,
					       picture->region_height, picture->source.height);
	struct resize_target target = canvas_target(canvas, true);

	return resize_region(scratch->resize, &picture->source, &x, &y, &target);
}

static struct cubic_axis cubic_axis_in_picture(const struct geometry_axis *axis, int64_t grid,
					       uint32_t count, uint32_t low)
{
	return (struct cubic_axis){
		.size = axis->high - axis->low,
		.grid = axis->grid,
		.first = (uint32_t)grid,
		.count = count,
		.origin = (int64_t)axis->low - low,
		.reverse = axis->reverse,
	};
}

static int resize_rows_cubic(struct pipeline_scratch *scratch, const struct geometry_stage *stage,
			     const struct stage_region *region, const struct picture *picture,
			     struct canvas *canvas)
{
	struct cubic_axis x = cubic_axis_in_picture(&stage->x, region->grid_x,
						    canvas->content_width, region->low_x);
	struct cubic_axis y = cubic_axis_in_picture(&stage->y, region->grid_y,
						    canvas->content_height, region->low_y);
	struct resize_target target = canvas_target(canvas, false);

	return resize_cubic(scratch->resize, &picture->source, &x, &y, &target);
}

/* State of decoding a sample's planes. */
struct planes {
	struct packimg_planes decoded;
	struct decoding decoding;
};

struct plane {
	struct planes *all;
	unsigned which;
};

/* The rows callback of a resize_source for a plane: decodes the plane's rows before `end`. */
static int plane_rows(void *context, uint32_t end)
{
	const struct plane *plane = context;
	struct planes *all = plane->all;
	const struct packimg_plane *luma = &all->decoded.planes[0];
	const struct packimg_plane *own = &all->decoded.planes[plane->which];
	double rows = (end - own->y) * own->y_factor / luma->y_factor + luma->y;
	uint32_t needed = rows < luma->height ? (uint32_t)ceil(rows - 1e-6) : luma->height;

	return decode_rows(&all->decoding, needed);
}

/*
 * Resizes a sample plane by plane. Returns PACKIMG_NO_PLANES, or -ENOTSUP after some rows, if the
 * sample must be resized as pixels; otherwise the errors of resize_rows().
 */
static int resize_by_planes(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
			    const struct geometry_stage *stage, const struct stage_region *region,
			    struct canvas *canvas, struct packimg_error *error)
{
	struct planes all = {.decoding = {.scratch = scratch, .error = error}};
	struct resize_target target = canvas_target(canvas, false);
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
		planes[i].x = axis_in_picture(&stage->x, region->grid_x, canvas->content_width,
					      region->low_x, region->high_x, plane->x,
					      (double)wanted.width / plane->x_factor, plane->width);
		planes[i].y =
			axis_in_picture(&stage->y, region->grid_y, canvas->content_height,
					region->low_y, region->high_y, plane->y,
					(double)wanted.height / plane->y_factor, plane->height);
	}
	return resize_planes(scratch->resize, planes, &target);
}

/* Returns the region's pixels in the picture between two stages. */
static struct picture between_picture(const struct pipeline_scratch *scratch, unsigned which,
				      const struct geometry_stage *stage,
				      const struct stage_region *region)
{
	size_t stride = (size_t)stage->x.source * 3;

	return (struct picture){
		.source = {.data = (const uint8_t *)scratch->between[which].data +
				   region->low_y * stride + (size_t)region->low_x * 3,
			   .stride = stride,
			   .width = stage->x.source - region->low_x,
			   .height = stage->y.source - region->low_y,
			   .channels = 3},
		.region_width = region->high_x - region->low_x,
		.region_height = region->high_y - region->low_y,
	};
}

static int explain_resize(struct packimg_error *error, int result,
			  const struct packimg_sample *sample, const struct geometry_stage *stage)
{
	if (result == -EFBIG)
		return sample_explain(error, -EINVAL, sample,
				      "takes too much memory to be resized from %u x %u to %u x %u "
				      "pixels with interpolation=bicubic: bilinear takes less",
				      stage->x.source, stage->y.source, stage->x.grid,
				      stage->y.grid);
	return result == -EINVAL
		       ? sample_explain(
				 error, result, sample,
				 "cannot be resized from %u x %u to %u x %u pixels: a side is at "
				 "most %d",
				 stage->x.source, stage->y.source, stage->x.grid, stage->y.grid,
				 RESIZE_SIDE_MAX)
		       : result;
}

int stage_run(struct pipeline_scratch *scratch, const struct packimg_sample *sample,
	      const struct geometry *geometry, unsigned index, struct canvas *canvas,
	      struct packimg_error *error)
{
	const struct geometry_stage *stage = &geometry->stages[index];
	bool copies = geometry_axis_copies(&stage->x) && geometry_axis_copies(&stage->y);
	struct decoding decoding = {.scratch = scratch, .error = error};
	struct stage_region region;
	struct picture picture;
	int r;

	canvas_content(canvas, stage, &region.grid_x, &region.grid_y);
	canvas_begin(canvas, stage);
	if (canvas->content_width == 0)
		return 0;
	if (geometry_stage_reflects(stage)) {
		reflect_rows(scratch->kernels, stage, scratch->between[(index - 1) % 2].data,
			     canvas);
		return 0;
	}
	if (index == 0 && stage->chroma_fast && !copies) {
		stage_reach(stage, canvas, true, &region);
		r = resize_by_planes(scratch, sample, stage, &region, canvas, error);
		if (r != PACKIMG_NO_PLANES && r != -ENOTSUP)
			return explain_resize(error, r, sample, stage);
		canvas_begin(canvas, stage);
	}
	stage_reach(stage, canvas, false, &region);
	if (index == 0) {
		r = decode_begin(&decoding, sample, stage, &region, &picture);
		if (r < 0)
			return r;
	} else {
		picture = between_picture(scratch, (index - 1) % 2, stage, &region);
	}
	if (copies)
		return stage_copy_rows(scratch->kernels, stage, &picture.source, canvas);
	r = (stage->bicubic ? resize_rows_cubic : resize_rows)(scratch, stage, &region, &picture,
							       canvas);
	return explain_resize(error, r, sample, stage);
}

bool stage_batched_decode(const struct geometry_stage *stage, const struct packimg_sample *sample,
			  struct packimg_ahead *ret_part)
{
	bool copies = geometry_axis_copies(&stage->x) && geometry_axis_copies(&stage->y);
	struct stage_region region;
	struct canvas canvas = {0};

	canvas_content(&canvas, stage, &region.grid_x, &region.grid_y);
	if (canvas.content_width == 0)
		return false;
	stage_reach(stage, &canvas, stage->chroma_fast && !copies, &region);
	ret_part->sample = sample;
	ret_part->region = stage_wanted(stage, &region, &ret_part->size_hint_width,
					&ret_part->size_hint_height);
	return true;
}
