#include "tests/fuzz/support/jpeg_reference.h"

#include "format/codec/jpeg_common.h"

#include <jerror.h>
#include <math.h>
#include <setjmp.h>

static struct jpeg_decompress_struct d;
static struct jpeg_error_mgr errors;
static jmp_buf jump;
static char complaint[JMSG_LENGTH_MAX];

static void on_error(j_common_ptr cinfo)
{
	cinfo->err->format_message(cinfo, complaint);
	longjmp(jump, 1);
}

static void on_message(j_common_ptr cinfo, int level)
{
	int message = cinfo->err->msg_code;

	/* These warnings do not affect the image (SPEC.md, "Complete JPEGs"). */
	if (level >= 0 || message == JWRN_JFIF_MAJOR || message == JWRN_ADOBE_XFORM ||
	    message == JWRN_NOT_SEQUENTIAL || message == JWRN_EXTRANEOUS_DATA)
		return;
	cinfo->err->num_warnings++;
	cinfo->err->format_message(cinfo, complaint);
}

const char *jpeg_reference_complaint(void)
{
	return complaint;
}

/* Creates a new object for each image: a reused one would keep the tables of the image before. */
static void begin(const uint8_t *data, size_t size)
{
	if (d.err)
		jpeg_destroy_decompress(&d);
	d.err = jpeg_std_error(&errors);
	errors.error_exit = on_error;
	errors.emit_message = on_message;
	jpeg_create_decompress(&d);
	jpeg_mem_src(&d, data, size);
}

enum jpeg_verdict jpeg_reference_decode(const uint8_t *data, size_t size, uint32_t denominator,
					uint8_t *pixels, size_t room)
{
	if (setjmp(jump))
		return JPEG_VERDICT_FAILED;
	begin(data, size);
	jpeg_read_header(&d, TRUE);
	d.out_color_space = JCS_RGB;
	d.dct_method = JDCT_ISLOW;
	d.scale_num = 1;
	d.scale_denom = denominator;
	if ((size_t)d.image_width * d.image_height * 3 > room)
		return JPEG_VERDICT_FAILED;
	jpeg_start_decompress(&d);
	while (d.output_scanline < d.output_height) {
		JSAMPROW row = pixels + (size_t)d.output_scanline * d.output_width * 3;
		jpeg_read_scanlines(&d, &row, 1);
	}
	return errors.num_warnings ? JPEG_VERDICT_WARNED : JPEG_VERDICT_GOOD;
}

enum jpeg_verdict jpeg_reference_samples(const uint8_t *data, size_t size, uint32_t denominator,
					 struct jpeg_reference_plane ret_planes[3])
{
	/* MCUs of up to 32 samples extend beyond the image; each call returns whole rows of MCUs */
	enum { SIDE = 64 + 32, ROWS = 32 };
	static uint8_t samples[3][SIDE + ROWS][SIDE];

	if (setjmp(jump))
		return JPEG_VERDICT_FAILED;
	begin(data, size);
	jpeg_read_header(&d, TRUE);
	d.dct_method = JDCT_ISLOW;
	d.raw_data_out = TRUE;
	d.scale_num = 1;
	d.scale_denom = denominator;
	if (d.num_components != 3 || d.image_width > 64 || d.image_height > 64)
		return JPEG_VERDICT_FAILED;
	jpeg_start_decompress(&d);
	while (d.output_scanline < d.output_height) {
		JSAMPROW rows[3][ROWS];
		JSAMPARRAY planes[3];

		for (int i = 0; i < 3; i++) {
			const jpeg_component_info *component = &d.comp_info[i];
			JDIMENSION first = d.output_scanline * component->v_samp_factor *
					   jpeg_block_size(component) /
					   (d.max_v_samp_factor * jpeg_block_size_min(&d));

			for (int row = 0; row < ROWS; row++)
				rows[i][row] = samples[i][first + row];
			planes[i] = rows[i];
		}
		jpeg_read_raw_data(&d, planes, d.max_v_samp_factor * jpeg_block_size_min(&d));
	}
	for (int i = 0; i < 3; i++)
		ret_planes[i] = (struct jpeg_reference_plane){d.comp_info[i].downsampled_width,
							      d.comp_info[i].downsampled_height,
							      SIDE, samples[i][0]};
	return errors.num_warnings ? JPEG_VERDICT_WARNED : JPEG_VERDICT_GOOD;
}

const struct jpeg_decompress_struct *jpeg_reference_headers(const uint8_t *data, size_t size)
{
	if (setjmp(jump))
		return NULL;
	begin(data, size);
	return jpeg_read_header(&d, TRUE) == JPEG_HEADER_OK && !errors.num_warnings ? &d : NULL;
}

/*
 * First pass of the inverse DCT, scaled as in libjpeg. Returns true if the inputs, the outputs and
 * the sums of any two outputs fit into 16 bits.
 */
static bool columns_in_range(const double in[64])
{
	const double limit = 16383;
	static double basis[8][8];

	for (int i = 0; i < 64; i++)
		if (in[i] > limit || in[i] < -limit)
			return false;
	if (basis[0][0] == 0)
		for (int x = 0; x < 8; x++)
			for (int k = 0; k < 8; k++)
				basis[x][k] = k ? M_SQRT2 * cos((2 * x + 1) * k * M_PI / 16) : 1;
	for (int column = 0; column < 8; column++)
		for (int x = 0; x < 8; x++) {
			double sum = 0;

			for (int k = 0; k < 8; k++)
				sum += basis[x][k] * in[8 * k + column];
			if (fabs(4 * sum) > limit)
				return false;
		}
	return true;
}

static bool component_in_range(jpeg_component_info *component, jvirt_barray_ptr array)
{
	for (JDIMENSION y = 0; y < component->height_in_blocks; y++) {
		JBLOCKROW row = d.mem->access_virt_barray((j_common_ptr)&d, array, y, 1, FALSE)[0];

		for (JDIMENSION x = 0; x < component->width_in_blocks; x++) {
			double values[64];

			for (int k = 0; k < 64; k++)
				values[k] =
					(int16_t)(row[x][k] * component->quant_table->quantval[k]);
			if (!columns_in_range(values))
				return false;
		}
	}
	return true;
}

bool jpeg_reference_in_range(const uint8_t *data, size_t size)
{
	jvirt_barray_ptr *arrays;

	if (setjmp(jump))
		return false;
	begin(data, size);
	jpeg_read_header(&d, TRUE);
	arrays = jpeg_read_coefficients(&d);
	for (int i = 0; i < d.num_components; i++)
		if (!component_in_range(&d.comp_info[i], arrays[i]))
			return false;
	return true;
}
