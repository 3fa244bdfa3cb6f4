#include "loaderd/io/extents.h"

/*
 * Nothing overflows: packimg_sample() and packimg_image() have checked that all of it lies inside
 * the file, which is mapped or reserved.
 */
struct io_extent io_extent_of(const struct packimg_sample *image, uint64_t *ret_side_offset)
{
	struct io_extent extent = {
		.begin = image->data_offset / IO_BLOCK * IO_BLOCK,
		.end = image->data_offset + image->data_size,
	};
	*ret_side_offset = 0;
	if (!image->side || image->side < image->data)
		return extent;
	uint64_t distance = (uint64_t)(image->side - image->data);
	if (distance >= image->data_size + (uint64_t)IO_BLOCK)
		return extent;
	*ret_side_offset = image->data_offset + distance;
	/*
	 * Extend the range only: it must contain the data, whatever the record says about side
	 * data.
	 */
	if (*ret_side_offset + image->side_size > extent.end)
		extent.end = *ret_side_offset + image->side_size;
	return extent;
}

/* Sorts the numbers of the ranges by their beginnings. */
static void sort_extents(const struct io_extent *extents, uint32_t count, uint8_t *ret_order)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = i;
		for (; at > 0 && extents[ret_order[at - 1]].begin > extents[i].begin; at--)
			ret_order[at] = ret_order[at - 1];
		ret_order[at] = (uint8_t)i;
	}
}

uint32_t io_extents_merge(struct io_extent *extents, uint32_t count, uint8_t *of)
{
	struct io_extent merged[IO_PARTS_MAX];
	uint8_t order[IO_PARTS_MAX];
	uint32_t left = 0;
	sort_extents(extents, count, order);
	for (uint32_t i = 0; i < count; i++) {
		const struct io_extent *next = &extents[order[i]];
		struct io_extent *last = left > 0 ? &merged[left - 1] : NULL;
		if (!last || next->begin >= last->end + IO_GAP_MAX)
			merged[left++] = *next;
		else if (next->end > last->end)
			last->end = next->end;
		of[order[i]] = (uint8_t)(left - 1);
	}
	for (uint32_t i = 0; i < left; i++)
		extents[i] = merged[i];
	return left;
}
