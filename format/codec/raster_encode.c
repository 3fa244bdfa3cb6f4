#include "format/codec/raster.h"
#include "format/error.h"

#include <string.h>

/*
 * PACKIMG_RASTER_BEST uses runs for a band if they take at most 1 / RUNS_FRACTION of its pixels'
 * bytes.
 */
enum { RUNS_FRACTION = 8 };

/* Sizes that raster_encode() derives from the raster. */
struct raster_shape {
	size_t pixel_size, stride; /* bytes */
	uint32_t rows;             /* of a band */
	uint32_t bands;
};

void raster_encoder_deinit(struct raster_encoder *encoder)
{
	scratch_deinit(&encoder->rows);
	scratch_deinit(&encoder->output);
}

static int encode_check(const struct packimg_raster *raster,
			const struct packimg_raster_coding *coding, struct packimg_error *error)
{
	size_t size = packimg_element_size(raster->element) * raster->channels;

	if (size == 0 || raster->channels > PACKIMG_RASTER_CHANNELS_MAX)
		return packimg_fail(
			error, -EINVAL,
			"element %d with %u channels: a raster has u8, u16, i16, i32 or "
			"f32 and 1 to %d channels",
			(int)raster->element, raster->channels, PACKIMG_RASTER_CHANNELS_MAX);
	if (raster->width == 0 || raster->width > PACKIMG_SIDE_MAX || raster->height == 0 ||
	    raster->height > PACKIMG_SIDE_MAX)
		return packimg_fail(error, -EINVAL,
				    "%u x %u pixels: sides of a raster are 1 to %d pixels",
				    raster->width, raster->height, PACKIMG_SIDE_MAX);
	if (raster->step_x != (ptrdiff_t)size)
		return packimg_fail(error, -EINVAL, "pixels are %td bytes apart, they must be %zu",
				    raster->step_x, size);
	if (coding->rows_log2 > PACKIMG_RASTER_ROWS_LOG2_MAX || coding->level < ZSTD_minCLevel() ||
	    coding->level > ZSTD_maxCLevel())
		return packimg_fail(error, -EINVAL,
				    "bands of 2^%u rows at zstd level %d: a band has 2^0 to 2^%d "
				    "rows, a level is %d to %d",
				    coding->rows_log2, coding->level, PACKIMG_RASTER_ROWS_LOG2_MAX,
				    ZSTD_minCLevel(), ZSTD_maxCLevel());
	if (coding->method != PACKIMG_RASTER_BEST &&
	    !raster_method_stores((uint8_t)coding->method, raster->element, raster->channels))
		return packimg_fail(
			error, -EINVAL,
			"method %d cannot store element %d with %u channels: runs store "
			"one channel of u8 or u16",
			(int)coding->method, (int)raster->element, raster->channels);
	return 0;
}

/* Returns the bytes of a band encoded as runs in at most `room` bytes; 0 if it does not fit. */
static size_t band_runs(const struct packimg_raster *raster, const uint8_t *pixels, uint32_t rows,
			uint8_t *output, size_t room)
{
	if (!raster_method_stores(PACKIMG_RASTER_RUNS, raster->element, raster->channels))
		return 0;
	return runs_encode(pixels, raster->width, rows, packimg_element_size(raster->element),
			   output, room);
}

/*
 * Encodes the rows of one band. output has room for the pixels. Returns the bytes written and sets
 * *ret_method.
 */
static size_t band_encode(struct raster_encoder *encoder, const struct packimg_raster *raster,
			  const struct packimg_raster_coding *coding, const uint8_t *pixels,
			  uint32_t rows, size_t size, uint8_t *output, uint8_t *ret_method)
{
	bool best = coding->method == PACKIMG_RASTER_BEST;

	if (best || coding->method == PACKIMG_RASTER_RUNS) {
		size_t n = band_runs(raster, pixels, rows, output,
				     best ? size / RUNS_FRACTION : size - 1);

		*ret_method = PACKIMG_RASTER_RUNS;
		if (n > 0)
			return n;
	}
	if (best || coding->method == PACKIMG_RASTER_ZSTD) {
		/* zstd reports an error if the result does not fit. */
		size_t n = ZSTD_compressCCtx(encoder->zstd, output, size - 1, pixels, size,
					     coding->level);

		*ret_method = PACKIMG_RASTER_ZSTD;
		if (!ZSTD_isError(n))
			return n;
	}
	*ret_method = PACKIMG_RASTER_RAW;
	memcpy(output, pixels, size);
	return size;
}

/* Encodes all bands after the head and the table. Returns the size of the sample. */
static size_t encode_bands(struct raster_encoder *encoder, const struct packimg_raster *raster,
			   const struct packimg_raster_coding *coding,
			   const struct raster_shape *shape)
{
	uint8_t *output = encoder->output.data;
	size_t at = RASTER_HEAD_SIZE + shape->bands * sizeof(struct raster_band);

	for (uint32_t i = 0; i < shape->bands; i++) {
		uint32_t first = i * shape->rows, rest = raster->height - first;
		uint32_t rows = rest < shape->rows ? rest : shape->rows;
		struct raster_band band = {0};

		for (uint32_t y = 0; y < rows; y++)
			memcpy(encoder->rows.data + y * shape->stride,
			       raster->data + (ptrdiff_t)(first + y) * raster->step_y,
			       shape->stride);
		at += band_encode(encoder, raster, coding, encoder->rows.data, rows,
				  rows * shape->stride, output + at, &band.method);
		band.end = (uint32_t)at;
		memcpy(output + RASTER_HEAD_SIZE + i * sizeof(band), &band, sizeof(band));
	}
	return at;
}

int raster_encode(struct raster_encoder *encoder, const struct packimg_raster *raster,
		  const struct packimg_raster_coding *coding, const uint8_t **ret_data,
		  size_t *ret_size, struct packimg_error *error)
{
	struct raster_shape shape;
	uint32_t rows_log2 = coding->rows_log2;
	int r = encode_check(raster, coding, error);

	if (r < 0)
		return r;
	shape.pixel_size = packimg_element_size(raster->element) * raster->channels;
	shape.stride = shape.pixel_size * raster->width;
	while (rows_log2 > 0 && shape.stride << rows_log2 > RASTER_BAND_MAX)
		rows_log2--;
	shape.rows = 1u << rows_log2;
	shape.bands = (raster->height + shape.rows - 1) >> rows_log2;
	size_t room = RASTER_HEAD_SIZE + shape.bands * sizeof(struct raster_band) +
		      raster->height * shape.stride;
	if (room > UINT32_MAX)
		return packimg_fail(
			error, -E2BIG,
			"%u x %u pixels of %zu bytes may take more than the %u bytes of "
			"a sample",
			raster->width, raster->height, shape.pixel_size, UINT32_MAX);
	if (scratch_reserve(&encoder->rows, shape.rows * shape.stride) < 0 ||
	    scratch_reserve(&encoder->output, room) < 0)
		return packimg_fail(error, -ENOMEM, "out of memory for a raster of %zu bytes",
				    room);
	uint8_t *head = encoder->output.data;

	head[0] = RASTER_VERSION;
	head[1] = (uint8_t)raster->element;
	head[2] = (uint8_t)raster->channels;
	head[3] = (uint8_t)rows_log2;
	memcpy(head + 4, &shape.bands, sizeof(shape.bands));
	*ret_size = encode_bands(encoder, raster, coding, &shape);
	*ret_data = encoder->output.data;
	return 0;
}
