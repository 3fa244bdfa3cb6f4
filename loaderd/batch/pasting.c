#include "loaderd/batch/pasting.h"

#include "format/base/polygons.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Parts of the work begin at a multiple of this, so that their elements are aligned. */
enum { WORK_ALIGNMENT = 64 };

int pasting_begin(const struct value_table *values, const struct ring_geometry *layout,
		  uint64_t seed, uint64_t epoch, uint64_t index, struct io_buffer *buffer,
		  struct io_buffer *work, struct pasting *ret_pasting)
{
	struct pasting pasting = {.layout = layout, .work_bytes = work};
	paste_draw(values->views[0].made.pipeline, seed, epoch, index, &pasting.draw);
	if (pasting.draw.on) {
		uint8_t *slots = io_buffer_take(buffer, PASTING_SAMPLES * layout->slot_size);
		if (!slots)
			return -ENOMEM;
		pasting.slots[PASTING_BELOW] = (struct ring_slot *)slots;
		pasting.slots[PASTING_ABOVE] = (struct ring_slot *)(slots + layout->slot_size);
	}
	*ret_pasting = pasting;
	return 0;
}

int pasting_put_below(const struct value_table *values, const struct value_origin *origin,
		      struct pasting *pasting, uint8_t *flags, struct packimg_error *error)
{
	return values_put(values, origin, pasting->layout, pasting->slots[PASTING_BELOW], 0, flags,
			  error);
}

static uint8_t *section_of(const struct pasting *pasting, unsigned sample, uint32_t v)
{
	return (uint8_t *)pasting->slots[sample] + pasting->layout->sections[v].offset;
}

static uint8_t *rows_of(const struct pasting *pasting, unsigned sample, uint32_t v)
{
	return section_of(pasting, sample, v) + ring_ragged_offset(1);
}

/* Returns where a section keeps the number of its rows. */
static uint32_t *count_of(const struct pasting *pasting, unsigned sample, uint32_t v)
{
	return (uint32_t *)section_of(pasting, sample, v) + 1;
}

static bool is_pasted(const struct value_table *values, uint32_t v)
{
	return values->values[v].boxes == values->paste.boxes;
}

/* Returns true for the mask that tells the pixels of objects. Section 0 is none. */
static bool is_mask(const struct value_table *values, uint32_t v)
{
	return v > 0 && v == values->paste.mask;
}

static bool has_picture(const struct value *value)
{
	return value->source == VALUE_IMAGE || value->source == VALUE_PICTURE;
}

/* Describes a sample's objects, without memory. */
static struct paste_objects find_objects(const struct value_table *values,
					 const struct pasting *pasting, unsigned sample,
					 const struct pipeline_shape *shape)
{
	const struct value_paste *plan = &values->paste;
	struct paste_objects objects = {.width = shape->width, .height = shape->height};
	if (plan->mask > 0) {
		enum schema_element element =
			(enum schema_element)values->values[plan->numbers].element;
		objects.mask = section_of(pasting, sample, plan->mask);
		objects.element = (enum schema_element)values->values[plan->mask].element;
		objects.most = paste_largest_number(objects.element);
		if (paste_largest_number(element) < objects.most)
			objects.most = paste_largest_number(element);
		objects.count = *count_of(pasting, sample, plan->numbers);
		return objects;
	}
	bool normalized = values->values[plan->polygons].coordinates.normalized;
	objects.vertices = (const float *)rows_of(pasting, sample, plan->polygons);
	objects.vertex_count = *count_of(pasting, sample, plan->polygons);
	/* values_put() has compared the number of objects with that of boxes */
	objects.count = (uint32_t)polygons_count(objects.vertices, objects.vertex_count);
	objects.polygons = (struct polygon_mask){.width = shape->width,
						 .height = shape->height,
						 .scale_x = normalized ? shape->width : 1,
						 .scale_y = normalized ? shape->height : 1};
	return objects;
}

/* Takes `size` bytes at *at. base: NULL to count them. */
static void *take(uint8_t *base, size_t *at, size_t size)
{
	void *taken = base ? base + *at : NULL;
	*at += size + -size % WORK_ALIGNMENT;
	return taken;
}

/* Places what is computed in memory from `base` on, or nowhere if it is NULL. Returns its size. */
static size_t place_work(struct pasting *pasting, struct paste_number *numbers[PASTING_SAMPLES],
			 uint8_t *base)
{
	struct paste_objects *objects = pasting->objects;
	const struct paste_objects *below = &objects[PASTING_BELOW];
	const size_t pixels = (size_t)below->width * below->height;
	size_t at = 0, above_count = objects[PASTING_ABOVE].count, below_count = below->count;
	pasting->cover = take(base, &at, pixels);
	for (unsigned i = 0; i < PASTING_SAMPLES; i++) {
		pasting->areas[i] = take(base, &at, objects[i].count * sizeof(*pasting->areas[i]));
		numbers[i] = take(base, &at, objects[i].count * sizeof(*numbers[i]));
	}
	pasting->visible = take(base, &at, below_count * sizeof(*pasting->visible));
	pasting->numbers = take(base, &at, above_count * sizeof(*pasting->numbers));
	pasting->chosen = take(base, &at, above_count);
	pasting->keep = take(base, &at, below_count);
	uint8_t *inside = below->mask
				  ? NULL
				  : take(base, &at, polygon_mask_size(below->width, below->height));
	for (unsigned i = 0; i < PASTING_SAMPLES && inside; i++) {
		objects[i].polygons.inside = inside;
		objects[i].polygons.starts = inside + pixels;
	}
	return at;
}

static int begin_work(const struct value_table *values, struct pasting *pasting)
{
	struct paste_objects *objects = pasting->objects;
	struct paste_number *numbers[PASTING_SAMPLES];
	size_t size = place_work(pasting, numbers, NULL);
	uint8_t *base = io_buffer_take(pasting->work_bytes, size);
	if (!base)
		return -ENOMEM;
	place_work(pasting, numbers, base);
	memset(pasting->cover, 0, (size_t)objects->width * objects->height);
	if (!objects->mask)
		memset(objects->polygons.inside, 0,
		       polygon_mask_size(objects->width, objects->height));
	for (unsigned i = 0; i < PASTING_SAMPLES && objects->mask; i++) {
		const uint32_t v = values->paste.numbers;
		paste_numbers_load((enum schema_element)values->values[v].element,
				   rows_of(pasting, i, v), objects[i].count, numbers[i]);
		paste_numbers_sort(numbers[i], objects[i].count);
		objects[i].numbers = numbers[i];
	}
	return 0;
}

/* Chooses objects of the sample above, and finds their pixels. */
static int choose_objects(const struct value_table *values, const struct value_origin *origin,
			  struct pasting *pasting)
{
	struct paste_objects *above = &pasting->objects[PASTING_ABOVE];
	struct paste_area *areas;
	for (unsigned i = 0; i < PASTING_SAMPLES; i++)
		pasting->objects[i] = find_objects(values, pasting, i, origin->shape);
	int r = begin_work(values, pasting);
	if (r < 0)
		return r;
	areas = pasting->areas[PASTING_ABOVE];
	paste_choose(&pasting->draw, pasting->chosen, above->count);
	paste_measure(above, NULL, areas, NULL);
	for (uint32_t i = 0; i < above->count; i++)
		pasting->chosen[i] = pasting->chosen[i] && areas[i].pixels > 0;
	if (above->mask)
		paste_renumber(&pasting->objects[PASTING_BELOW], above, pasting->chosen,
			       pasting->numbers);
	if (paste_window(origin->pipeline, above, areas, pasting->chosen, &pasting->window))
		paste_cover(above, pasting->chosen, pasting->cover);
	else
		pasting_leave_out(pasting);
	return 0;
}

int pasting_put_above(const struct value_table *values, const struct value_origin *origin,
		      struct pasting *pasting, struct packimg_error *error)
{
	struct value_origin part = *origin;
	struct ring_slot *slot = pasting->slots[PASTING_ABOVE];
	bool skip[RING_SECTIONS_MAX];
	uint8_t flags = 0;
	part.skip = skip;
	pasting_leave_out(pasting);
	for (uint32_t v = 0; v < values->count; v++)
		skip[v] = !is_pasted(values, v) && !is_mask(values, v);
	int r = values_put(values, &part, pasting->layout, slot, 0, &flags, error);
	if (r < 0)
		return r;
	r = choose_objects(values, origin, pasting);
	if (r < 0)
		snprintf(
			error->text, sizeof(error->text), "sample %llu: no memory to paste it",
			(unsigned long long)dataset_number(origin->dataset, origin->sample->index));
	if (r < 0 || !pasting->cover)
		return r;
	for (uint32_t v = 0; v < values->count; v++)
		skip[v] = !has_picture(&values->values[v]) || is_mask(values, v);
	pipeline_scratch_window(origin->scratch, pasting->window);
	r = values_put(values, &part, pasting->layout, slot, 0, &flags, error);
	pipeline_scratch_window(origin->scratch, (struct pipeline_window){0});
	return r;
}

void pasting_leave_out(struct pasting *pasting)
{
	pasting->cover = NULL;
}

/* Removes the rows of a sample's objects whose keep[i] is 0. */
static void keep_rows(const struct value *value, const struct pasting *pasting, unsigned sample,
		      uint32_t v, const uint8_t *keep)
{
	uint8_t *rows = rows_of(pasting, sample, v);
	uint32_t *count = count_of(pasting, sample, v), objects = pasting->objects[sample].count;
	*count = (uint32_t)(value->objects ? polygons_keep(rows, *count, keep, objects)
					   : rows_keep(rows, value->row, keep, objects));
}

/* Writes the new numbers of the objects that are pasted. */
static void put_numbers(const struct value *value, const struct pasting *pasting, uint32_t v)
{
	uint8_t *rows = rows_of(pasting, PASTING_ABOVE, v);
	for (uint32_t i = 0; i < pasting->objects[PASTING_ABOVE].count; i++) {
		/* the low bytes of a little-endian number are the narrower number */
		int64_t number = pasting->numbers[i];
		memcpy(rows + (size_t)i * value->row, &number, value->row);
	}
}

/* Puts the rows of pasted objects behind those that are left of the sample below. */
static void paste_rows(const struct value_table *values, const struct pasting *pasting, uint32_t v)
{
	const struct value *value = &values->values[v];
	uint32_t *count = count_of(pasting, PASTING_BELOW, v);
	uint8_t *rows = rows_of(pasting, PASTING_BELOW, v);
	const struct paste_area *whole = pasting->areas[PASTING_BELOW];
	if (value->coordinates.role == SCHEMA_BOXES)
		for (uint32_t i = 0; i < pasting->objects[PASTING_BELOW].count; i++)
			if (pasting->keep[i])
				paste_shrink_box(&value->coordinates,
						 &pasting->objects[PASTING_BELOW], &whole[i],
						 &pasting->visible[i],
						 (float *)(rows + (size_t)i * value->row));
	keep_rows(value, pasting, PASTING_BELOW, v, pasting->keep);
	if (values->paste.mask > 0 && v == values->paste.numbers)
		put_numbers(value, pasting, v);
	keep_rows(value, pasting, PASTING_ABOVE, v, pasting->chosen);
	uint32_t above = *count_of(pasting, PASTING_ABOVE, v);
	memcpy(rows + (size_t)*count * value->row, rows_of(pasting, PASTING_ABOVE, v),
	       (size_t)above * value->row);
	*count += above;
}

static void paste_picture(const struct value_table *values, const struct pasting *pasting,
			  uint32_t v, const struct pipeline_shape *shape)
{
	const struct value *value = &values->values[v];
	size_t pixel = ring_element_size(value->element) * (size_t)value->channels;
	uint32_t planes = 1;
	if (is_mask(values, v)) {
		paste_mask(&pasting->objects[PASTING_ABOVE], pasting->numbers, pasting->cover,
			   section_of(pasting, PASTING_BELOW, v));
		return;
	}
	if (value->source == VALUE_IMAGE) {
		planes = shape->layout == PIPELINE_NCHW ? shape->channels : 1;
		pixel = shape->sample_size / ((size_t)shape->width * shape->height * planes);
	}
	paste_pixels(pasting->cover, shape->width, shape->height, &pasting->window, pixel, planes,
		     section_of(pasting, PASTING_ABOVE, v), section_of(pasting, PASTING_BELOW, v));
}

static void paste_above(const struct value_table *values, struct pasting *pasting,
			const struct pipeline_shape *shape)
{
	struct paste_objects *below = &pasting->objects[PASTING_BELOW];
	struct paste_area *whole = pasting->areas[PASTING_BELOW], *visible = pasting->visible;
	paste_measure(below, pasting->cover, whole, visible);
	for (uint32_t i = 0; i < below->count; i++)
		pasting->keep[i] =
			paste_keeps(values->views[0].made.pipeline, &whole[i], &visible[i]);
	for (uint32_t v = 0; v < values->count; v++)
		if (is_pasted(values, v))
			paste_rows(values, pasting, v);
		else if (has_picture(&values->values[v]))
			paste_picture(values, pasting, v, shape);
}

void pasting_finish(const struct value_table *values, struct pasting *pasting,
		    const struct pipeline_shape *shape, const struct ring_geometry *layout,
		    struct ring_slot *slot, uint32_t i)
{
	const uint32_t batch_size = layout->batch_size_max;
	if (pasting->cover)
		paste_above(values, pasting, shape);
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		const struct ring_section *place = &layout->sections[v];
		uint8_t *to = (uint8_t *)slot + place->offset;
		const uint8_t *from = section_of(pasting, PASTING_BELOW, v);
		if (value->source == VALUE_FLAGS || value->source == VALUE_TARGET ||
		    value->source == VALUE_SHARE)
			continue;
		if (has_picture(value)) {
			size_t size = values_picture_size(value, shape);
			memcpy(to + i * size, from, size);
		} else if (place->kind == RING_RAGGED) {
			uint32_t *index = (uint32_t *)to,
				 count = *count_of(pasting, PASTING_BELOW, v);
			index[i] = (uint32_t)(i * place->stride / value->row);
			index[batch_size + i] = count;
			memcpy(to + ring_ragged_offset(batch_size) + i * place->stride,
			       rows_of(pasting, PASTING_BELOW, v), (size_t)count * value->row);
		} else {
			memcpy(to + i * place->stride, from, place->stride);
		}
	}
}
