/*
 * Compares the JPEG index stored with a sample with one rebuilt from its scan (SPEC.md, "JPEG
 * index").
 */
#include "format/codec/codec.h"
#include "format/codec/jpeg/jpeg_index.h"
#include "format/codec/side_data.h"
#include "format/error.h"
#include "format/layout.h"
#include "format/packimg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct index_view {
	const uint8_t *bytes;
	size_t size;
};

static bool find_index(const uint8_t *side, size_t size, struct index_view *ret_view)
{
	return side_data_find(side, size, PIMG_SIDE_JPEG_INDEX, &ret_view->bytes,
			      &ret_view->size) == 0;
}

static int compare_entries(const struct jpeg_index *stored, const struct jpeg_index *made,
			   uint32_t row, uint32_t entry, struct packimg_error *error)
{
	struct jpeg_index_entry is = jpeg_index_get(stored, row, entry);
	struct jpeg_index_entry must = jpeg_index_get(made, row, entry);

	if (is.position != must.position)
		return packimg_damaged(error,
				       "JPEG index: row %u, column %u: position is %" PRIu64
				       ", the scan's %" PRIu64,
				       row, stored->plan.columns[entry], is.position,
				       must.position);
	for (uint32_t i = 0; i < made->plan.component_count; i++)
		if (is.dc[i] != must.dc[i])
			return packimg_damaged(
				error,
				"JPEG index: row %u, column %u: predictor of component %u "
				"is %d, the scan's %d",
				row, stored->plan.columns[entry], i, is.dc[i], must.dc[i]);
	return 0;
}

/* Compares two indexes with the same columns. */
static int index_compare(const struct jpeg_index *stored, const struct jpeg_index *made,
			 struct packimg_error *error)
{
	for (uint32_t row = 0; row < made->plan.row_count; row++)
		for (uint32_t e = 0; e < made->plan.entry_count; e++) {
			int r = compare_entries(stored, made, row, e, error);
			if (r < 0)
				return r;
		}
	return 0;
}

static int check_index(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		       const uint8_t *own_side, struct packimg_error *error)
{
	bool sideways = sample->orientation >= 5;
	struct index_view view, made_view;
	struct jpeg_index stored, made;
	struct jpeg_frame frame;
	const uint8_t *side;
	size_t side_size;

	if (sample->codec != PACKIMG_CODEC_JPEG || !find_index(own_side, sample->side_size, &view))
		return -ENODATA;
	if (view.size > 0 && view.bytes[0] != JPEG_INDEX_VERSION)
		return -ENODATA;
	if (jpeg_frame_parse(sample->data, sample->data_size, &frame) < 0 ||
	    !jpeg_index_possible(&frame))
		return packimg_damaged(
			error, "JPEG index: there is one, but this kind of JPEG can have none");
	if (jpeg_index_open(view.bytes, view.size, &frame, &stored) < 0)
		return packimg_damaged(
			error,
			"JPEG index: its head or its size of %zu bytes does not fit a frame "
			"of %u components and %u x %u MCUs",
			view.size, frame.component_count, frame.mcus_wide, frame.mcus_high);
	const struct jpeg_source source = {
		.data = sample->data,
		.size = sample->data_size,
		.index = view.bytes,
		.index_size = view.size,
		.width = sideways ? sample->height : sample->width,
		.height = sideways ? sample->width : sample->height,
		.components = sample->channels,
	};
	int r = decoder_index(decoder, &source, &side, &side_size);
	if (r == -EBADMSG || r == -ENOTSUP)
		return packimg_damaged(error,
				       "JPEG index: the scan that it points into is damaged");
	if (r < 0)
		return packimg_fail(error, r, "JPEG index: %s", strerror(-r));
	if (!find_index(side, side_size, &made_view) ||
	    jpeg_index_open(made_view.bytes, made_view.size, &frame, &made) < 0)
		return packimg_damaged(error, "JPEG index: cannot be made");
	return index_compare(&stored, &made, error);
}

int packimg_index_check(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			struct packimg_error *error)
{
	if (sample->side_size == 0)
		return -ENODATA;
	/*
	 * Copy the side data, because it is read more than once and the file's owner may change it.
	 */
	uint8_t *side = malloc(sample->side_size);
	if (!side)
		return packimg_fail(error, -ENOMEM, "JPEG index: out of memory");
	memcpy(side, sample->side, sample->side_size);
	int r = check_index(decoder, sample, side, error);
	free(side);
	return r;
}
