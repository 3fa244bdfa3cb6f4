/* Compares the index that a sample carries with its scan (SPEC.md, "JPEG index"). */
#include "codec/side.h"
#include "error.h"
#include "layout.h"
#include "packimg.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
	INDEX_VERSION = 1,
	INDEX_HEAD_SIZE = 8,
};

/* An index's bytes: a head, then rows of a position and a predictor for each component. */
struct index_view {
	const uint8_t *bytes;
	size_t size;
};

static uint32_t get32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static int get16(const uint8_t *bytes)
{
	int16_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static bool find_index(const uint8_t *side, size_t size, struct index_view *ret_view)
{
	return side_find(side, size, PIMG_SIDE_JPEG_INDEX, &ret_view->bytes, &ret_view->size) == 0;
}

bool packimg_sample_indexed(const struct packimg_sample *sample)
{
	struct index_view view;

	return sample->codec == PACKIMG_CODEC_JPEG &&
	       find_index(sample->side, sample->side_size, &view);
}

static int compare_heads(const struct index_view *stored, const struct index_view *made,
			 struct packimg_error *error)
{
	if (stored->size < INDEX_HEAD_SIZE)
		return packimg_fail(error, -EBADMSG, "JPEG index: its size is %zu, the scan's %zu",
				    stored->size, made->size);
	if (stored->bytes[1] != made->bytes[1])
		return packimg_fail(error, -EBADMSG, "JPEG index: components is %u, the frame's %u",
				    stored->bytes[1], made->bytes[1]);
	if (stored->bytes[2] || stored->bytes[3])
		return packimg_fail(error, -EBADMSG,
				    "JPEG index: reserved bytes are %u and %u, not 0",
				    stored->bytes[2], stored->bytes[3]);
	if (get32(stored->bytes + 4) != get32(made->bytes + 4))
		return packimg_fail(error, -EBADMSG,
				    "JPEG index: MCU rows is %" PRIu32 ", the frame's %" PRIu32,
				    get32(stored->bytes + 4), get32(made->bytes + 4));
	if (stored->size != made->size)
		return packimg_fail(error, -EBADMSG, "JPEG index: its size is %zu, the scan's %zu",
				    stored->size, made->size);
	return 0;
}

/* Both have the same head and size. */
static int compare_rows(const struct index_view *stored, const struct index_view *made,
			struct packimg_error *error)
{
	uint32_t components = made->bytes[1], rows = get32(made->bytes + 4);
	size_t row_size = 4 + 2 * (size_t)components;

	for (uint32_t row = 0; row < rows; row++) {
		const uint8_t *is = stored->bytes + INDEX_HEAD_SIZE + row * row_size;
		const uint8_t *must = made->bytes + INDEX_HEAD_SIZE + row * row_size;

		if (memcmp(is, must, row_size) == 0)
			continue;
		if (get32(is) != get32(must))
			return packimg_fail(error, -EBADMSG,
					    "JPEG index: row %" PRIu32 ": position is %" PRIu32
					    ", the scan's %" PRIu32,
					    row, get32(is), get32(must));
		for (uint32_t i = 0; i < components; i++)
			if (get16(is + 4 + 2 * i) != get16(must + 4 + 2 * i))
				return packimg_fail(
					error, -EBADMSG,
					"JPEG index: row %" PRIu32
					": predictor of component %" PRIu32 " is %d, the scan's %d",
					row, i, get16(is + 4 + 2 * i), get16(must + 4 + 2 * i));
	}
	return 0;
}

int packimg_index_check(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			struct packimg_error *error)
{
	bool sideways = sample->orientation >= 5;
	const struct packimg_jpeg_info info = {
		.width = sideways ? sample->height : sample->width,
		.height = sideways ? sample->width : sample->height,
		.components = sample->channels,
	};
	struct index_view stored, made;
	const uint8_t *side;
	size_t side_size;

	if (sample->codec != PACKIMG_CODEC_JPEG ||
	    !find_index(sample->side, sample->side_size, &stored))
		return -ENODATA;
	if (stored.size > 0 && stored.bytes[0] != INDEX_VERSION)
		return -ENODATA;
	int r = packimg_index_jpeg(decoder, sample->data, sample->data_size, &info, &side,
				   &side_size);
	if (r == -ENOTSUP)
		return packimg_fail(
			error, -EBADMSG,
			"JPEG index: there is one, but this kind of JPEG can have none");
	if (r == -EBADMSG)
		return packimg_fail(error, r, "JPEG index: the scan that it leads into is damaged");
	if (r < 0)
		return packimg_fail(error, r, "JPEG index: %s", strerror(-r));
	if (!find_index(side, side_size, &made))
		return packimg_fail(error, -EBADMSG, "JPEG index: cannot be made");
	r = compare_heads(&stored, &made, error);
	return r < 0 ? r : compare_rows(&stored, &made, error);
}
