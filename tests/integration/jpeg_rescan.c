/*
 * Losslessly rewrites JPEG files in place, to make datasets whose JPEGs cannot have an index:
 * `jpeg_rescan progressive FILE...` uses progressive scans, `jpeg_rescan restart FILE...` a restart
 * interval of five MCUs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static int rewrite(const char *path, int progressive)
{
	struct jpeg_decompress_struct source;
	struct jpeg_compress_struct target;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL;
	unsigned long size = 0;
	FILE *file = fopen(path, "rb");

	if (!file)
		return -1;
	source.err = target.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&source);
	jpeg_create_compress(&target);
	jpeg_stdio_src(&source, file);
	jpeg_read_header(&source, TRUE);
	jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&source);

	jpeg_copy_critical_parameters(&source, &target);
	if (progressive)
		jpeg_simple_progression(&target);
	else
		target.restart_interval = 5;
	jpeg_mem_dest(&target, &bytes, &size);
	jpeg_write_coefficients(&target, coefficients);
	jpeg_finish_compress(&target);
	jpeg_finish_decompress(&source);
	jpeg_destroy_compress(&target);
	jpeg_destroy_decompress(&source);
	fclose(file);
	file = fopen(path, "wb");
	int wrong = !file || fwrite(bytes, 1, size, file) != size;

	if (file && fclose(file))
		wrong = 1;
	free(bytes);
	return wrong ? -1 : 0;
}

int main(int argc, char **argv)
{
	if (argc < 3 || (strcmp(argv[1], "progressive") != 0 && strcmp(argv[1], "restart") != 0))
		return 2;
	for (int i = 2; i < argc; i++) {
		if (rewrite(argv[i], strcmp(argv[1], "progressive") == 0)) {
			perror(argv[i]);
			return 1;
		}
	}
	return 0;
}
