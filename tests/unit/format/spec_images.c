/*
 * Makes the reference data for the decoder written from SPEC.md alone: JPEGs of several kinds, and
 * what libjpeg decodes. Writes to the folder named on the command line:
 * - jpeg/NAME.jpg;
 * - NAME.coefficients: for each component the number of blocks across and down as uint32, then the
 * blocks by rows, each as 64 int16 in natural order;
 * - NAME.rgb: the pixels.
 */
#include "tests/unit/format/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <jpeglib.h>

static const struct {
	const char *name;
	uint32_t width, height;
	struct jpeg_kind kind;
} images[] = {
	{"420", 75, 100, {.components = 3, .h = 2, .v = 2}},
	{"422", 50, 41, {.components = 3, .h = 2, .v = 1, .optimise = true}},
	{"440", 33, 70, {.components = 3, .h = 1, .v = 2}},
	{"444", 160, 57, {.components = 3, .h = 1, .v = 1, .quality = 99, .optimise = true}},
	{"grey", 61, 90, {.components = 1, .h = 1, .v = 1}},
	{"restart", 75, 100, {.components = 3, .h = 2, .v = 2, .restart_rows = 2}},
	{"restart1", 40, 44, {.components = 1, .h = 1, .v = 1, .restart_rows = 1}},
	{"grey22", 50, 50, {.components = 1, .h = 2, .v = 2, .quality = 40}},
};

static FILE *create(const char *folder, const char *name, const char *extension)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s.%s", folder, name, extension);
	FILE *file = fopen(path, "wb");
	if (!file) {
		perror(path);
		exit(1);
	}
	return file;
}

static void write_coefficients(FILE *file, const uint8_t *data, size_t size)
{
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;

	cinfo.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&cinfo);
	jpeg_mem_src(&cinfo, data, size);
	jpeg_read_header(&cinfo, TRUE);
	jvirt_barray_ptr *arrays = jpeg_read_coefficients(&cinfo);
	for (int c = 0; c < cinfo.num_components; c++) {
		const jpeg_component_info *component = &cinfo.comp_info[c];
		uint32_t extent[2] = {component->width_in_blocks, component->height_in_blocks};

		fwrite(extent, sizeof(extent), 1, file);
		for (JDIMENSION y = 0; y < extent[1]; y++) {
			JBLOCKARRAY row = cinfo.mem->access_virt_barray((j_common_ptr)&cinfo,
									arrays[c], y, 1, FALSE);
			fwrite(row[0], sizeof(JBLOCK), extent[0], file);
		}
	}
	jpeg_destroy_decompress(&cinfo);
}

int main(int argc, char **argv)
{
	char folder[4000];

	if (argc != 2) {
		fprintf(stderr, "usage: spec_images FOLDER\n");
		return 2;
	}
	snprintf(folder, sizeof(folder), "%s/jpeg", argv[1]);
	mkdir(folder, 0777);
	for (size_t i = 0; i < sizeof(images) / sizeof(*images); i++) {
		uint32_t width, height;
		int components;
		size_t size;
		uint8_t *data =
			image_jpeg(images[i].width, images[i].height, &images[i].kind, i, &size);
		uint8_t *pixels = image_decode_plain(data, size, 1, &width, &height, &components);
		FILE *jpeg = create(folder, images[i].name, "jpg");
		FILE *coefficients = create(argv[1], images[i].name, "coefficients");
		FILE *rgb = create(argv[1], images[i].name, "rgb");

		fwrite(data, size, 1, jpeg);
		write_coefficients(coefficients, data, size);
		fwrite(pixels, (size_t)width * height * 3, 1, rgb);
		if (fclose(jpeg) || fclose(coefficients) || fclose(rgb)) {
			perror(argv[1]);
			return 1;
		}
		free(data);
		free(pixels);
	}
	return 0;
}
