#include "loaderd/batch/joining.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Pictures begin at a multiple of this, so that their elements are aligned. */
enum { PICTURE_ALIGNMENT = 64 };

static uint8_t *picture_of(const struct value_join *join, uint32_t v)
{
	return join->pictures + join->offsets[v];
}

static size_t pixel_size(const struct value *value)
{
	struct frame_raster form = values_raster_form(value);
	return value->source == VALUE_IMAGE ? 3
					    : packimg_element_size(form.element) * form.channels;
}

static bool has_picture(const struct value *value)
{
	return value->source == VALUE_IMAGE || value->source == VALUE_PICTURE;
}

/* Fills a value's picture, or the tile's part of it. */
static void fill_picture(const struct value_table *values, const struct value_join *join,
			 uint32_t v, const struct mosaic_tile *tile)
{
	struct frame_raster form = values_raster_form(&values->values[v]);
	if (values->values[v].source == VALUE_IMAGE)
		mosaic_fill_image(values->views[0].made.pipeline, &join->mosaic, tile,
				  picture_of(join, v));
	else
		mosaic_fill_raster(&form, &join->mosaic, tile, picture_of(join, v));
}

int joining_begin(const struct value_table *values, uint64_t seed, uint64_t epoch, uint64_t index,
		  struct io_buffer *buffer, struct value_join *ret_join)
{
	uint64_t size = 0;
	*ret_join = (struct value_join){.index = index};
	mosaic_draw(values->views[0].made.pipeline, seed, epoch, index, &ret_join->mosaic);
	uint64_t pixels = (uint64_t)ret_join->mosaic.width * ret_join->mosaic.height;
	for (uint32_t v = 0; v < values->count; v++)
		if (has_picture(&values->values[v])) {
			ret_join->offsets[v] = size;
			size += pixels * pixel_size(&values->values[v]);
			size += -size % PICTURE_ALIGNMENT;
		}
	ret_join->pictures = io_buffer_take(buffer, size);
	if (!ret_join->pictures)
		return -ENOMEM;
	for (uint32_t v = 0; v < values->count; v++)
		if (has_picture(&values->values[v]))
			fill_picture(values, ret_join, v, NULL);
	return 0;
}

static int add_raster(const struct value *value, const struct value_origin *origin, uint32_t v,
		      struct value_join *join, struct packimg_error *error)
{
	struct frame_raster form = values_raster_form(value);
	struct packimg_sample raster;
	int r = io_get_image(origin->io, origin->unit, origin->sample->index, value->image,
			     origin->image_bytes, &raster, error);
	form.width = origin->sample->width;
	form.height = origin->sample->height;
	if (r == -ENODATA) {
		join->flags |= RING_SAMPLE_FIELD_MISSING;
		return 0;
	}
	r = r ?: dataset_verify_image(origin->dataset, &raster, value->image, error);
	return r
		       ?: mosaic_put_raster(origin->pipeline, origin->scratch, &raster, &form,
					    &join->mosaic, &join->tile, picture_of(join, v),
					    origin->times, error);
}

static int add_pictures(const struct value_table *values, const struct value_origin *origin,
			struct value_join *join, struct packimg_error *error)
{
	int r = 0;
	for (uint32_t v = 0; r == 0 && v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (!has_picture(value))
			continue;
		/* again, if an attempt before has left parts of it */
		fill_picture(values, join, v, &join->tile);
		if (value->source == VALUE_IMAGE)
			r = mosaic_put_image(origin->pipeline, origin->scratch, origin->sample,
					     &join->mosaic, &join->tile, picture_of(join, v),
					     origin->times, error);
		else
			r = add_raster(value, origin, v, join, error);
	}
	return r;
}

int joining_add(const struct value_table *values, uint32_t number,
		const struct value_origin *origin, const struct ring_geometry *layout,
		struct ring_slot *slot, uint32_t i, struct value_join *join,
		struct packimg_error *error)
{
	const struct packimg_sample *sample = origin->sample;
	memcpy(join->next, join->rows, sizeof(join->next));
	if (!mosaic_place(&join->mosaic, number, sample->width, sample->height, &join->tile))
		return 0;
	int r = add_pictures(values, origin, join, error);
	pipeline_scratch_tile(origin->scratch, &join->tile);
	r = r ?: values_add_rows(values, origin, layout, slot, i, join, error);
	pipeline_scratch_tile(origin->scratch, NULL);
	return r;
}

void joining_keep(struct value_join *join)
{
	memcpy(join->rows, join->next, sizeof(join->rows));
}

void joining_leave_out(const struct value_table *values, struct value_join *join)
{
	if (join->tile.width == 0 || join->tile.height == 0)
		return;
	for (uint32_t v = 0; v < values->count; v++)
		if (has_picture(&values->values[v]))
			fill_picture(values, join, v, &join->tile);
}

int joining_finish(const struct value_table *values, const struct value_origin *origin,
		   const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
		   uint8_t *flags, struct packimg_error *error)
{
	values_set_rows(values, layout, slot, i, origin->join);
	*flags |= origin->join->flags;
	return values_put(values, origin, layout, slot, i, flags, error);
}
