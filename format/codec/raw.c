#include "format/codec/codec.h"
#include "format/codec/scratch.h"
#include "format/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* State of both raw codecs. Without compression, context is NULL. */
struct raw_state {
	ZSTD_DCtx *context;
	struct scratch frame; /* copy of the sample's bytes */
	struct scratch image; /* decompressed */
	struct scratch grey;  /* grey region as RGB */
};

static void raw_state_free(void *state)
{
	struct raw_state *raw = state;

	if (!raw)
		return;
	ZSTD_freeDCtx(raw->context);
	scratch_deinit(&raw->frame);
	scratch_deinit(&raw->image);
	scratch_deinit(&raw->grey);
	free(raw);
}

static int raw_state_new(struct scratch_budget *budget, void **ret_state)
{
	struct raw_state *raw = calloc(1, sizeof(*raw));
	if (!raw)
		return -ENOMEM;
	scratch_init(&raw->frame, budget);
	scratch_init(&raw->image, budget);
	scratch_init(&raw->grey, budget);
	*ret_state = raw;
	return 0;
}

static int raw_zstd_state_new(struct scratch_budget *budget, void **ret_state)
{
	void *state;

	int r = raw_state_new(budget, &state);
	if (r < 0)
		return r;
	struct raw_state *raw = state;
	raw->context = ZSTD_createDCtx();
	if (!raw->context) {
		raw_state_free(raw);
		return -ENOMEM;
	}
	*ret_state = raw;
	return 0;
}

int codec_raster_rgb(const struct packimg_raster *raster, struct scratch *grey,
		     struct packimg_pixels *ret_pixels)
{
	const uint8_t *first = raster->data;
	size_t stride = (size_t)raster->step_y;

	if (raster->channels == 1) {
		size_t out_stride = (size_t)raster->width * 3;
		int r = scratch_reserve(grey, out_stride * raster->height);
		if (r < 0)
			return r;
		for (uint32_t y = 0; y < raster->height; y++) {
			const uint8_t *in = first + y * stride;
			uint8_t *out = grey->data + y * out_stride;
			for (uint32_t x = 0; x < raster->width; x++)
				out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = in[x];
		}
		first = grey->data;
		stride = out_stride;
	}
	*ret_pixels = (struct packimg_pixels){
		.data = first,
		.stride = stride,
		.width = raster->width,
		.height = raster->height,
		.region_width = raster->width,
		.region_height = raster->height,
	};
	return 0;
}

/*
 * Returns the region of an image. Its readers read raw pixels in place, while the file's owner may
 * change them. That is safe: addresses and sizes come only from the copied record, and a pixel
 * value at most indexes a table of 256 entries.
 */
static struct packimg_raster raw_region(const struct codec_request *request, const uint8_t *image)
{
	const struct packimg_region *region = &request->region;
	size_t channels = request->sample->channels, stride = request->width * channels;

	return (struct packimg_raster){
		.data = image + region->y * stride + region->x * channels,
		.step_x = (ptrdiff_t)channels,
		.step_y = (ptrdiff_t)stride,
		.width = region->width,
		.height = region->height,
		.channels = (uint32_t)channels,
		.element = PACKIMG_ELEMENT_U8,
	};
}

static int raw_raster(void *state, const struct codec_request *request,
		      struct packimg_raster *ret_raster, struct packimg_error *error)
{
	const struct packimg_sample *sample = request->sample;
	uint64_t size = (uint64_t)request->width * request->height * sample->channels;

	if (sample->data_size != size)
		return packimg_damaged(error, "raw pixels have %u bytes, expected %" PRIu64,
				       sample->data_size, size);
	*ret_raster = raw_region(request, sample->data);
	return 0;
}

static int raw_decode(void *state, const struct codec_request *request,
		      struct packimg_pixels *ret_pixels, struct packimg_error *error)
{
	struct raw_state *raw = state;
	struct packimg_raster raster;
	int r = raw_raster(raw, request, &raster, error);

	return r < 0 ? r : codec_raster_rgb(&raster, &raw->grey, ret_pixels);
}

static int raw_zstd_raster(void *state, const struct codec_request *request,
			   struct packimg_raster *ret_raster, struct packimg_error *error)
{
	const struct packimg_sample *sample = request->sample;
	struct raw_state *raw = state;
	size_t size = (size_t)request->width * request->height * sample->channels;

	/* A copy, because zstd does not allow bytes to change while it reads them. */
	if (scratch_reserve(&raw->frame, sample->data_size) < 0)
		return packimg_fail(error, -ENOMEM, "out of memory for a frame of %u bytes",
				    sample->data_size);
	memcpy(raw->frame.data, sample->data, sample->data_size);
	/* Check before allocating, so that a frame with a false size costs no memory. */
	unsigned long long declared = ZSTD_getFrameContentSize(raw->frame.data, sample->data_size);
	if (declared != size)
		return packimg_damaged(
			error, "the zstd frame does not declare the %zu bytes of its pixels", size);
	if (scratch_reserve(&raw->image, size) < 0)
		return packimg_fail(error, -ENOMEM, "out of memory for %zu bytes of pixels", size);
	size_t n = ZSTD_decompressDCtx(raw->context, raw->image.data, size, raw->frame.data,
				       sample->data_size);
	if (ZSTD_isError(n))
		return packimg_damaged(error, "damaged zstd frame: %s", ZSTD_getErrorName(n));
	if (n != size)
		return packimg_damaged(error, "the zstd frame holds %zu bytes, expected %zu", n,
				       size);
	*ret_raster = raw_region(request, raw->image.data);
	return 0;
}

static int raw_zstd_decode(void *state, const struct codec_request *request,
			   struct packimg_pixels *ret_pixels, struct packimg_error *error)
{
	struct raw_state *raw = state;
	struct packimg_raster raster;
	int r = raw_zstd_raster(raw, request, &raster, error);

	return r < 0 ? r : codec_raster_rgb(&raster, &raw->grey, ret_pixels);
}

const struct codec codec_raw = {
	.state_new = raw_state_new,
	.state_free = raw_state_free,
	.decode = raw_decode,
	.raster = raw_raster,
};

const struct codec codec_raw_zstd = {
	.state_new = raw_zstd_state_new,
	.state_free = raw_state_free,
	.decode = raw_zstd_decode,
	.raster = raw_zstd_raster,
};
