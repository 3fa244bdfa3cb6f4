#include "format/codec/codec.h"
#include "format/codec/jpeg_output.h"
#include "format/codec/raster.h"
#include "format/codec/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { ROWS_AT_ONCE = 16 };

struct packimg_encoder {
	struct jpeg_trap trap;
	struct jpeg_compress_struct cinfo;
	struct jpeg_output output;
	struct jpeg_arena arena;
	struct scratch zstd_output;
	struct raster_encoder raster;
	ZSTD_CCtx *zstd;
};

static int encoder_init(struct packimg_encoder *encoder)
{
	jpeg_trap_init(&encoder->trap);
	encoder->cinfo.err = &encoder->trap.manager;
	if (setjmp(encoder->trap.jump))
		return encoder->trap.code;
	jpeg_create_compress(&encoder->cinfo);
	jpeg_arena_attach(&encoder->arena, NULL, (j_common_ptr)&encoder->cinfo);
	encoder->cinfo.dest = &encoder->output.manager;
	return jpeg_output_init(&encoder->output);
}

int packimg_encoder_new(struct packimg_encoder **ret_encoder)
{
	struct packimg_encoder *encoder = calloc(1, sizeof(*encoder));
	if (!encoder)
		return -ENOMEM;
	int r = encoder_init(encoder);
	encoder->zstd = r < 0 ? NULL : ZSTD_createCCtx();
	if (!encoder->zstd) {
		packimg_encoder_free(encoder);
		return r < 0 ? r : -ENOMEM;
	}
	encoder->raster.zstd = encoder->zstd;
	*ret_encoder = encoder;
	return 0;
}

void packimg_encoder_free(struct packimg_encoder *encoder)
{
	if (!encoder)
		return;
	jpeg_arena_detach(&encoder->arena);
	jpeg_destroy_compress(&encoder->cinfo);
	ZSTD_freeCCtx(encoder->zstd);
	scratch_deinit(&encoder->zstd_output);
	raster_encoder_deinit(&encoder->raster);
	jpeg_output_deinit(&encoder->output);
	free(encoder);
}

/* A function of its own, because longjmp leaves its frame. */
static void encoder_encode(struct packimg_encoder *encoder, const uint8_t *pixels, size_t stride,
			   uint32_t width, uint32_t height, uint32_t channels, int quality,
			   bool optimise)
{
	struct jpeg_compress_struct *cinfo = &encoder->cinfo;
	JSAMPROW rows[ROWS_AT_ONCE];

	/* See jpeg.c: tables are allocated in the arena. */
	memset(cinfo->quant_tbl_ptrs, 0, sizeof(cinfo->quant_tbl_ptrs));
	memset(cinfo->dc_huff_tbl_ptrs, 0, sizeof(cinfo->dc_huff_tbl_ptrs));
	memset(cinfo->ac_huff_tbl_ptrs, 0, sizeof(cinfo->ac_huff_tbl_ptrs));
	cinfo->comp_info = NULL;
	cinfo->script_space = NULL;
	cinfo->image_width = width;
	cinfo->image_height = height;
	cinfo->input_components = (int)channels;
	cinfo->in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(cinfo); /* 4:2:0 */
	jpeg_set_quality(cinfo, quality, TRUE);
	cinfo->dct_method = JDCT_ISLOW;
	cinfo->optimize_coding = optimise;
	jpeg_start_compress(cinfo, TRUE);
	while (cinfo->next_scanline < height) {
		uint32_t row = cinfo->next_scanline, count = height - row;
		if (count > ROWS_AT_ONCE)
			count = ROWS_AT_ONCE;
		for (uint32_t i = 0; i < count; i++)
			rows[i] = (JSAMPROW)pixels + (row + i) * stride;
		jpeg_write_scanlines(cinfo, rows, count);
	}
	jpeg_finish_compress(cinfo);
}

int packimg_encode_jpeg(struct packimg_encoder *encoder, const uint8_t *pixels, size_t stride,
			uint32_t width, uint32_t height, uint32_t channels, int quality,
			bool optimise, const uint8_t **ret_data, size_t *ret_size)
{
	if (width == 0 || width > JPEG_MAX_DIMENSION || height == 0 ||
	    height > JPEG_MAX_DIMENSION || (channels != 1 && channels != 3) ||
	    stride < (size_t)width * channels || quality < 1 || quality > 100)
		return -EINVAL;
	encoder->trap.code = 0;
	if (setjmp(encoder->trap.jump) == 0)
		encoder_encode(encoder, pixels, stride, width, height, channels, quality, optimise);
	jpeg_abort_compress(&encoder->cinfo);
	if (encoder->trap.code < 0)
		return encoder->trap.code;
	*ret_data = encoder->output.data;
	*ret_size = jpeg_output_used(&encoder->output);
	return 0;
}

int packimg_encode_zstd(struct packimg_encoder *encoder, const uint8_t *pixels, size_t size,
			int level, const uint8_t **ret_data, size_t *ret_size)
{
	size_t bound = ZSTD_compressBound(size);

	if (size == 0 || ZSTD_isError(bound) || level < ZSTD_minCLevel() ||
	    level > ZSTD_maxCLevel())
		return -EINVAL;
	if (scratch_reserve(&encoder->zstd_output, bound) < 0)
		return -ENOMEM;
	size_t n = ZSTD_compressCCtx(encoder->zstd, encoder->zstd_output.data, bound, pixels, size,
				     level);
	if (ZSTD_isError(n))
		return -ENOMEM;
	*ret_data = encoder->zstd_output.data;
	*ret_size = n;
	return 0;
}

int packimg_encode_raster(struct packimg_encoder *encoder, const struct packimg_raster *raster,
			  const struct packimg_raster_coding *coding, const uint8_t **ret_data,
			  size_t *ret_size, struct packimg_error *error)
{
	return raster_encode(&encoder->raster, raster, coding, ret_data, ret_size, error);
}
