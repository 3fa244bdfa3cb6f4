#include "bench/stages/turbo.h"

#include "format/codec/jpeg_common.h"
#include "format/codec/scratch.h"

#include <errno.h>
#include <stdlib.h>

enum {
	/* Columns beyond the crop that upsampling reads, and rows read per call. */
	MARGIN = 2,
	ROWS_AT_ONCE = 16,
};

struct turbo {
	struct jpeg_trap trap;
	struct jpeg_decompress_struct cinfo;
	struct jpeg_arena arena;
	struct scratch pixels;
};

int turbo_new(struct turbo **ret_turbo)
{
	struct turbo *turbo = calloc(1, sizeof(*turbo));

	if (!turbo)
		return -ENOMEM;
	jpeg_trap_init(&turbo->trap);
	turbo->cinfo.err = &turbo->trap.manager;
	if (setjmp(turbo->trap.jump)) {
		free(turbo);
		return -ENOMEM;
	}
	jpeg_create_decompress(&turbo->cinfo);
	jpeg_arena_attach(&turbo->arena, NULL, (j_common_ptr)&turbo->cinfo);
	*ret_turbo = turbo;
	return 0;
}

const char *turbo_error(const struct turbo *turbo)
{
	return turbo->trap.text;
}

static void read_header(struct turbo *turbo, const struct turbo_crop *crop)
{
	struct jpeg_decompress_struct *cinfo = &turbo->cinfo;

	/*
	 * The tables are in the arena, which the last image has reset: clear the stale pointers,
	 * which libjpeg would take for existing tables.
	 */
	for (int i = 0; i < NUM_QUANT_TBLS; i++)
		cinfo->quant_tbl_ptrs[i] = NULL;
	for (int i = 0; i < NUM_HUFF_TBLS; i++)
		cinfo->dc_huff_tbl_ptrs[i] = cinfo->ac_huff_tbl_ptrs[i] = NULL;
	/* The source object is in the arena too and must be created again. */
	cinfo->src = NULL;
	jpeg_mem_src(cinfo, crop->data, crop->size);
	jpeg_read_header(cinfo, TRUE);
	cinfo->out_color_space = JCS_RGB;
	cinfo->dct_method = JDCT_ISLOW;
	cinfo->do_fancy_upsampling = TRUE;
}

/* Reads rows up to `end` into an image that begins with the current row. */
static void read_rows(struct turbo *turbo, uint32_t end)
{
	struct jpeg_decompress_struct *cinfo = &turbo->cinfo;
	uint32_t first = cinfo->output_scanline;
	size_t stride = 3 * (size_t)cinfo->output_width;
	JSAMPROW rows[ROWS_AT_ONCE];

	if (scratch_reserve(&turbo->pixels, stride * (end - first)) < 0)
		jpeg_trap_raise((j_common_ptr)cinfo, -ENOMEM, "out of memory");
	while (cinfo->output_scanline < end) {
		uint32_t row = cinfo->output_scanline, count = end - row;

		if (count > ROWS_AT_ONCE)
			count = ROWS_AT_ONCE;
		for (uint32_t i = 0; i < count; i++)
			rows[i] = turbo->pixels.data + (row + i - first) * stride;
		jpeg_read_scanlines(cinfo, rows, count);
	}
}

static void decode_region(struct turbo *turbo, const struct turbo_crop *crop)
{
	struct jpeg_decompress_struct *cinfo = &turbo->cinfo;
	JDIMENSION left = crop->x > MARGIN ? crop->x - MARGIN : 0;
	JDIMENSION right = crop->x + crop->width + MARGIN, width;

	jpeg_start_decompress(cinfo);
	width = (right < cinfo->output_width ? right : cinfo->output_width) - left;
	if (width < cinfo->output_width)
		jpeg_crop_scanline(cinfo, &left, &width);
	if (crop->y > 0)
		jpeg_skip_scanlines(cinfo, crop->y);
	read_rows(turbo, crop->y + crop->height);
}

static void skip_rows(struct turbo *turbo, const struct turbo_crop *crop, double *ret_share)
{
	struct jpeg_decompress_struct *cinfo = &turbo->cinfo;

	jpeg_start_decompress(cinfo);
	uint32_t high = (uint32_t)cinfo->max_v_samp_factor * DCTSIZE;
	uint32_t rows = (crop->y + crop->height + high - 1) / high;
	uint32_t skipped = rows * high < cinfo->output_height ? rows : rows - 1;
	if (skipped > 0)
		jpeg_skip_scanlines(cinfo, skipped * high);
	*ret_share = (double)skipped / rows;
}

int turbo_region(struct turbo *turbo, const struct turbo_crop *crop)
{
	turbo->trap.code = 0;
	if (setjmp(turbo->trap.jump) == 0) {
		read_header(turbo, crop);
		decode_region(turbo, crop);
	}
	jpeg_abort_decompress(&turbo->cinfo);
	return turbo->trap.code;
}

int turbo_entropy(struct turbo *turbo, const struct turbo_crop *crop, double *ret_share)
{
	turbo->trap.code = 0;
	if (setjmp(turbo->trap.jump) == 0) {
		read_header(turbo, crop);
		skip_rows(turbo, crop, ret_share);
	}
	jpeg_abort_decompress(&turbo->cinfo);
	return turbo->trap.code;
}

int turbo_image(struct turbo *turbo, const struct turbo_crop *crop)
{
	turbo->trap.code = 0;
	if (setjmp(turbo->trap.jump) == 0) {
		read_header(turbo, crop);
		jpeg_start_decompress(&turbo->cinfo);
		read_rows(turbo, turbo->cinfo.output_height);
	}
	jpeg_abort_decompress(&turbo->cinfo);
	return turbo->trap.code;
}

int turbo_coefficients(struct turbo *turbo, const struct turbo_crop *crop)
{
	turbo->trap.code = 0;
	if (setjmp(turbo->trap.jump) == 0) {
		read_header(turbo, crop);
		jpeg_read_coefficients(&turbo->cinfo);
	}
	jpeg_abort_decompress(&turbo->cinfo);
	return turbo->trap.code;
}
