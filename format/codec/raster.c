#include "format/codec/raster.h"
#include "format/codec/codec.h"
#include "format/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct raster_state {
	ZSTD_DCtx *context;
	struct scratch table; /* copy of the head and the table of bands */
	struct scratch frame; /* copy of one band's bytes */
	struct scratch rows;  /* decoded rows of the bands that the region touches */
	struct scratch grey;  /* grey region as RGB */
	/* Of kept bands, which `rows` has from band 0 on: */
	struct raster_head head;
	struct scratch decoded; /* a byte for each band, 1 if `rows` has it */
};

size_t packimg_element_size(enum packimg_element element)
{
	switch (element) {
	case PACKIMG_ELEMENT_U8:
		return 1;
	case PACKIMG_ELEMENT_U16:
	case PACKIMG_ELEMENT_I16:
		return 2;
	case PACKIMG_ELEMENT_I32:
	case PACKIMG_ELEMENT_F32:
		return 4;
	}
	return 0;
}

bool raster_method_stores(uint8_t method, enum packimg_element element, uint32_t channels)
{
	if (method == PACKIMG_RASTER_RUNS)
		return channels == 1 &&
		       (element == PACKIMG_ELEMENT_U8 || element == PACKIMG_ELEMENT_U16);
	return method <= PACKIMG_RASTER_ZSTD;
}

static void raster_state_free(void *state)
{
	struct raster_state *raster = state;

	if (!raster)
		return;
	ZSTD_freeDCtx(raster->context);
	scratch_deinit(&raster->table);
	scratch_deinit(&raster->frame);
	scratch_deinit(&raster->rows);
	scratch_deinit(&raster->grey);
	scratch_deinit(&raster->decoded);
	free(raster);
}

static int raster_state_new(struct scratch_budget *budget, void **ret_state)
{
	struct raster_state *raster = calloc(1, sizeof(*raster));

	if (!raster)
		return -ENOMEM;
	scratch_init(&raster->table, budget);
	scratch_init(&raster->frame, budget);
	scratch_init(&raster->rows, budget);
	scratch_init(&raster->grey, budget);
	scratch_init(&raster->decoded, budget);
	raster->context = ZSTD_createDCtx();
	if (!raster->context) {
		raster_state_free(raster);
		return -ENOMEM;
	}
	*ret_state = raster;
	return 0;
}

int raster_head_read(const uint8_t *data, size_t size, uint32_t width, uint32_t height,
		     uint32_t channels, struct raster_head *ret_head, struct packimg_error *error)
{
	uint8_t bytes[RASTER_HEAD_SIZE];
	struct raster_head head;

	if (size < sizeof(bytes))
		return packimg_damaged(error, "a raster of %zu bytes has no head", size);
	memcpy(bytes, data, sizeof(bytes));
	if (bytes[0] != RASTER_VERSION)
		return packimg_damaged(error, "version %u of a raster, expected %d", bytes[0],
				       RASTER_VERSION);
	head.element = bytes[1];
	head.element_size = packimg_element_size(head.element);
	if (head.element_size == 0)
		return packimg_damaged(error, "element %u is not one of a raster", bytes[1]);
	head.channels = bytes[2];
	if (head.channels == 0 || head.channels > PACKIMG_RASTER_CHANNELS_MAX ||
	    head.channels != channels)
		return packimg_damaged(error,
				       "%u channels in the raster, %u in the record; at most %d",
				       head.channels, channels, PACKIMG_RASTER_CHANNELS_MAX);
	if (bytes[3] > PACKIMG_RASTER_ROWS_LOG2_MAX)
		return packimg_damaged(error, "bands of 2^%u rows, at most 2^%d", bytes[3],
				       PACKIMG_RASTER_ROWS_LOG2_MAX);
	head.band_rows = 1u << bytes[3];
	head.stride = width * head.element_size * head.channels;
	if (bytes[3] > 0 && head.stride << bytes[3] > RASTER_BAND_MAX)
		return packimg_damaged(error, "bands of %zu bytes, at most %d",
				       head.stride << bytes[3], RASTER_BAND_MAX);
	memcpy(&head.bands, bytes + 4, sizeof(head.bands));
	uint32_t bands = (height + head.band_rows - 1) >> bytes[3];
	if (head.bands != bands)
		return packimg_damaged(error, "%u bands, expected %u", head.bands, bands);
	head.size = RASTER_HEAD_SIZE + bands * (uint32_t)sizeof(struct raster_band);
	*ret_head = head;
	return 0;
}

/* Copies and checks the table of bands. */
static int raster_table(struct raster_state *raster, const struct packimg_sample *sample,
			const struct raster_head *head, const struct raster_band **ret_bands,
			struct packimg_error *error)
{
	size_t size = head->bands * sizeof(struct raster_band);
	uint32_t begin = head->size;

	if (sample->data_size < begin)
		return packimg_damaged(error, "a table of %u bands does not fit into %u bytes",
				       head->bands, sample->data_size);
	int r = scratch_reserve(&raster->table, size);
	if (r < 0)
		return packimg_fail(error, r, "out of memory for a table of %u bands", head->bands);
	memcpy(raster->table.data, sample->data + RASTER_HEAD_SIZE, size);
	const struct raster_band *bands = (const struct raster_band *)raster->table.data;
	for (uint32_t i = 0; i < head->bands; i++) {
		if (bands[i].end < begin || bands[i].end > sample->data_size)
			return packimg_damaged(error, "band %u ends at byte %u, outside %u to %u",
					       i, bands[i].end, begin, sample->data_size);
		if (!raster_method_stores(bands[i].method, head->element, head->channels))
			return packimg_damaged(error,
					       "band %u: method %u is unknown or does not store "
					       "element %d with %u channels",
					       i, bands[i].method, (int)head->element,
					       head->channels);
		if (bands[i].reserved[0] || bands[i].reserved[1] || bands[i].reserved[2])
			return packimg_damaged(error, "band %u: reserved bytes are not zero", i);
		begin = bands[i].end;
	}
	if (begin != sample->data_size)
		return packimg_damaged(error, "bands end at byte %u of %u", begin,
				       sample->data_size);
	*ret_bands = bands;
	return 0;
}

/* Decompresses a frame, which must contain exactly `size` bytes and end with the band. */
static int band_zstd(struct raster_state *raster, uint32_t band, size_t data_size, uint8_t *pixels,
		     size_t size, struct packimg_error *error)
{
	const uint8_t *frame = raster->frame.data;

	if (ZSTD_getFrameContentSize(frame, data_size) != size)
		return packimg_damaged(error,
				       "band %u: the zstd frame does not declare the %zu bytes of "
				       "its pixels",
				       band, size);
	if (ZSTD_findFrameCompressedSize(frame, data_size) != data_size)
		return packimg_damaged(error, "band %u is not one zstd frame", band);
	size_t n = ZSTD_decompressDCtx(raster->context, pixels, size, frame, data_size);
	if (ZSTD_isError(n))
		return packimg_damaged(error, "band %u: damaged zstd frame: %s", band,
				       ZSTD_getErrorName(n));
	if (n != size)
		return packimg_damaged(error,
				       "band %u: the zstd frame holds %zu bytes, expected "
				       "%zu",
				       band, n, size);
	return 0;
}

/* Decodes all rows of band `number`. */
static int band_decode(struct raster_state *raster, const struct codec_request *request,
		       const struct raster_head *head, const struct raster_band *bands,
		       uint32_t number, uint8_t *pixels, struct packimg_error *error)
{
	uint32_t rest = request->height - number * head->band_rows;
	uint32_t rows = rest < head->band_rows ? rest : head->band_rows, row = 0;
	uint32_t begin = number > 0 ? bands[number - 1].end : head->size;
	uint32_t data_size = bands[number].end - begin;
	const uint8_t *data = request->sample->data + begin;
	size_t size = rows * head->stride;

	if (bands[number].method == PACKIMG_RASTER_RAW) {
		if (data_size != size)
			return packimg_damaged(error, "band %u has %u bytes, expected %zu", number,
					       data_size, size);
		memcpy(pixels, data, size);
		return 0;
	}
	/* A copy, because neither decoder allows bytes to change while it reads them. */
	int r = scratch_reserve(&raster->frame, data_size);
	if (r < 0)
		return packimg_fail(error, r, "out of memory for a band of %u bytes", data_size);
	memcpy(raster->frame.data, data, data_size);
	if (bands[number].method == PACKIMG_RASTER_ZSTD)
		return band_zstd(raster, number, data_size, pixels, size, error);
	const char *fault = runs_decode(raster->frame.data, data_size, request->width, rows,
					head->element_size, pixels, &row);
	if (fault)
		return packimg_damaged(error, "band %u, row %u: %s", number, row, fault);
	return 0;
}

/* Reads the head and the table of a sample, and reserves memory for bands, if they are kept. */
static int raster_begin(struct raster_state *raster, const struct codec_request *request,
			const struct raster_band **ret_bands, struct packimg_error *error)
{
	const struct packimg_sample *sample = request->sample;
	struct raster_head *head = &raster->head;
	int r = raster_head_read(sample->data, sample->data_size, request->width, request->height,
				 sample->channels, head, error);

	if (r == 0)
		r = raster_table(raster, sample, head, ret_bands, error);
	if (r < 0 || !request->keeps)
		return r;
	r = scratch_reserve(&raster->rows, head->bands * (head->band_rows * head->stride));
	if (r == 0)
		r = scratch_reserve(&raster->decoded, head->bands);
	if (r < 0)
		return packimg_fail(error, r, "out of memory for %u bands", head->bands);
	memset(raster->decoded.data, 0, head->bands);
	return 0;
}

/* Decodes the bands `first` to `last`, without those that are kept, to rows of band `origin` on. */
static int decode_bands(struct raster_state *raster, const struct codec_request *request,
			const struct raster_band *bands, uint32_t first, uint32_t last,
			uint32_t origin, struct packimg_error *error)
{
	const struct raster_head *head = &raster->head;
	const size_t band_size = head->band_rows * head->stride;
	int r = 0;

	for (uint32_t i = first; i <= last && r == 0; i++) {
		if (request->keeps && raster->decoded.data[i])
			continue;
		r = band_decode(raster, request, head, bands, i,
				raster->rows.data + (i - origin) * band_size, error);
		if (request->keeps && r == 0)
			raster->decoded.data[i] = 1;
	}
	return r;
}

/* Decodes the bands that the region touches, and returns the region. */
static int raster_region(void *state, const struct codec_request *request,
			 struct packimg_raster *ret_raster, struct packimg_error *error)
{
	const struct packimg_region *region = &request->region;
	struct raster_state *raster = state;
	const struct raster_head *head = &raster->head;
	/* What was checked counts: a file may have changed since. */
	const struct raster_band *bands = (const struct raster_band *)raster->table.data;
	int r = request->follows ? 0 : raster_begin(raster, request, &bands, error);

	if (r < 0)
		return r;
	uint32_t first = region->y / head->band_rows;
	uint32_t last = (region->y + region->height - 1) / head->band_rows;
	uint32_t origin = request->keeps ? 0 : first;

	if (!request->keeps)
		r = scratch_reserve(&raster->rows,
				    (last - first + 1) * (head->band_rows * head->stride));
	if (r < 0)
		return packimg_fail(error, r, "out of memory for bands %u to %u", first, last);
	r = decode_bands(raster, request, bands, first, last, origin, error);
	if (r < 0)
		return r;
	size_t pixel_size = head->element_size * head->channels;
	*ret_raster = (struct packimg_raster){
		.data = raster->rows.data + (region->y - origin * head->band_rows) * head->stride +
			region->x * pixel_size,
		.step_x = (ptrdiff_t)pixel_size,
		.step_y = (ptrdiff_t)head->stride,
		.width = region->width,
		.height = region->height,
		.channels = head->channels,
		.element = head->element,
	};
	return 0;
}

static int raster_decode(void *state, const struct codec_request *request,
			 struct packimg_pixels *ret_pixels, struct packimg_error *error)
{
	struct raster_state *raster = state;
	struct packimg_raster pixels;
	int r = raster_region(state, request, &pixels, error);

	if (r < 0)
		return r;
	if (pixels.element != PACKIMG_ELEMENT_U8 || (pixels.channels != 1 && pixels.channels != 3))
		return packimg_fail(error, -ENOTSUP,
				    "a raster of element %d with %u channels is no image of RGB or "
				    "grey bytes",
				    (int)pixels.element, pixels.channels);
	return codec_raster_rgb(&pixels, &raster->grey, ret_pixels);
}

const struct codec codec_raster = {
	.state_new = raster_state_new,
	.state_free = raster_state_free,
	.decode = raster_decode,
	.raster = raster_region,
};
