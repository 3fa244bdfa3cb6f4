#include "tests/unit/format/images.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

/* SplitMix64 */
uint64_t image_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint8_t *image_pixels(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed)
{
	uint8_t *pixels = malloc((size_t)width * height * channels);
	uint64_t state = seed;
	uint32_t period = 3 + (uint32_t)(image_random(&state) % 40),
		 noise = (uint32_t)(image_random(&state) % 60) + 1;

	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < channels; c++) {
				uint32_t square = ((x + c * 3) / period + y / period) % 2 * 90;
				uint32_t ramp = (x * (c + 1) + y * (3 - c % 3)) / 4 % 100;
				uint32_t value =
					square + ramp + (uint32_t)(image_random(&state) % noise);
				pixels[((size_t)y * width + x) * channels + c] = (uint8_t)value;
			}
	return pixels;
}

static uint8_t *content_pixels(enum image_content content, uint32_t width, uint32_t height,
			       uint32_t channels, uint64_t seed)
{
	uint8_t *pixels = image_pixels(width, height, channels, seed), *out = pixels;
	uint64_t state = seed;
	uint32_t slant = (uint32_t)(image_random(&state) % 4),
		 level = (uint32_t)image_random(&state);

	if (content == IMAGE_MIXED)
		return pixels;
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < channels; c++)
				*out++ = content == IMAGE_FLAT ? (uint8_t)(level >> 8 * c)
					 : content == IMAGE_GRADIENT
						 ? (uint8_t)(level + x * slant + y * (c + 1))
						 : (uint8_t)image_random(&state);
	return pixels;
}

static void widen_quant(j_compress_ptr cinfo)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; cinfo->quant_tbl_ptrs[i] && k < 64; k++)
			cinfo->quant_tbl_ptrs[i]->quantval[k] =
				(UINT16)(cinfo->quant_tbl_ptrs[i]->quantval[k] + (k % 5) * 150);
}

static void write_exif(j_compress_ptr cinfo, int orientation, bool big)
{
	uint8_t exif[] = {'E',  'x',  'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
			  0x12, 0x01, 3,   0,   1, 0, 0,   0,   0,  0, 0, 0, 0, 0, 0, 0};

	if (big) {
		static const uint8_t head[] = {'M',  'M',  0, 42, 0, 0, 0, 8, 0, 1,
					       0x01, 0x12, 0, 3,  0, 0, 0, 1, 0, 0};
		memcpy(exif + 6, head, sizeof(head));
		exif[25] = (uint8_t)orientation;
	} else {
		exif[24] = (uint8_t)orientation;
	}
	jpeg_write_marker(cinfo, JPEG_APP0 + 1, exif, sizeof(exif));
}

/* Makes one sequential scan per component: neither progressive nor interleaved. */
static void set_separate_scans(j_compress_ptr cinfo, jpeg_scan_info scans[4])
{
	for (int i = 0; i < cinfo->num_components; i++)
		scans[i] = (jpeg_scan_info){
			.comps_in_scan = 1, .component_index = {i}, .Ss = 0, .Se = 63};
	cinfo->scan_info = scans;
	cinfo->num_scans = cinfo->num_components;
}

uint8_t *image_jpeg(uint32_t width, uint32_t height, const struct jpeg_kind *kind, uint64_t seed,
		    size_t *ret_size)
{
	struct jpeg_compress_struct cinfo;
	struct jpeg_error_mgr errors;
	jpeg_scan_info scans[4];
	unsigned char *data = NULL;
	unsigned long size = 0;
	uint8_t *pixels =
		content_pixels(kind->content, width, height, (uint32_t)kind->components, seed);

	cinfo.err = jpeg_std_error(&errors);
	errors.trace_level = -1; /* suppresses warnings about 16-bit tables */
	jpeg_create_compress(&cinfo);
	jpeg_mem_dest(&cinfo, &data, &size);
	cinfo.image_width = width;
	cinfo.image_height = height;
	cinfo.input_components = kind->components;
	cinfo.in_color_space = kind->components == 1   ? JCS_GRAYSCALE
			       : kind->components == 3 ? JCS_RGB
						       : JCS_CMYK;
	jpeg_set_defaults(&cinfo);
	if (kind->rgb)
		jpeg_set_colorspace(&cinfo, JCS_RGB);
	if (kind->ycck)
		jpeg_set_colorspace(&cinfo, JCS_YCCK);
	jpeg_set_quality(&cinfo, kind->quality ? kind->quality : 90, TRUE);
	for (int i = 0; i < cinfo.num_components; i++) {
		/* in YCCK, the last component also has full resolution */
		bool full = i == 0 || (i == 3 && kind->ycck);
		cinfo.comp_info[i].h_samp_factor = full             ? kind->h
						   : kind->chroma_h ? kind->chroma_h
								    : 1;
		cinfo.comp_info[i].v_samp_factor = full             ? kind->v
						   : kind->chroma_v ? kind->chroma_v
								    : 1;
	}
	if (kind->wide_quant)
		widen_quant(&cinfo);
	if (kind->progressive)
		jpeg_simple_progression(&cinfo);
	if (kind->separate)
		set_separate_scans(&cinfo, scans);
	cinfo.arith_code = kind->arithmetic;
	cinfo.optimize_coding = kind->optimise;
	cinfo.restart_in_rows = kind->restart_rows;
	cinfo.restart_interval = (unsigned)kind->restart_mcus;
	if (kind->not_adobe)
		cinfo.write_Adobe_marker = FALSE;
	jpeg_start_compress(&cinfo, TRUE);
	if (kind->orientation)
		write_exif(&cinfo, kind->orientation, kind->exif_big);
	while (cinfo.next_scanline < height) {
		JSAMPROW row =
			pixels + (size_t)cinfo.next_scanline * width * (size_t)kind->components;
		jpeg_write_scanlines(&cinfo, &row, 1);
	}
	jpeg_finish_compress(&cinfo);
	jpeg_destroy_compress(&cinfo);
	free(pixels);
	*ret_size = size;
	return data;
}

uint8_t *image_decode_plain(const uint8_t *data, size_t size, uint32_t denominator,
			    uint32_t *ret_width, uint32_t *ret_height, int *ret_components)
{
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;

	cinfo.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&cinfo);
	jpeg_mem_src(&cinfo, data, size);
	jpeg_read_header(&cinfo, TRUE);
	cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_RGB;
	cinfo.dct_method = JDCT_ISLOW;
	cinfo.scale_num = 1;
	cinfo.scale_denom = denominator;
	jpeg_start_decompress(&cinfo);
	size_t stride = (size_t)cinfo.output_width * (size_t)cinfo.output_components;
	uint8_t *pixels = malloc(stride * cinfo.output_height);
	while (cinfo.output_scanline < cinfo.output_height) {
		JSAMPROW row = pixels + cinfo.output_scanline * stride;
		jpeg_read_scanlines(&cinfo, &row, 1);
	}
	*ret_width = cinfo.output_width;
	*ret_height = cinfo.output_height;
	*ret_components = cinfo.output_components;
	jpeg_finish_decompress(&cinfo);
	jpeg_destroy_decompress(&cinfo);
	return pixels;
}

char *image_directory(void)
{
	const char *base = getenv("TMPDIR");
	char *path = NULL;

	if (asprintf(&path, "%s/pimg-test-XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path)) {
		perror("mkdtemp");
		abort();
	}
	return path;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	return remove(path);
}

void image_directory_remove(char *directory)
{
	nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(directory);
}

uint8_t *image_file_read(const char *path, size_t *ret_size)
{
	struct stat status;
	FILE *file = fopen(path, "rb");

	if (!file || fstat(fileno(file), &status) < 0) {
		perror(path);
		abort();
	}
	uint8_t *data = malloc((size_t)status.st_size + 1);
	*ret_size = fread(data, 1, (size_t)status.st_size, file);
	fclose(file);
	return data;
}

void image_file_write(const char *path, const uint8_t *data, size_t size)
{
	FILE *file = fopen(path, "wb");

	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		abort();
	}
}
