/* Where values are in a slot: the sections of the ring, and the extents of a batch. */
#include "loaderd/batch/values.h"

#include <string.h>

static int add_pictures(const struct value *value, const struct value_images *images,
			struct ring_geometry *geometry)
{
	uint64_t bytes;
	if (value->channels == 0)
		return ring_geometry_pictures(geometry, images->element, value->dims,
					      images->bytes);
	if (__builtin_mul_overflow(images->pixels,
				   (uint64_t)value->channels * ring_element_size(value->element),
				   &bytes))
		bytes = UINT64_MAX;
	return ring_geometry_pictures(geometry, value->element, value->dims, bytes);
}

static int add_section(const struct value *value, const struct value_images *images,
		       struct ring_geometry *geometry)
{
	if (geometry->version == RING_VERSION_1)
		return ring_geometry_field(geometry, value->type, (uint32_t)value->capacity);
	if (value->source == VALUE_PICTURE || value->source == VALUE_IMAGE)
		return add_pictures(value, &images[value->view], geometry);
	if (value->ragged)
		return ring_geometry_ragged(geometry, value->element, value->dims, value->row,
					    value->capacity / value->row *
						    (value->joined ? value->joined : 1));
	return ring_geometry_dense(geometry, value->element, value->dims,
				   value->row / ring_element_size(value->element));
}

int values_geometry(const struct value_table *values, uint32_t slots, uint32_t batch_size,
		    const struct value_images *images, struct ring_geometry *ret_geometry)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, slots, batch_size, images[0].bytes);
	if (values->version == RING_VERSION_2)
		ring_geometry_upgrade(&geometry, images[0].element);
	if (images[0].patch > 0) {
		int r = ring_geometry_patches(&geometry, images[0].patch, images[0].patches);
		if (r < 0)
			return r;
	}
	for (uint32_t i = RING_FIRST_FIELD; i < values->count; i++) {
		int r = add_section(&values->values[i], images, &geometry);
		if (r < 0)
			return r;
	}
	*ret_geometry = geometry;
	return 0;
}

static struct ring_extent image_extent(const struct pipeline_shape *image, uint32_t count)
{
	struct ring_extent extent = {.shape = {image->height, image->width, image->channels},
				     .bytes = count * (uint64_t)image->sample_size,
				     .layout = image->layout};
	if (image->layout == PIPELINE_NCHW) {
		extent.shape[0] = image->channels;
		extent.shape[1] = image->height;
		extent.shape[2] = image->width;
	}
	return extent;
}

size_t values_picture_size(const struct value *value, const struct pipeline_shape *shape)
{
	if (value->channels == 0)
		return shape->sample_size;
	return (size_t)shape->height * shape->width * value->channels *
	       ring_element_size(value->element);
}

static struct ring_extent picture_extent(const struct value *value,
					 const struct pipeline_shape *shape, uint32_t count)
{
	struct ring_extent extent = {.shape = {shape->height, shape->width},
				     .bytes = count * (uint64_t)values_picture_size(value, shape)};
	if (value->channels == 0)
		return image_extent(shape, count);
	if (value->dims == 3)
		extent.shape[2] = value->channels;
	return extent;
}

void values_extents(const struct value_table *values, const struct ring_geometry *layout,
		    const struct pipeline_shape *images, uint32_t samples, uint32_t count,
		    uint32_t patches, struct ring_extent *ret_extents)
{
	for (uint32_t i = 0; i < values->count; i++) {
		const struct value *value = &values->values[i];
		const struct ring_section *section = &layout->sections[i];
		struct ring_extent extent = {.bytes = count * section->stride};
		if (section->kind == RING_RAGGED)
			extent.bytes = ring_ragged_offset(layout->batch_size_max) +
				       samples * section->stride;
		if (section->kind == RING_RAGGED && value->source == VALUE_IMAGE) {
			extent.bytes += (uint64_t)patches * section->row;
			extent.shape[0] = section->row / ring_element_size(section->element);
			ret_extents[i] = extent;
			continue;
		}
		memcpy(extent.shape, value->shape, sizeof(extent.shape));
		ret_extents[i] = section->stride == 0 && section->kind == RING_DENSE
					 ? picture_extent(value, &images[value->view], count)
					 : extent;
	}
}
