/*
 * JPEG codec. Uses our own decoder (jpeg_baseline.h) if possible, otherwise libjpeg-turbo, which
 * also supplies the error message for a damaged file. This file contains the decoding with
 * libjpeg-turbo, of only those rows and columns that a region needs. The library's fancy upsampling
 * reads one chroma sample on each side, so the decoded area is slightly wider than the region and
 * cropped afterwards: pixels equal those of a full decode, bit for bit.
 */
#include "format/codec/codec.h"
#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/jpeg/jpeg_index.h"
#include "format/codec/jpeg_common.h"
#include "format/codec/jpeg_input.h"
#include "format/codec/scratch.h"
#include "format/codec/side_data.h"
#include "format/error.h"
#include "format/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum {
	/*
	 * Output columns needed left and right of the region for upsampling, and the minimum width
	 * at which upsampling stays "fancy".
	 */
	MARGIN_LEFT = 1,
	MARGIN_RIGHT = 2,
	CROP_WIDTH_MIN = 32,
	ROWS_AT_ONCE = 16,
	/* Rows kept when decoding by rows: PACKIMG_ROWS_HELD, plus the rows read at once. */
	RING = 32,
	/*
	 * Keep rows unaligned: libjpeg-turbo writes aligned rows with non-temporal stores
	 * (movntdq), and the resize that follows would fetch them back from memory. That costs 5 %
	 * of the decode time.
	 */
	ROW_MISALIGN = 8,
};

struct jpeg_state {
	struct jpeg_baseline *baseline;
	struct jpeg_trap trap;
	struct jpeg_decompress_struct cinfo;
	struct jpeg_input input;
	struct jpeg_arena arena;
	struct scratch pixels;
	/* copy of the sample's side data, or index built by codec_jpeg_index() */
	struct scratch side;
	struct scratch file; /* copy of the sample's bytes, if they are read more than once */
	struct codec_request request; /* current request */
	struct packimg_pixels result;
	bool indexed;       /* our own decoder uses an index */
	bool planar;        /* the current image is decoded to planes */
	bool by_library;    /* libjpeg-turbo decodes the current image row by row */
	uint32_t rows_read; /* rows of result read so far */
	/*
	 * If libjpeg-turbo had to finish an image that our decoder began: the ring that the caller
	 * reads. Otherwise data is NULL.
	 */
	struct packimg_pixels taken_over;
};

static void jpeg_state_free(void *state)
{
	struct jpeg_state *jpeg = state;

	if (!jpeg)
		return;
	jpeg_baseline_free(jpeg->baseline);
	jpeg_arena_detach(&jpeg->arena);
	jpeg_destroy_decompress(&jpeg->cinfo);
	scratch_deinit(&jpeg->pixels);
	scratch_deinit(&jpeg->side);
	scratch_deinit(&jpeg->file);
	free(jpeg);
}

static int jpeg_state_new(struct scratch_budget *budget, void **ret_state)
{
	struct jpeg_state *jpeg = calloc(1, sizeof(*jpeg));
	if (!jpeg)
		return -ENOMEM;
	jpeg_trap_init(&jpeg->trap);
	jpeg->cinfo.err = &jpeg->trap.manager;
	if (setjmp(jpeg->trap.jump)) {
		jpeg_state_free(jpeg);
		return -ENOMEM;
	}
	jpeg_create_decompress(&jpeg->cinfo);
	if (jpeg_baseline_new(&jpeg->baseline) < 0) {
		jpeg_state_free(jpeg);
		return -ENOMEM;
	}
	jpeg_baseline_budget(jpeg->baseline, budget);
	scratch_init(&jpeg->pixels, budget);
	scratch_init(&jpeg->side, budget);
	scratch_init(&jpeg->file, budget);
	jpeg_arena_attach(&jpeg->arena, budget, (j_common_ptr)&jpeg->cinfo);
	jpeg_input_attach(&jpeg->input, &jpeg->cinfo);
	*ret_state = jpeg;
	return 0;
}

/* Raises an error unless the JPEG header matches the index record. */
static void jpeg_check_header(struct jpeg_state *jpeg)
{
	const struct codec_request *request = &jpeg->request;
	struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;

	if (cinfo->image_width != request->width || cinfo->image_height != request->height)
		jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG,
				"JPEG is %ux%u, the index says %ux%u", cinfo->image_width,
				cinfo->image_height, request->width, request->height);
	if (cinfo->num_components != request->sample->channels)
		jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG,
				"JPEG has %d components, the index says %u", cinfo->num_components,
				request->sample->channels);
}

/* Copies the file, because libjpeg-turbo does not allow bytes to change while it reads them. */
static void jpeg_copy_file(struct jpeg_state *jpeg)
{
	const struct packimg_sample *sample = jpeg->request.sample;

	if (scratch_reserve(&jpeg->file, sample->data_size) < 0)
		jpeg_trap_raise((j_common_ptr)&jpeg->cinfo, -ENOMEM,
				"out of memory for %u bytes of a JPEG", sample->data_size);
	memcpy(jpeg->file.data, sample->data, sample->data_size);
	jpeg_input_begin(&jpeg->input, jpeg->file.data, sample->data_size);
}

static void jpeg_start(struct jpeg_state *jpeg)
{
	struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;

	/*
	 * Tables are in the arena, which was reset after the last image: clear the dangling
	 * pointers.
	 */
	memset(cinfo->quant_tbl_ptrs, 0, sizeof(cinfo->quant_tbl_ptrs));
	memset(cinfo->dc_huff_tbl_ptrs, 0, sizeof(cinfo->dc_huff_tbl_ptrs));
	memset(cinfo->ac_huff_tbl_ptrs, 0, sizeof(cinfo->ac_huff_tbl_ptrs));
	jpeg_copy_file(jpeg);
	jpeg_read_header(cinfo, TRUE);
	jpeg_check_header(jpeg);
	jpeg_input_check_size(&jpeg->input, cinfo, false);
	if (cinfo->jpeg_color_space == JCS_CMYK || cinfo->jpeg_color_space == JCS_YCCK)
		cinfo->out_color_space = JCS_CMYK;
	else if (cinfo->jpeg_color_space == JCS_UNKNOWN)
		jpeg_trap_raise((j_common_ptr)cinfo, -ENOTSUP, "JPEG with an unknown colour space");
	else
		cinfo->out_color_space = JCS_RGB;
	cinfo->dct_method = JDCT_ISLOW;
	cinfo->do_fancy_upsampling = TRUE;
	/* Smoothing would estimate missing scans from neighbouring blocks, which a region lacks. */
	cinfo->do_block_smoothing = FALSE;
	cinfo->scale_num = 1;
	cinfo->scale_denom = jpeg->request.denominator;
	jpeg_start_decompress(cinfo);
	if (jpeg_has_multiple_scans(cinfo)) /* all scans have been read */
		jpeg_input_check_whole(&jpeg->input, cinfo);
}

/*
 * Returns false if cropping would lose columns. At reduced scale, the inverse transform may make a
 * subsampled component larger than the scale implies. jpeg_crop_scanline() of libjpeg-turbo 2.1
 * ignores that if the component still needs upsampling (4:1 chroma at 1/2).
 */
static bool crop_is_safe(const struct jpeg_decompress_struct *cinfo)
{
	for (int i = 0; i < cinfo->num_components; i++) {
		const jpeg_component_info *component = &cinfo->comp_info[i];
		int size = jpeg_block_size(component), min = jpeg_block_size_min(cinfo);
		if (size != min &&
		    (component->h_samp_factor * size != cinfo->max_h_samp_factor * min ||
		     component->v_samp_factor * size != cinfo->max_v_samp_factor * min))
			return false;
	}
	return true;
}

/* Selects the columns to decode for output columns [first, end). */
static void crop_columns(struct jpeg_decompress_struct *cinfo, uint32_t first, uint32_t end,
			 JDIMENSION *ret_first)
{
	JDIMENSION width = cinfo->output_width,
		   left = first > MARGIN_LEFT ? first - MARGIN_LEFT : 0;
	JDIMENSION right = width - end > MARGIN_RIGHT ? end + MARGIN_RIGHT : width;

	if (right - left < CROP_WIDTH_MIN)
		right = width - left > CROP_WIDTH_MIN ? left + CROP_WIDTH_MIN : width;
	if (right - left < CROP_WIDTH_MIN)
		left = right > CROP_WIDTH_MIN ? right - CROP_WIDTH_MIN : 0;
	*ret_first = 0;
	if ((left == 0 && right == width) || !crop_is_safe(cinfo))
		return;
	JDIMENSION crop_width = right - left;
	jpeg_crop_scanline(cinfo, &left, &crop_width);
	*ret_first = left;
}

/*
 * Converts CMYK to RGB in place: a * b / 255, rounded. The stored values are 255 - ink: Adobe's
 * convention, which nearly all files follow with or without Adobe's marker, and which other
 * programs assume.
 */
static void cmyk_to_rgb(uint8_t *row, uint32_t width)
{
	uint8_t *out = row;

	for (const uint8_t *in = row; width > 0; width--, in += 4, out += 3) {
		uint32_t k = in[3];
		for (int i = 0; i < 3; i++) {
			uint32_t product = in[i] * k + 128;
			out[i] = (uint8_t)(((product >> 8) + product) >> 8);
		}
	}
}

/* Decodes rows of the result up to end, exclusive. May longjmp. */
static void jpeg_read_rows(struct jpeg_state *jpeg, uint32_t end)
{
	struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
	const struct packimg_pixels *result = &jpeg->result;
	JSAMPROW rows[ROWS_AT_ONCE];

	while (jpeg->rows_read < end) {
		uint32_t count = result->height - jpeg->rows_read;
		if (count > ROWS_AT_ONCE)
			count = ROWS_AT_ONCE;
		for (uint32_t i = 0; i < count; i++)
			rows[i] = jpeg->pixels.data + ROW_MISALIGN +
				  ((jpeg->rows_read + i) & (result->ring - 1)) * result->stride;
		count = jpeg_read_scanlines(cinfo, rows, count);
		if (count == 0)
			jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG, "JPEG data ends too early");
		if (cinfo->out_color_space == JCS_CMYK)
			for (uint32_t i = 0; i < count; i++)
				cmyk_to_rgb(rows[i], cinfo->output_width);
		jpeg->rows_read += count;
	}
	if (jpeg->rows_read == result->height)
		jpeg_input_check_whole(&jpeg->input, cinfo);
	if (jpeg_input_needs_end(&jpeg->input) && jpeg->rows_read == result->height &&
	    cinfo->output_scanline == cinfo->output_height)
		jpeg_finish_decompress(cinfo);
}

/* Returns the pixels that the request's region touches at the requested scale. */
static struct jpeg_region region_of(const struct codec_request *request)
{
	const struct packimg_region *region = &request->region;
	uint32_t denominator = request->denominator;
	uint32_t x = region->x / denominator, y = region->y / denominator;

	return (struct jpeg_region){
		.source = {.data = request->sample->data,
			   .size = request->sample->data_size,
			   .width = request->width,
			   .height = request->height,
			   .components = request->sample->channels,
			   .denominator = denominator},
		.x = x,
		.y = y,
		.width = (region->x + region->width + denominator - 1) / denominator - x,
		.height = (region->y + region->height + denominator - 1) / denominator - y,
	};
}

/* Returns the geometry of the pixels of region_of(), without their location in memory. */
static struct packimg_pixels pixels_of(const struct codec_request *request)
{
	const struct jpeg_region scaled = region_of(request);
	double denominator = request->denominator;

	return (struct packimg_pixels){
		.width = scaled.width,
		.height = scaled.height,
		.x = request->region.x / denominator - scaled.x,
		.y = request->region.y / denominator - scaled.y,
		.region_width = request->region.width / denominator,
		.region_height = request->region.height / denominator,
	};
}

/* Starts decoding the region and fills in result; may longjmp. */
static void jpeg_begin_region(struct jpeg_state *jpeg, bool by_rows)
{
	struct packimg_pixels result = pixels_of(&jpeg->request);
	uint32_t x = region_of(&jpeg->request).x, y = region_of(&jpeg->request).y;
	uint32_t rows = by_rows && result.height > RING ? RING : result.height;
	struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
	JDIMENSION column;

	jpeg_start(jpeg);
	crop_columns(cinfo, x, x + result.width, &column);
	size_t stride =
		((size_t)cinfo->output_width * (size_t)cinfo->output_components + 63) & ~(size_t)63;
	if (scratch_reserve(&jpeg->pixels, ROW_MISALIGN + stride * rows) < 0)
		jpeg_trap_raise((j_common_ptr)cinfo, -ENOMEM,
				"out of memory for %zu bytes of pixels", stride * rows);
	result.data = jpeg->pixels.data + ROW_MISALIGN + (size_t)(x - column) * 3;
	result.stride = stride;
	result.ring = by_rows ? RING : 0;
	jpeg->result = result;
	jpeg->rows_read = 0;
	if (y > 0 && jpeg_skip_scanlines(cinfo, y) != y)
		jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG, "JPEG data ends too early");
}

/* Decodes with libjpeg-turbo: all rows, or none yet if by_rows is set. */
static int jpeg_decode_by_library(struct jpeg_state *jpeg, bool by_rows,
				  struct packimg_error *error)
{
	jpeg->trap.code = 0;
	if (setjmp(jpeg->trap.jump) == 0) {
		jpeg_begin_region(jpeg, by_rows);
		if (!by_rows)
			jpeg_read_rows(jpeg, jpeg->result.height);
	}
	jpeg->by_library = by_rows && jpeg->trap.code == 0;
	/* Also frees the memory of an image that failed half-way. */
	if (!jpeg->by_library)
		jpeg_abort_decompress(&jpeg->cinfo);
	if (jpeg->trap.code < 0)
		return packimg_fail(error, jpeg->trap.code, "%s", jpeg->trap.text);
	return 0;
}

/*
 * Finds an index of the known version. Uses a copy of the side data, because the index is read
 * again for every row. Verifies the checksum each time, because a damaged index can produce
 * plausible pixels; that takes less than a hundredth of the decode time.
 */
static int jpeg_find_index(struct jpeg_state *jpeg, const struct packimg_sample *sample,
			   struct jpeg_source *source, struct packimg_error *error)
{
	const uint8_t *index;
	size_t size;

	if (sample->side_size == 0)
		return 0;
	if (scratch_reserve(&jpeg->side, sample->side_size) < 0)
		return packimg_fail(error, -ENOMEM, "out of memory for %u bytes of side data",
				    sample->side_size);
	memcpy(jpeg->side.data, sample->side, sample->side_size);
	if (side_data_find(jpeg->side.data, sample->side_size, PIMG_SIDE_JPEG_INDEX, &index,
			   &size) < 0)
		return 0;
	if (XXH3_64bits(jpeg->side.data, sample->side_size) != sample->side_xxh3)
		return packimg_damaged(error,
				       "the JPEG index does not match its checksum; rebuild it "
				       "with packimg index --rebuild");
	if (size == 0 || index[0] != JPEG_INDEX_VERSION)
		return 0;
	source->index = index;
	source->index_size = size;
	return 0;
}

/*
 * True if the file has less than one bit per block, the minimum of a valid file. No memory is
 * allocated for its pixels then.
 */
static bool too_small(const struct codec_request *request)
{
	return (uint64_t)((request->width + 7) / 8) * ((request->height + 7) / 8) >
	       (uint64_t)request->sample->data_size * 8;
}

/*
 * Decodes with our own decoder. After an error, libjpeg-turbo decodes the image or reports the
 * error.
 */
static int jpeg_decode_baseline(struct jpeg_state *jpeg, const struct jpeg_region *region)
{
	const struct codec_request *request = &jpeg->request;
	struct packimg_pixels result = pixels_of(request);
	struct jpeg_rows rows;

	if (too_small(request))
		return -EBADMSG;
	int r = jpeg_baseline_begin(jpeg->baseline, region, !request->by_rows, &rows);
	if (r == 0 && !request->by_rows)
		r = jpeg_baseline_rows(jpeg->baseline, result.height, NULL);
	if (r < 0)
		return r;
	result.data = rows.data;
	result.stride = rows.stride;
	result.ring = rows.ring;
	jpeg->result = result;
	return 0;
}

/* Ends the current decode. */
static void jpeg_leave_image(struct jpeg_state *jpeg)
{
	if (jpeg->by_library)
		jpeg_abort_decompress(&jpeg->cinfo);
	jpeg->by_library = false;
	jpeg->planar = false;
	jpeg->taken_over.data = NULL;
}

/* Ends the current decode and prepares the next one for our own decoder. */
static int jpeg_take_request(struct jpeg_state *jpeg, const struct codec_request *request,
			     struct jpeg_region *ret_region, struct packimg_error *error)
{
	*ret_region = region_of(request);
	jpeg_leave_image(jpeg);
	jpeg->request = *request;
	int r = jpeg_find_index(jpeg, request->sample, &ret_region->source, error);
	jpeg->indexed = ret_region->source.index;
	return r;
}

int codec_jpeg_keep(void *state, const struct codec_request *request, struct packimg_error *error)
{
	struct jpeg_state *jpeg = state;
	struct jpeg_region region;
	int r = jpeg_take_request(jpeg, request, &region, error);

	if (r < 0)
		return r;
	r = too_small(request) ? -EBADMSG : jpeg_baseline_keep(jpeg->baseline, &region);
	return r < 0 ? packimg_fail(error, r, "its coefficients cannot be kept") : 0;
}

void codec_jpeg_borrow(void *state, const void *lender)
{
	struct jpeg_state *jpeg = state;
	const struct jpeg_state *other = lender;

	jpeg_leave_image(jpeg);
	jpeg_baseline_borrow(jpeg->baseline, other ? other->baseline : NULL);
}

static void jpeg_batched_decode(void *state, const struct codec_request *requests, uint32_t count)
{
	struct jpeg_region regions[PACKIMG_AHEAD_MAX];
	struct jpeg_state *jpeg = state;
	uint32_t taken = 0;

	jpeg_leave_image(jpeg);
	for (uint32_t i = 0; i < count && taken < PACKIMG_AHEAD_MAX; i++)
		if (!packimg_sample_indexed(requests[i].sample) && !too_small(&requests[i]))
			regions[taken++] = region_of(&requests[i]);
	jpeg_baseline_batched(jpeg->baseline, regions, taken);
}

static int jpeg_decode(void *state, const struct codec_request *request,
		       struct packimg_pixels *ret_pixels, struct packimg_error *error)
{
	struct jpeg_state *jpeg = state;
	struct jpeg_region region;
	int r = jpeg_take_request(jpeg, request, &region, error);
	if (r < 0)
		return r;
	if (jpeg_decode_baseline(jpeg, &region) < 0) {
		r = jpeg_decode_by_library(jpeg, request->by_rows, error);
		if (r < 0)
			return r;
	}
	*ret_pixels = jpeg->result;
	return 0;
}

static int jpeg_rows_by_library(struct jpeg_state *jpeg, uint32_t end, struct packimg_error *error)
{
	if (setjmp(jpeg->trap.jump) == 0)
		jpeg_read_rows(jpeg, end);
	if (jpeg->trap.code < 0 || jpeg->rows_read == jpeg->result.height) {
		jpeg_abort_decompress(&jpeg->cinfo);
		jpeg->by_library = false;
	}
	if (jpeg->trap.code < 0)
		return packimg_fail(error, jpeg->trap.code, "%s", jpeg->trap.text);
	return 0;
}

/*
 * Continues an image with libjpeg-turbo, which accepts scans that our decoder rejects, for example
 * with runs past the end of a block. Rows already returned are the same, so it decodes the whole
 * region and copies rows to the ring that the caller reads. With an index, rows already returned
 * may be wrong, because the index may be: then only reports the fault.
 */
static int jpeg_take_over(struct jpeg_state *jpeg, struct packimg_error *error)
{
	struct packimg_pixels given = jpeg->result;
	int r = jpeg_decode_by_library(jpeg, false, error);

	if (r < 0)
		return r;
	if (jpeg->indexed)
		return packimg_damaged(error, "the JPEG does not match its index; rebuild that "
					      "with packimg index --rebuild");
	jpeg->taken_over = given;
	return 0;
}

static void jpeg_copy_rows(const struct packimg_pixels *from, const struct packimg_pixels *ring,
			   uint32_t end)
{
	/* This memory belongs to the decoder. */
	uint8_t *output = (uint8_t *)(uintptr_t)ring->data;

	for (uint32_t y = end > ring->ring ? end - ring->ring : 0; y < end; y++)
		memcpy(output + y % ring->ring * ring->stride, from->data + y * from->stride,
		       3 * (size_t)from->width);
}

static int jpeg_rows(void *state, uint32_t end, uint32_t *ret_ready, struct packimg_error *error)
{
	struct jpeg_state *jpeg = state;
	int r;

	if (jpeg->by_library) {
		r = jpeg_rows_by_library(jpeg, end, error);
		*ret_ready = jpeg->rows_read;
		return r;
	}
	if (!jpeg->taken_over.data) {
		r = jpeg_baseline_rows(jpeg->baseline, end, ret_ready);
		if (r == 0)
			return 0;
		r = jpeg_take_over(jpeg, error);
		if (r < 0)
			return r;
		if (jpeg->planar)
			return packimg_fail(error, -ENOTSUP,
					    "JPEG is one that only libjpeg-turbo reads: it comes "
					    "as pixels, not planes");
	}
	jpeg_copy_rows(&jpeg->result, &jpeg->taken_over, end);
	*ret_ready = end;
	return 0;
}

static int jpeg_planes(void *state, const struct codec_request *request,
		       struct packimg_planes *ret_planes, struct packimg_error *error)
{
	struct jpeg_state *jpeg = state;
	struct jpeg_samples samples[3];
	struct jpeg_region region;
	int r = jpeg_take_request(jpeg, request, &region, error);

	if (r < 0)
		return r;
	if (too_small(request))
		return PACKIMG_NO_PLANES;
	r = jpeg_baseline_begin_planes(jpeg->baseline, &region, samples);
	/* The result must not depend on whether an index was usable. */
	if (r < 0 && jpeg->indexed) {
		region.source.index = NULL;
		jpeg->indexed = false;
		r = jpeg_baseline_begin_planes(jpeg->baseline, &region, samples);
	}
	if (r < 0)
		return PACKIMG_NO_PLANES;
	for (int i = 0; i < 3; i++) {
		uint32_t x_factor = samples[i].h_factor * request->denominator;
		uint32_t y_factor = samples[i].v_factor * request->denominator;

		ret_planes->planes[i] = (struct packimg_plane){
			.data = samples[i].data,
			.stride = samples[i].stride,
			.ring = samples[i].ring,
			.first = samples[i].first,
			.width = samples[i].width,
			.height = samples[i].height,
			.x = (double)request->region.x / x_factor - samples[i].column,
			.y = (double)request->region.y / y_factor - samples[i].row,
			.x_factor = x_factor,
			.y_factor = y_factor,
		};
	}
	jpeg->planar = true;
	return 0;
}

const struct codec codec_jpeg = {
	.state_new = jpeg_state_new,
	.state_free = jpeg_state_free,
	.decode = jpeg_decode,
	.planes = jpeg_planes,
	.rows = jpeg_rows,
	.ahead = jpeg_batched_decode,
};

int codec_jpeg_index(void *state, const struct jpeg_source *source, const uint8_t **ret_jpeg_index,
		     size_t *ret_size)
{
	struct jpeg_state *jpeg = state;
	struct jpeg_source copy = *source;
	const uint8_t *content;
	size_t content_size;
	/* The scan is read twice, to decode symbols and to find their positions, so copy it. */
	int r = scratch_reserve(&jpeg->file, source->size);

	if (r < 0)
		return r;
	copy.data = memcpy(jpeg->file.data, source->data, source->size);
	r = jpeg_baseline_index(jpeg->baseline, &copy, &content, &content_size);
	r = r ?: scratch_reserve(&jpeg->side, side_data_item_size(content_size));
	if (r < 0)
		return r;
	side_data_item_write(jpeg->side.data, PIMG_SIDE_JPEG_INDEX, content,
			     (uint32_t)content_size);
	*ret_jpeg_index = jpeg->side.data;
	*ret_size = side_data_item_size(content_size);
	return 0;
}
