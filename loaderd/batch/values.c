#include "loaderd/batch/values.h"

#include "format/base/copy_once.h"
#include "format/base/half.h"
#include "format/base/polygons.h"
#include "loaderd/batch/derived_values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Returns how many of the first `capacity` bytes form whole UTF-8 characters. If the bytes change
 * meanwhile, the result differs but never exceeds `capacity`.
 */
static uint32_t cut_text(const uint8_t *bytes, uint32_t capacity)
{
	uint32_t size = capacity;
	for (unsigned i = 0; i < 3 && size > 0 && (bytes[size] & 0xc0) == 0x80; i++)
		size--;
	return size;
}

void values_init(struct value_table *values, const struct pipeline *pipeline)
{
	*values = (struct value_table){.version = RING_VERSION_1,
				       .count = RING_FIRST_FIELD,
				       .view_count = pipeline_view_count(pipeline),
				       .values = {
					       [RING_IMAGES] = {.source = VALUE_IMAGE},
					       [RING_LABELS] = {.source = VALUE_LABEL},
					       [RING_SAMPLES] = {.source = VALUE_SAMPLE},
					       [RING_FLAGS] = {.source = VALUE_FLAGS},
				       }};
	for (uint32_t i = 0; i < values->view_count; i++)
		values->views[i] = (struct value_view){.made = pipeline_view(pipeline, i)};
}

uint32_t values_images(const struct value_table *values, uint8_t *ret_images)
{
	uint32_t count = 0;
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (value->source == VALUE_PICTURE && !memchr(ret_images, (int)value->image, count))
			ret_images[count++] = (uint8_t)value->image;
	}
	return count;
}

static const char *value_name(const struct value *value, const struct dataset *dataset)
{
	struct packimg_field field;
	if (value->name)
		return value->name;
	if (value->source != VALUE_FIELD)
		return value->source == VALUE_KEY ? "__key__" : "__deferred__";
	return packimg_field(dataset->image, value->field, &field) < 0 ? "" : field.name;
}

/*
 * Makes the bytes to deliver readable, plus the next byte, which shows whether text may be cut
 * before it.
 */
static int fetch_bytes(const struct value_origin *origin, const struct value *value,
		       struct packimg_value *stored)
{
	const struct dataset *dataset = origin->dataset;
	size_t size = stored->size;
	if (dataset->mapped || value->source == VALUE_DEFERRED || size == 0)
		return 0;
	if (size > value->capacity)
		size = (size_t)value->capacity + 1;
	uint8_t *bytes = io_buffer_take(origin->bytes, size);
	if (!bytes)
		return -ENOMEM;
	int r = packimg_read(dataset->image, origin->sample->index, stored->bytes, bytes, size);
	stored->bytes = bytes;
	return r;
}

/* Writes a record {uint32 size; data[]}, filled up with zeros. */
static int put_record(const struct value *value, const struct value_origin *origin, bool whole,
		      struct packimg_value *stored, uint8_t *cell, size_t stride, uint8_t *flags)
{
	uint32_t size = (uint32_t)stored->size;
	if (stored->size > value->capacity && whole)
		return -EINVAL;
	int r = fetch_bytes(origin, value, stored);
	if (r < 0)
		return r;
	if (stored->size > value->capacity) {
		size = (uint32_t)value->capacity;
		if (value->type == PACKIMG_FIELD_TEXT)
			size = cut_text(stored->bytes, size);
		*flags |= RING_SAMPLE_FIELD_CUT;
	}
	memcpy(cell, &size, sizeof(size));
	memcpy(cell + sizeof(size), stored->bytes, size);
	memset(cell + sizeof(size) + size, 0, stride - sizeof(size) - size);
	return 0;
}

/* Writes a number of an int64 column. Returns -ERANGE if the element cannot hold it. */
static int put_integer(int64_t number, uint8_t element, void *cell)
{
	static const struct {
		int64_t least, most;
	} ranges[] = {
		[RING_U8] = {0, UINT8_MAX},
		[RING_U16] = {0, UINT16_MAX},
		[RING_I16] = {INT16_MIN, INT16_MAX},
		[RING_I32] = {INT32_MIN, INT32_MAX},
		[RING_I64] = {INT64_MIN, INT64_MAX},
		[RING_U64] = {INT64_MIN, INT64_MAX}, /* as the int64 of the same bits */
	};
	if (element >= sizeof(ranges) / sizeof(*ranges) || number < ranges[element].least ||
	    number > ranges[element].most)
		return -ERANGE;
	/* The low bytes of a little-endian two's complement are the narrower number. */
	memcpy(cell, &number, ring_element_size(element));
	return 0;
}

/* Writes a number of a float64 column. Returns -ERANGE if the element is none of those. */
static int put_real(double number, uint8_t element, void *cell)
{
	const float single = (float)number;
	uint16_t bits;
	switch (element) {
	case RING_F16:
	case RING_BF16:
		bits = element == RING_F16 ? float_to_half(single) : float_to_bfloat(single);
		memcpy(cell, &bits, sizeof(bits));
		return 0;
	case RING_F32:
		memcpy(cell, &single, sizeof(single));
		return 0;
	case RING_F64:
		memcpy(cell, &number, sizeof(number));
		return 0;
	default:
		return -ERANGE;
	}
}

static int put_scalar(const struct value *value, const struct packimg_value *stored, uint8_t *cell)
{
	return value->type == PACKIMG_FIELD_INT64 ? put_integer(stored->int64, value->element, cell)
						  : put_real(stored->float64, value->element, cell);
}

/* Copies a value of fixed shape. */
static int put_dense(const struct value *value, const struct value_origin *origin,
		     struct packimg_value *stored, uint8_t *cell)
{
	if (stored->size != value->row)
		return -EBADMSG;
	int r = fetch_bytes(origin, value, stored);
	if (r == 0)
		memcpy(cell, stored->bytes, stored->size);
	return r;
}

/*
 * Copies the rows of a value to its place in a ragged section, behind `before` others, and says
 * where they are.
 */
static int put_rows(const struct value *value, const struct value_origin *origin,
		    struct packimg_value *stored, uint8_t *section, uint64_t stride,
		    uint32_t batch_size, uint32_t i, uint32_t before)
{
	uint32_t *index = (uint32_t *)section;
	if (stored->size > value->capacity)
		return value->longest_known ? -EBADMSG : -EINVAL;
	if (stored->size % value->row != 0)
		return -EBADMSG;
	int r = fetch_bytes(origin, value, stored);
	if (r < 0)
		return r;
	if (stored->size > 0)
		memcpy(section + ring_ragged_offset(batch_size) + i * stride +
			       (size_t)before * value->row,
		       stored->bytes, stored->size);
	index[i] = (uint32_t)(i * stride / value->row);
	index[batch_size + i] = before + (uint32_t)(stored->size / value->row);
	return 0;
}

static int find_value(const struct value *value, const struct value_origin *origin,
		      struct packimg_value *ret_stored)
{
	const struct packimg *image = origin->dataset->image;
	const char *name;
	if (value->source == VALUE_DEFERRED) {
		uint32_t size;
		*ret_stored = (struct packimg_value){.present = true};
		ret_stored->bytes = (const void *)pipeline_deferred(origin->scratch, &size);
		ret_stored->size = size;
		return 0;
	}
	if (value->source == VALUE_FIELD)
		return packimg_value(image, origin->sample->index, value->field, ret_stored);
	*ret_stored = (struct packimg_value){0};
	int r = packimg_source(image, origin->sample->index, &name, &ret_stored->size);
	ret_stored->bytes = name;
	ret_stored->present = ret_stored->size > 0;
	return r;
}

/* section: the value's section of the slot. before: rows that are already there. */
static int put_field(const struct value_table *values, uint32_t v,
		     const struct value_origin *origin, const struct ring_geometry *layout,
		     uint8_t *section, uint32_t i, uint32_t before, struct packimg_value *stored,
		     uint8_t *flags)
{
	const struct value *value = &values->values[v];
	const uint64_t stride = layout->sections[v].stride;
	uint8_t *cell = section + i * stride;
	int r = find_value(value, origin, stored);
	if (r < 0)
		return r;
	if (!stored->present)
		*flags |= RING_SAMPLE_FIELD_MISSING;
	if (layout->sections[v].kind == RING_RAGGED)
		return put_rows(value, origin, stored, section, stride, layout->batch_size_max, i,
				before);
	if (!stored->present) {
		memset(cell, 0, stride);
		return 0;
	}
	if (value->type == PACKIMG_FIELD_INT64 || value->type == PACKIMG_FIELD_FLOAT64)
		return put_scalar(value, stored, cell);
	if (layout->sections[v].kind == RING_DENSE)
		return put_dense(value, origin, stored, cell);
	return put_record(value, origin, values->whole, stored, cell, stride, flags);
}

/* Sets the size of the image in whose frame a value is. */
static int frame_size(const struct value *value, const struct value_origin *origin,
		      uint32_t *ret_width, uint32_t *ret_height, struct packimg_error *error)
{
	struct packimg_sample image = *origin->sample;
	int r = 0;
	if (value->frame != VALUE_FIRST_IMAGE)
		r = dataset_image(origin->dataset, origin->sample->index,
				  value->frame - VALUE_FURTHER_IMAGE, &image, error);
	*ret_width = image.width;
	*ret_height = image.height;
	return r;
}

struct frame_raster values_raster_form(const struct value *value)
{
	struct frame_raster form = {.number = 1 + value->image,
				    .element = (enum packimg_element)value->stored,
				    .output = (enum schema_element)value->element,
				    .channels = value->channels,
				    .filter = (enum pipeline_filter)value->filter};
	memcpy(form.fill, value->fill, sizeof(form.fill));
	return form;
}

/* Makes a picture of which the bytes are known to be whole. */
static int finish_picture(const struct value *value, const struct value_origin *origin,
			  const struct packimg_sample *image, uint8_t *cell,
			  struct packimg_error *error)
{
	struct frame_raster form = values_raster_form(value);
	if (value->channels == 0) {
		pipeline_scratch_value(origin->scratch, value->named);
		return pipeline_apply(origin->pipeline, origin->scratch, image, origin->seed,
				      origin->epoch, cell, origin->times, error);
	}
	int r = frame_size(value, origin, &form.width, &form.height, error);
	if (r < 0)
		return r;
	return pipeline_apply_raster(origin->pipeline, origin->scratch, image, &form, origin->seed,
				     origin->epoch, cell, origin->times, error);
}

/* What a sample without the picture gets. */
static void fill_picture(const struct value *value, uint8_t *cell, size_t size)
{
	struct frame_raster form = values_raster_form(value);
	if (value->channels == 0)
		memset(cell, 0, size);
	else
		pipeline_fill_raster(&form, cell, size);
}

/* Makes a finished picture of section v from the pictures that are joined. */
static int finish_joined(const struct value *value, uint32_t v, const struct value_origin *origin,
			 uint8_t *cell, struct packimg_error *error)
{
	const struct value_join *join = origin->join;
	const uint8_t *picture = join->pictures + join->offsets[v];
	struct frame_raster form = values_raster_form(value);
	if (value->source == VALUE_IMAGE)
		return mosaic_finish_image(origin->pipeline, origin->scratch, &join->mosaic,
					   picture, origin->sample->index, origin->seed,
					   origin->epoch, cell, origin->times, error);
	return mosaic_finish_raster(origin->pipeline, origin->scratch, &join->mosaic, &form,
				    picture, origin->sample->index, origin->seed, origin->epoch,
				    cell, origin->times, error);
}

static int put_picture(const struct value *value, const struct value_origin *origin, uint8_t *cell,
		       uint8_t *flags, struct packimg_error *error)
{
	struct packimg_sample image;
	int r = io_get_image(origin->io, origin->unit, origin->sample->index, value->image,
			     origin->image_bytes, &image, error);
	if (r == 0)
		r = dataset_verify_image(origin->dataset, &image, value->image, error);
	if (r == 0)
		r = finish_picture(value, origin, &image, cell, error);
	if (r != -ENODATA)
		return r;
	fill_picture(value, cell, values_picture_size(value, origin->shape));
	*flags |= RING_SAMPLE_FIELD_MISSING;
	return 0;
}

/*
 * Moves the rows of boxes or points, which are in the slot, with their image. A client that may
 * write there changes no more than its own coordinates: no index or size depends on them.
 */
static int move_rows(const struct value *value, const struct value_origin *origin,
		     const struct packimg_value *stored, const struct ring_section *place,
		     uint32_t batch_size, uint8_t *section, uint32_t i, uint32_t before,
		     struct packimg_error *error)
{
	uint64_t first = (uint64_t)before * value->row +
			 (place->kind == RING_RAGGED ? ring_ragged_offset(batch_size) : 0);
	uint32_t width, height;
	if (value->frame == VALUE_NO_FRAME || stored->size == 0)
		return 0;
	size_t count = stored->size / (coordinates_row(&value->coordinates) * sizeof(float));
	int r = frame_size(value, origin, &width, &height, error);
	if (r == -ENODATA) /* no image to follow */
		return 0;
	if (r < 0)
		return r;
	return pipeline_apply_coordinates(origin->pipeline, origin->scratch, origin->decider, width,
					  height, &value->coordinates, origin->seed, origin->epoch,
					  (float *)(section + first + i * place->stride), count,
					  NULL, error);
}

/* Sets the message for an error of put_field() or copy_boxes(). */
static void explain_value(int r, const struct value_origin *origin, const struct value *value,
			  const struct packimg_value *stored, struct packimg_error *error)
{
	uint64_t number;
	const char *path = dataset_locate(origin->dataset, origin->sample->index, &number);
	const unsigned long long index = number;
	const char *name = value_name(value, origin->dataset);
	if (r == -EINVAL && value->name)
		snprintf(
			error->text, sizeof(error->text),
			"sample %llu of %.200s: value \"%.100s\" has %zu bytes, and field_bytes is "
			"%llu; the file does not record the longest value: ask for more",
			index, path, name, stored->size, (unsigned long long)value->capacity);
	else if (r == -EINVAL)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu of %.200s: field \"%.100s\" has %zu bytes, and "
			 "field_bytes is %u; ask for more (at most %d), or for cut values",
			 index, path, name, stored->size, (uint32_t)value->capacity,
			 RING_FIELD_BYTES_MAX);
	else if (r == -ENOMEM)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: no memory for its value of field \"%.100s\"", index, name);
	else if (r == -ERANGE)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its value of field \"%.100s\" is %lld, which its type in "
			 "the schema cannot hold",
			 index, name, (long long)stored->int64);
	else
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its value of field \"%.100s\" is damaged, or longer "
			 "than the file records",
			 index, name);
}

/*
 * Copies a sample's boxes to one of the thread's buffers, where nobody else changes them, with room
 * for `behind` bytes for each box behind them.
 */
static int copy_boxes(const struct value *boxes, const struct value_origin *origin,
		      struct io_buffer *buffer, size_t behind, struct packimg_value *stored,
		      float **ret_rows)
{
	const struct dataset *dataset = origin->dataset;
	int r = find_value(boxes, origin, stored);
	if (r < 0)
		return r;
	if (stored->size > boxes->capacity)
		return boxes->longest_known ? -EBADMSG : -EINVAL;
	if (stored->size % boxes->row != 0)
		return -EBADMSG;
	uint8_t *bytes =
		io_buffer_take(buffer, stored->size + stored->size / boxes->row * behind + 1);
	if (!bytes)
		return -ENOMEM;
	*ret_rows = (float *)bytes;
	if (!dataset->mapped && stored->size > 0)
		return packimg_read(dataset->image, origin->sample->index, stored->bytes, bytes,
				    stored->size);
	if (stored->size > 0)
		copy_once(bytes, stored->bytes, stored->size);
	return 0;
}

/* Copies the boxes by which the pipeline chooses a crop, and gives them to the scratch. */
static int give_crop_boxes(const struct value_table *values, const struct value_origin *origin,
			   struct packimg_error *error)
{
	const struct value *value = &values->views[origin->view].crop_boxes;
	struct frame_boxes boxes = {.form = value->coordinates};
	struct packimg_value stored = {0};
	float *rows;
	if (!values->views[origin->view].crops_by_boxes)
		return 0;
	int r = copy_boxes(value, origin, origin->crop_bytes, 4 * sizeof(float), &stored, &rows);
	if (r < 0) {
		explain_value(r, origin, value, &stored, error);
		return r;
	}
	boxes.rows = rows;
	boxes.count = stored.size / value->row;
	boxes.corners = rows + stored.size / sizeof(*rows);
	pipeline_scratch_boxes(origin->scratch, &boxes);
	return 0;
}

/*
 * Sets keep to a byte for each of a sample's boxes, 0 for those that the pipeline drops. Returns
 * -ENODATA if there is no image that they could leave.
 */
static int find_dropped_boxes(const struct value *boxes, const struct value_origin *origin,
			      const uint8_t **ret_keep, size_t *ret_count,
			      struct packimg_error *error)
{
	struct packimg_value stored = {0};
	uint32_t width, height;
	float *rows;
	int r = copy_boxes(boxes, origin, origin->box_bytes, 1, &stored, &rows);
	if (r < 0) {
		explain_value(r, origin, boxes, &stored, error);
		return r;
	}
	size_t count = stored.size / boxes->row;
	uint8_t *keep = (uint8_t *)rows + stored.size;
	r = frame_size(boxes, origin, &width, &height, error);
	if (r < 0)
		return r;
	*ret_keep = keep;
	*ret_count = count;
	return pipeline_apply_coordinates(origin->pipeline, origin->scratch, origin->decider, width,
					  height, &boxes->coordinates, origin->seed, origin->epoch,
					  rows, count, keep, error);
}

/* Where in a slot a sample's values go. */
struct value_target {
	const struct ring_geometry *layout;
	struct ring_slot *slot;
	uint32_t i;
	const uint32_t *before; /* [sections], rows that are already there; NULL for none */
};

static uint8_t *section_of(const struct value_target *target, uint32_t v)
{
	return (uint8_t *)target->slot + target->layout->sections[v].offset;
}

static uint32_t rows_before(const struct value_target *target, uint32_t v)
{
	return target->before ? target->before[v] : 0;
}

/*
 * Drops what belongs to dropped boxes from *rows rows that are in the slot, and sets *rows to the
 * rest. A client that may write there changes no more than its own rows: their number is not read
 * from there. Returns the number of boxes that the rows are of; drops nothing if it is another than
 * `count`.
 */
static uint64_t drop_rows(const struct value *value, uint32_t v, const struct value_target *target,
			  size_t *rows, const uint8_t *keep, size_t count)
{
	const uint32_t batch_size = target->layout->batch_size_max;
	uint8_t *section = section_of(target, v);
	uint8_t *first = section + ring_ragged_offset(batch_size) +
			 target->i * target->layout->sections[v].stride +
			 (size_t)rows_before(target, v) * value->row;
	uint64_t boxes = value->objects ? polygons_count(first, *rows) : *rows;
	if (boxes != count)
		return boxes;
	*rows = value->objects ? polygons_keep(first, *rows, keep, count)
			       : rows_keep(first, value->row, keep, count);
	((uint32_t *)section)[batch_size + target->i] = rows_before(target, v) + (uint32_t)*rows;
	return boxes;
}

/*
 * Drops what the pipeline drops of boxes b. rows: the numbers of rows of all values, and
 * afterwards of those that are left.
 */
static int drop_boxes(const struct value_table *values, uint32_t b,
		      const struct value_origin *origin, const struct value_target *target,
		      size_t *rows, struct packimg_error *error)
{
	const struct value *boxes = &values->boxes[b];
	const uint8_t *keep;
	size_t count;
	int r = find_dropped_boxes(boxes, origin, &keep, &count, error);
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (value->boxes != b + 1)
			continue;
		uint64_t found = drop_rows(value, v, target, &rows[v], keep, count);
		if (found == UINT64_MAX)
			snprintf(error->text, sizeof(error->text),
				 "sample %llu: the polygons of its value \"%.100s\" end within a "
				 "box",
				 (unsigned long long)dataset_number(origin->dataset,
								    origin->sample->index),
				 value->name);
		else if (found != count)
			snprintf(error->text, sizeof(error->text),
				 "sample %llu: its value \"%.100s\" has %llu %s, but the boxes "
				 "\"%.100s\", to which they belong, are %zu",
				 (unsigned long long)dataset_number(origin->dataset,
								    origin->sample->index),
				 value->name, (unsigned long long)found,
				 value->objects ? "objects" : "rows", boxes->name, count);
		if (found != count)
			return -EBADMSG;
	}
	return 0;
}

/* Makes the finished image of the origin's view. */
static int put_image(const struct value *value, const struct value_origin *origin, uint8_t *cell,
		     struct packimg_error *error)
{
	pipeline_scratch_value(origin->scratch, value->named);
	return pipeline_apply(origin->pipeline, origin->scratch, origin->sample, origin->seed,
			      origin->epoch, cell, origin->times, error);
}

/*
 * Makes the patches of an image, in the room that its batch has for them: as many as its size makes
 * that the file lists, which need not be that of its record.
 */
static int put_patches(const struct value *value, const struct value_origin *origin,
		       const struct value_target *target, uint8_t *section,
		       struct packimg_error *error)
{
	const struct packimg_sample *sample = origin->sample;
	const uint32_t batch_size = target->layout->batch_size_max;
	struct pipeline_grid grid =
		pipeline_patch_grid(origin->pipeline, sample->width, sample->height);
	uint32_t *index = (uint32_t *)section, patches = grid.rows * grid.columns;
	if (patches > origin->patch_room) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its image of %u x %u pixels makes %u patches, but the size "
			 "that the file lists for it makes %u; run packimg verify",
			 (unsigned long long)dataset_number(origin->dataset, sample->index),
			 sample->width, sample->height, patches, origin->patch_room);
		return -EBADMSG;
	}
	int r = put_image(value, origin,
			  section + ring_ragged_offset(batch_size) +
				  (uint64_t)origin->patch_first *
					  target->layout->sections[RING_IMAGES].row,
			  error);
	if (r < 0)
		return r;
	index[target->i] = origin->patch_first;
	index[batch_size + target->i] = patches;
	return 0;
}

/* Makes value v. Adds to *flags. Sets *ret_rows if its rows belong to boxes, or join. */
static int put_value(const struct value_table *values, uint32_t v,
		     const struct value_origin *origin, const struct value_target *target,
		     uint8_t *flags, size_t *ret_rows, struct packimg_error *error)
{
	const struct value *value = &values->values[v];
	const struct ring_section *place = &target->layout->sections[v];
	uint8_t *section = section_of(target, v);
	uint8_t *cell = section + target->i * place->stride;
	struct packimg_value stored = {0};
	int r;
	switch (value->source) {
	case VALUE_IMAGE:
	case VALUE_PICTURE:
		if (place->kind == RING_RAGGED)
			return put_patches(value, origin, target, section, error);
		cell = section + target->i * values_picture_size(value, origin->shape);
		if (origin->join)
			return finish_joined(value, v, origin, cell, error);
		if (value->source == VALUE_IMAGE)
			return put_image(value, origin, cell, error);
		return put_picture(value, origin, cell, flags, error);
	case VALUE_LABEL:
		memcpy(cell, &origin->sample->label, sizeof(origin->sample->label));
		return 0;
	case VALUE_SAMPLE:
		memcpy(cell, &origin->sample->index, sizeof(origin->sample->index));
		return 0;
	case VALUE_FLAGS:
	case VALUE_TARGET:
	case VALUE_SHARE:
		return 0; /* the caller writes them */
	case VALUE_ORIGINAL_SIZE:
	case VALUE_CROP_TOP_LEFT:
	case VALUE_GRID:
		return derived_value_put(value, origin, cell, error);
	default:
		break;
	}
	r = put_field(values, v, origin, target->layout, section, target->i, rows_before(target, v),
		      &stored, flags);
	if (r < 0) {
		explain_value(r, origin, value, &stored, error);
		return r == -ERANGE ? -EBADMSG : r;
	}
	if (value->boxes || value->joined)
		*ret_rows = stored.size / value->row;
	return value->source == VALUE_FIELD
		       ? move_rows(value, origin, &stored, place, target->layout->batch_size_max,
				   section, target->i, rows_before(target, v), error)
		       : 0;
}

/* Returns true if a value of the origin's view is made, and not joined already. */
static bool is_put(const struct value_table *values, uint32_t v, const struct value_origin *origin)
{
	const struct value *value = &values->values[v];
	return value->view == origin->view && !(origin->join && value->joined) &&
	       !(origin->skip && origin->skip[v]);
}

/* Returns true if rows are made that belong to boxes b. */
static bool puts_rows_of(const struct value_table *values, uint32_t b,
			 const struct value_origin *origin)
{
	for (uint32_t v = 0; v < values->count; v++)
		if (values->values[v].boxes == b + 1 && is_put(values, v, origin))
			return true;
	return false;
}

int values_put(const struct value_table *values, const struct value_origin *origin,
	       const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
	       uint8_t *flags, struct packimg_error *error)
{
	const struct value_target target = {layout, slot, i, NULL};
	uint32_t boxes = origin->join ? 0 : values->box_count;
	size_t rows[RING_SECTIONS_MAX];
	int r = give_crop_boxes(values, origin, error);
	for (uint32_t v = 0; r == 0 && v < values->count; v++)
		if (is_put(values, v, origin))
			r = put_value(values, v, origin, &target, flags, &rows[v], error);
	for (uint32_t b = 0; r == 0 && b < boxes; b++)
		if (values->boxes[b].view == origin->view && puts_rows_of(values, b, origin))
			r = drop_boxes(values, b, origin, &target, rows, error);
	return r;
}

int values_add_rows(const struct value_table *values, const struct value_origin *origin,
		    const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
		    struct value_join *join, struct packimg_error *error)
{
	const struct value_target target = {layout, slot, i, join->rows};
	size_t rows[RING_SECTIONS_MAX] = {0};
	int r = 0;
	for (uint32_t v = 0; r == 0 && v < values->count; v++)
		if (values->values[v].joined)
			r = put_value(values, v, origin, &target, &join->flags, &rows[v], error);
	for (uint32_t b = 0; r == 0 && b < values->box_count; b++)
		r = drop_boxes(values, b, origin, &target, rows, error);
	for (uint32_t v = 0; v < values->count; v++)
		join->next[v] = join->rows[v] + (uint32_t)rows[v];
	return r;
}

void values_set_rows(const struct value_table *values, const struct ring_geometry *layout,
		     struct ring_slot *slot, uint32_t i, const struct value_join *join)
{
	const struct value_target target = {layout, slot, i, NULL};
	for (uint32_t v = 0; v < values->count; v++) {
		uint32_t *index = (uint32_t *)section_of(&target, v);
		const uint64_t stride = layout->sections[v].stride;
		if (!values->values[v].joined)
			continue;
		index[i] = (uint32_t)(i * stride / values->values[v].row);
		index[layout->batch_size_max + i] = join->rows[v];
	}
}
