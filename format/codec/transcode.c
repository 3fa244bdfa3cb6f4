/*
 * Lossless transcoding of JPEGs: writes the coefficients of any file that libjpeg-turbo reads as
 * one baseline scan with optimised Huffman tables. Copies markers (APPn, COM) byte for byte in
 * order, including JFIF's and Adobe's, so that every reader interprets the colours as before. Each
 * image uses new libjpeg objects: otherwise a file without tables would be decoded with those of
 * the previous one.
 */
#include "format/codec/jpeg_input.h"
#include "format/codec/jpeg_output.h"
#include "format/error.h"
#include "format/packimg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MARKER_SIZE_MAX = 0xffff };

struct packimg_transcoder {
	struct jpeg_trap trap;
	struct jpeg_decompress_struct source;
	struct jpeg_compress_struct target;
	struct jpeg_input input;
	struct jpeg_output output;
	bool writing; /* reading has succeeded */
};

int packimg_transcoder_new(struct packimg_transcoder **ret_transcoder)
{
	struct packimg_transcoder *transcoder = calloc(1, sizeof(*transcoder));
	if (!transcoder)
		return -ENOMEM;
	jpeg_trap_init(&transcoder->trap);
	int r = jpeg_output_init(&transcoder->output);
	if (r < 0) {
		packimg_transcoder_free(transcoder);
		return r;
	}
	*ret_transcoder = transcoder;
	return 0;
}

void packimg_transcoder_free(struct packimg_transcoder *transcoder)
{
	if (!transcoder)
		return;
	jpeg_output_deinit(&transcoder->output);
	free(transcoder);
}

/*
 * Writes all markers before the scan, except JFIF and Adobe markers that came after the first scan:
 * colours depend on those before the scan. before_scan: number of markers that came before the
 * first scan.
 */
static void write_markers(struct packimg_transcoder *transcoder, unsigned before_scan)
{
	for (jpeg_saved_marker_ptr marker = transcoder->source.marker_list; marker;
	     marker = marker->next) {
		bool early = before_scan > 0;

		before_scan -= early;
		if (early || (marker->marker != JPEG_APP0 && marker->marker != JPEG_APP0 + 14))
			jpeg_write_marker(&transcoder->target, marker->marker, marker->data,
					  marker->data_length);
	}
}

static unsigned count_markers(const struct jpeg_decompress_struct *source)
{
	unsigned count = 0;

	for (jpeg_saved_marker_ptr marker = source->marker_list; marker; marker = marker->next)
		count++;
	return count;
}

static void transcoder_create(struct packimg_transcoder *transcoder)
{
	struct jpeg_decompress_struct *source = &transcoder->source;

	source->err = &transcoder->trap.manager;
	transcoder->target.err = &transcoder->trap.manager;
	jpeg_create_decompress(source);
	jpeg_create_compress(&transcoder->target);
	jpeg_save_markers(source, JPEG_COM, MARKER_SIZE_MAX);
	for (int i = 0; i < 16; i++)
		jpeg_save_markers(source, JPEG_APP0 + i, MARKER_SIZE_MAX);
	jpeg_input_attach(&transcoder->input, source);
	transcoder->target.dest = &transcoder->output.manager;
}

/* Contains all code that may longjmp. */
static void transcoder_run(struct packimg_transcoder *transcoder, const uint8_t *data, size_t size)
{
	struct jpeg_decompress_struct *source = &transcoder->source;
	struct jpeg_compress_struct *target = &transcoder->target;

	transcoder_create(transcoder);
	jpeg_input_begin(&transcoder->input, data, size);
	jpeg_read_header(source, TRUE);
	unsigned markers = count_markers(source);
	jpeg_input_check_size(&transcoder->input, source, true);
	jvirt_barray_ptr *coefficients = jpeg_read_coefficients(source);
	jpeg_input_check_whole(&transcoder->input, source);
	transcoder->writing = true;
	jpeg_copy_critical_parameters(source, target);
	/* The file's own markers are copied. */
	target->write_JFIF_header = FALSE;
	target->write_Adobe_marker = FALSE;
	target->arith_code = FALSE;
	target->optimize_coding = TRUE;
	target->restart_interval = 0;
	target->restart_in_rows = 0;
	target->scan_info = NULL;
	target->num_scans = 0;
	jpeg_write_coefficients(target, coefficients);
	write_markers(transcoder, markers);
	jpeg_finish_compress(target);
}

int packimg_transcode_jpeg(struct packimg_transcoder *transcoder, const uint8_t *data, size_t size,
			   const uint8_t **ret_data, size_t *ret_size, struct packimg_error *error)
{
	transcoder->trap.code = 0;
	transcoder->writing = false;
	/* An object that was not created may be destroyed if it is all zero. */
	memset(&transcoder->source, 0, sizeof(transcoder->source));
	memset(&transcoder->target, 0, sizeof(transcoder->target));
	if (setjmp(transcoder->trap.jump) == 0)
		transcoder_run(transcoder, data, size);
	jpeg_destroy_compress(&transcoder->target);
	jpeg_destroy_decompress(&transcoder->source);
	int r = transcoder->trap.code;
	if (r < 0) {
		/*
		 * The input is valid, but a baseline JPEG cannot represent it (too large an MCU or
		 * coefficient).
		 */
		if (transcoder->writing && r == -EBADMSG)
			r = -ENOTSUP;
		return packimg_fail(error, r, "%s", transcoder->trap.text);
	}
	*ret_data = transcoder->output.data;
	*ret_size = jpeg_output_used(&transcoder->output);
	return 0;
}
