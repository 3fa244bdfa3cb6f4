#include "format/base/system/cpu.h"
#include "format/codec/codec.h"
#include "format/codec/scratch.h"
#include "format/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- orientation ---- */

/*
 * Side of a tile in pixels. 32 rows of 96 bytes stay in the L1 cache while they are read column by
 * column.
 */
enum { TILE = 32 };

/*
 * TIFF 6.0, tag Orientation: upright pixel (u, v) is stored at (s, t). Orientations 5 and above
 * first exchange u and v. flips_s() and flips_t() tell whether s or t counts from the opposite
 * edge.
 */
static bool flips_s(uint8_t orientation)
{
	return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool flips_t(uint8_t orientation)
{
	return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

/* True if the orientation exchanges width and height. */
static bool orient_swaps(uint8_t orientation)
{
	return orientation >= 5;
}

/* Maps an upright region to a stored image of width x height pixels. */
static void orient_region(uint8_t orientation, uint32_t width, uint32_t height,
			  const struct packimg_region *region, struct packimg_region *ret_region)
{
	struct packimg_region r = *region;

	if (orient_swaps(orientation))
		r = (struct packimg_region){region->y, region->x, region->height, region->width};
	if (flips_s(orientation))
		r.x = width - r.x - r.width;
	if (flips_t(orientation))
		r.y = height - r.y - r.height;
	*ret_region = r;
}

/*
 * Turns stored RGB pixels upright. target has room for width x height pixels without row padding,
 * exchanged if the orientation exchanges them. Sets all members of ret_pixels, including the
 * location of the region.
 */
static void orient_pixels(uint8_t orientation, const struct packimg_pixels *stored, uint8_t *target,
			  struct packimg_pixels *ret_pixels)
{
	bool swap = orient_swaps(orientation), flip_s = flips_s(orientation),
	     flip_t = flips_t(orientation);
	ptrdiff_t step_s = flip_s ? -3 : 3;
	ptrdiff_t step_t = flip_t ? -(ptrdiff_t)stored->stride : (ptrdiff_t)stored->stride;
	ptrdiff_t step_u = swap ? step_t : step_s, step_v = swap ? step_s : step_t;
	uint32_t width = swap ? stored->height : stored->width,
		 height = swap ? stored->width : stored->height;
	const uint8_t *origin = stored->data + (flip_s ? (size_t)(stored->width - 1) * 3 : 0) +
				(flip_t ? (size_t)(stored->height - 1) * stored->stride : 0);

	for (uint32_t v0 = 0; v0 < height; v0 += TILE) {
		uint32_t v1 = height - v0 < TILE ? height : v0 + TILE;
		for (uint32_t u0 = 0; u0 < width; u0 += TILE) {
			uint32_t u1 = width - u0 < TILE ? width : u0 + TILE;
			for (uint32_t v = v0; v < v1; v++) {
				const uint8_t *in =
					origin + (ptrdiff_t)v * step_v + (ptrdiff_t)u0 * step_u;
				uint8_t *out = target + ((size_t)v * width + u0) * 3;
				for (uint32_t u = u0; u < u1; u++, in += step_u, out += 3) {
					out[0] = in[0];
					out[1] = in[1];
					out[2] = in[2];
				}
			}
		}
	}
	double x = flip_s ? stored->width - stored->x - stored->region_width : stored->x;
	double y = flip_t ? stored->height - stored->y - stored->region_height : stored->y;
	*ret_pixels = (struct packimg_pixels){
		.data = target,
		.stride = (size_t)width * 3,
		.width = width,
		.height = height,
		.x = swap ? y : x,
		.y = swap ? x : y,
		.region_width = swap ? stored->region_height : stored->region_width,
		.region_height = swap ? stored->region_width : stored->region_height,
	};
}

/* Turns a stored raster upright by exchanging and reversing its steps. */
static void orient_raster(uint8_t orientation, struct packimg_raster *raster)
{
	struct packimg_raster stored = *raster;

	if (flips_s(orientation)) {
		stored.data += (ptrdiff_t)(stored.width - 1) * stored.step_x;
		stored.step_x = -stored.step_x;
	}
	if (flips_t(orientation)) {
		stored.data += (ptrdiff_t)(stored.height - 1) * stored.step_y;
		stored.step_y = -stored.step_y;
	}
	*raster = stored;
	if (orient_swaps(orientation)) {
		raster->width = stored.height;
		raster->height = stored.width;
		raster->step_x = stored.step_y;
		raster->step_y = stored.step_x;
	}
}

/* ---- decoding ---- */

enum { CODEC_MAX = PACKIMG_CODEC_RASTER };

static const struct codec *const codecs[CODEC_MAX + 1] = {
	[PACKIMG_CODEC_JPEG] = &codec_jpeg,
	[PACKIMG_CODEC_RAW] = &codec_raw,
	[PACKIMG_CODEC_RAW_ZSTD] = &codec_raw_zstd,
	[PACKIMG_CODEC_RASTER] = &codec_raster,
};

struct packimg_decoder {
	struct scratch_budget budget;
	void *states[CODEC_MAX + 1];
	struct scratch upright;
	/* State of the last begin call. */
	const struct packimg_sample *sample;
	uint32_t height, ready; /* height of the returned rectangle, and number of rows available */
	uint64_t bands_image;   /* image of the budget of which bands are kept; 0 for none */
};

int packimg_isa_check(struct packimg_error *error)
{
	return cpu_isa_check(error ? error->text : NULL, error ? sizeof(error->text) : 0);
}

int packimg_decoder_new(struct packimg_decoder **ret_decoder)
{
	struct packimg_decoder *decoder = calloc(1, sizeof(*decoder));
	if (!decoder)
		return -ENOMEM;
	scratch_init(&decoder->upright, &decoder->budget);
	for (int i = 1; i <= CODEC_MAX; i++) {
		int r = codecs[i]->state_new(&decoder->budget, &decoder->states[i]);
		if (r < 0) {
			packimg_decoder_free(decoder);
			return r;
		}
	}
	*ret_decoder = decoder;
	return 0;
}

void packimg_decoder_free(struct packimg_decoder *decoder)
{
	if (!decoder)
		return;
	for (int i = 1; i <= CODEC_MAX; i++)
		codecs[i]->state_free(decoder->states[i]);
	scratch_deinit(&decoder->upright);
	free(decoder);
}

void packimg_decoder_limit(struct packimg_decoder *decoder, uint64_t bytes)
{
	decoder->budget.limit = bytes;
}

/*
 * Returns the largest of 1, 2, 4, 8 that leaves at least twice the hint in both directions; 1
 * without a hint.
 *
 * Why twice: the antialiasing resize of the reduced image should do nearly all the work that it
 * would do on the full image. The table shows the difference between finished crops of 96 to 400
 * pixels and the same crops from full scale, in 8-bit steps (mean, 99.9th percentile) and as PSNR
 * in dB, for 3000 x 2000 pixels, 4:2:0, quality 90. Columns: size left, as a multiple of the hint.
 *
 *   photos enlarged to that size    1 to 1.25    1.5 to 1.75      2 to 2.5        3 to 4
 *     1/2    mean, 99.9 %, dB     0.30  3 52.7  0.24  3 53.6    0.17  2 55.6   0.11  2 57.7
 *     1/4                         0.60  7 47.6  0.47  5 49.4    0.25  3 53.3   0.17  3 55.4
 *     1/8                         0.95 14 43.0  0.63  7 46.8    0.35  5 51.3
 *   as many small ones side by side, detail in every pixel
 *     1/2                         1.65 22 38.4  0.87 10 44.4    0.51  6 48.4   0.28  4 52.5
 *     1/4                         1.79 21 38.1  1.08 11 43.0    0.66  7 46.9   0.36  5 51.2
 *     1/8                         2.30 23 36.5  1.31 11 41.8    0.82 10 45.4
 *
 * A factor of 1.5 would save a quarter of the time for crops three to four and six to eight times
 * their target size, and double the difference.
 */
static uint32_t choose_denominator(const struct packimg_region *region, uint32_t hint_width,
				   uint32_t hint_height)
{
	uint32_t denominator = 8;

	if (hint_width == 0 || hint_height == 0)
		return 1;
	while (denominator > 1 && (region->width < (uint64_t)denominator * 2 * hint_width ||
				   region->height < (uint64_t)denominator * 2 * hint_height))
		denominator /= 2;
	return denominator;
}

uint32_t packimg_denominator(const struct packimg_sample *sample,
			     const struct packimg_region *region, uint32_t size_hint_width,
			     uint32_t size_hint_height)
{
	return sample->codec == PACKIMG_CODEC_JPEG
		       ? choose_denominator(region, size_hint_width, size_hint_height)
		       : 1;
}

static int request_init(struct codec_request *request, const struct packimg_sample *sample,
			const struct packimg_region *region, uint32_t hint_width,
			uint32_t hint_height, struct packimg_error *error)
{
	if (sample->codec < 1 || sample->codec > CODEC_MAX || sample->orientation < 1 ||
	    sample->orientation > 8)
		return packimg_damaged(error,
				       "sample %" PRIu64 ": codec %u or orientation %u is unknown",
				       sample->index, sample->codec, sample->orientation);
	if (region->width == 0 || region->height == 0 || region->x > sample->width ||
	    region->width > sample->width - region->x || region->y > sample->height ||
	    region->height > sample->height - region->y)
		return packimg_fail(error, -EINVAL,
				    "sample %" PRIu64
				    ": region %ux%u+%u+%u is not inside the image of %ux%u",
				    sample->index, region->width, region->height, region->x,
				    region->y, sample->width, sample->height);
	bool swap = orient_swaps(sample->orientation);
	*request = (struct codec_request){
		.sample = sample,
		.width = swap ? sample->height : sample->width,
		.height = swap ? sample->width : sample->height,
		.denominator = choose_denominator(region, hint_width, hint_height),
	};
	orient_region(sample->orientation, request->width, request->height, region,
		      &request->region);
	return 0;
}

/*
 * Reports a codec's error. If the memory limit refused an allocation, reports that instead,
 * whatever error the codec returned.
 */
static int decoder_fail(const struct packimg_decoder *decoder, struct packimg_error *error,
			int code, const struct packimg_sample *sample,
			const struct packimg_error *cause)
{
	if (decoder->budget.refused)
		return packimg_fail(error, -E2BIG,
				    "sample %" PRIu64
				    ": decoding %ux%u pixels takes at least %" PRIu64
				    " bytes of memory, the limit is %" PRIu64
				    "; raise the limit, or store a smaller image",
				    sample->index, sample->width, sample->height,
				    decoder->budget.refused, decoder->budget.limit);
	return packimg_fail(error, code, "sample %" PRIu64 ": %.400s", sample->index, cause->text);
}

static int decoder_decode(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			  const struct packimg_region *region, uint32_t hint_width,
			  uint32_t hint_height, bool by_rows, struct packimg_pixels *ret_pixels,
			  struct packimg_error *error)
{
	struct codec_request request;
	struct packimg_pixels pixels;
	struct packimg_error cause;

	int r = request_init(&request, sample, region, hint_width, hint_height, error);
	if (r < 0)
		return r;
	/* Turning an image upright needs all its rows at once. */
	request.by_rows = by_rows && sample->orientation == 1;
	cause.text[0] = '\0';
	scratch_budget_next(&decoder->budget);
	r = codecs[sample->codec]->decode(decoder->states[sample->codec], &request, &pixels,
					  &cause);
	if (r < 0)
		return decoder_fail(decoder, error, r, sample, &cause);
	if (sample->orientation != 1) {
		size_t size = (size_t)pixels.width * pixels.height * 3;
		if (scratch_reserve(&decoder->upright, size) < 0) {
			packimg_say(&cause, "out of memory for %zu bytes of pixels", size);
			return decoder_fail(decoder, error, -ENOMEM, sample, &cause);
		}
		struct packimg_pixels stored = pixels;
		orient_pixels(sample->orientation, &stored, decoder->upright.data, &pixels);
	}
	decoder->sample = sample;
	decoder->height = pixels.height;
	decoder->ready = pixels.ring ? 0 : pixels.height;
	*ret_pixels = pixels;
	return 0;
}

int packimg_decode(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		   const struct packimg_region *region, uint32_t size_hint_width,
		   uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
		   struct packimg_error *error)
{
	return decoder_decode(decoder, sample, region, size_hint_width, size_hint_height, false,
			      ret_pixels, error);
}

/* keeps: as codec_request.keeps; follows: likewise, if the decoder still has the bands. */
static int decode_raster(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			 const struct packimg_region *region, bool keeps, bool follows,
			 struct packimg_raster *ret_raster, struct packimg_error *error)
{
	struct packimg_error cause = {.text = ""};
	struct codec_request request;
	struct packimg_raster raster;
	int r = request_init(&request, sample, region, 0, 0, error);

	if (r < 0)
		return r;
	request.keeps = keeps;
	request.follows = follows && decoder->bands_image == decoder->budget.image;
	if (!codecs[sample->codec]->raster)
		return packimg_fail(error, -ENOTSUP,
				    "sample %" PRIu64
				    ": codec %u stores no raster: store masks and "
				    "rasters as raster, raw or raw+zstd",
				    sample->index, sample->codec);
	decoder->height = 0;
	decoder->bands_image = 0;
	if (!request.follows)
		scratch_budget_next(&decoder->budget);
	r = codecs[sample->codec]->raster(decoder->states[sample->codec], &request, &raster,
					  &cause);
	if (r < 0)
		return decoder_fail(decoder, error, r, sample, &cause);
	decoder->bands_image = keeps ? decoder->budget.image : 0;
	orient_raster(sample->orientation, &raster);
	*ret_raster = raster;
	return 0;
}

int packimg_decode_raster(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			  const struct packimg_region *region, struct packimg_raster *ret_raster,
			  struct packimg_error *error)
{
	return decode_raster(decoder, sample, region, false, false, ret_raster, error);
}

int packimg_decode_raster_bands(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, bool first,
				struct packimg_raster *ret_raster, struct packimg_error *error)
{
	if (sample->codec != PACKIMG_CODEC_RASTER)
		return packimg_fail(error, -ENOTSUP, "sample %" PRIu64 ": codec %u has no bands",
				    sample->index, sample->codec);
	return decode_raster(decoder, sample, region, true, !first, ret_raster, error);
}

int packimg_decode_begin(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			 const struct packimg_region *region, uint32_t size_hint_width,
			 uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
			 struct packimg_error *error)
{
	return decoder_decode(decoder, sample, region, size_hint_width, size_hint_height, true,
			      ret_pixels, error);
}

int packimg_decode_begin_planes(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, uint32_t size_hint_width,
				uint32_t size_hint_height, struct packimg_planes *ret_planes,
				struct packimg_error *error)
{
	struct packimg_error cause = {.text = ""};
	struct codec_request request;
	int r = request_init(&request, sample, region, size_hint_width, size_hint_height, error);

	if (r < 0)
		return r;
	request.by_rows = true;
	if (sample->orientation != 1 || !codecs[sample->codec]->planes)
		return PACKIMG_NO_PLANES;
	scratch_budget_next(&decoder->budget);
	r = codecs[sample->codec]->planes(decoder->states[sample->codec], &request, ret_planes,
					  &cause);
	if (r < 0)
		return decoder_fail(decoder, error, r, sample, &cause);
	decoder->sample = sample;
	decoder->height = r == 0 ? ret_planes->planes[0].height : 0;
	decoder->ready = 0;
	return r;
}

int packimg_decode_keep(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			const struct packimg_region *region)
{
	struct codec_request request;

	if (sample->codec != PACKIMG_CODEC_JPEG)
		return -ENOTSUP;
	int r = request_init(&request, sample, region, 0, 0, NULL);
	if (r < 0)
		return r;
	decoder->height = 0;
	scratch_budget_next(&decoder->budget);
	return codec_jpeg_keep(decoder->states[PACKIMG_CODEC_JPEG], &request, NULL);
}

void packimg_decode_borrow(struct packimg_decoder *decoder, const struct packimg_decoder *lender)
{
	decoder->height = 0;
	codec_jpeg_borrow(decoder->states[PACKIMG_CODEC_JPEG],
			  lender ? lender->states[PACKIMG_CODEC_JPEG] : NULL);
}

void packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
			  uint32_t count)
{
	struct codec_request requests[PACKIMG_AHEAD_MAX];

	scratch_budget_next(&decoder->budget);
	for (int codec = 1; codec <= CODEC_MAX; codec++) {
		uint32_t taken = 0;

		if (!codecs[codec]->ahead)
			continue;
		for (uint32_t i = 0; i < count && taken < PACKIMG_AHEAD_MAX; i++)
			if (parts[i].sample->codec == codec &&
			    request_init(&requests[taken], parts[i].sample, &parts[i].region,
					 parts[i].size_hint_width, parts[i].size_hint_height,
					 NULL) == 0)
				taken++;
		codecs[codec]->ahead(decoder->states[codec], requests, taken);
	}
	decoder->height = 0;
}

int packimg_decode_rows(struct packimg_decoder *decoder, uint32_t end, uint32_t *ret_ready,
			struct packimg_error *error)
{
	if (end > decoder->height)
		return packimg_fail(error, -EINVAL, "%u rows were requested, of %u", end,
				    decoder->height);
	if (end > decoder->ready) {
		const struct packimg_sample *sample = decoder->sample;
		struct packimg_error cause = {.text = ""};
		int r = codecs[sample->codec]->rows(decoder->states[sample->codec], end,
						    &decoder->ready, &cause);

		if (r < 0) {
			decoder->height = 0;
			return decoder_fail(decoder, error, r, sample, &cause);
		}
	}
	*ret_ready = decoder->ready;
	return 0;
}

int decoder_index(struct packimg_decoder *decoder, const struct jpeg_source *source,
		  const uint8_t **ret_jpeg_index, size_t *ret_size)
{
	scratch_budget_next(&decoder->budget);
	return codec_jpeg_index(decoder->states[PACKIMG_CODEC_JPEG], source, ret_jpeg_index,
				ret_size);
}

int packimg_index_jpeg(struct packimg_decoder *decoder, const uint8_t *data, size_t size,
		       const struct packimg_jpeg_info *info, const uint8_t **ret_jpeg_index,
		       size_t *ret_size)
{
	const struct jpeg_source source = {.data = data,
					   .size = size,
					   .width = info->width,
					   .height = info->height,
					   .components = info->components};

	return decoder_index(decoder, &source, ret_jpeg_index, ret_size);
}
