/*
 * Input of a JPEG file for libjpeg-turbo, shared by all callers of the library: supplies the bytes,
 * limits the cost of an image, and checks that it is complete. Implements SPEC.md, "Complete
 * JPEGs", together with jpeg_trap.c, which handles warnings. Belongs to one decompressor whose
 * error manager is a jpeg_trap; functions may longjmp.
 *
 * An arithmetic-coded segment ends at its marker, and an encoder may omit trailing zeros. Hence the
 * library silently decodes zeros after a truncated segment. To detect that, the input supplies a
 * known number of zeros before the marker and checks that some of them remain unread.
 */
#pragma once

#include "format/codec/jpeg_common.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The part of the input that the library received last. The library requests more when it has
 * consumed it.
 */
enum jpeg_input_part {
	JPEG_INPUT_BYTES,
	JPEG_INPUT_SEGMENT, /* bytes up to the marker that ends an arithmetic-coded segment */
	JPEG_INPUT_ZEROS,   /* zeros after the segment, before the marker */
	JPEG_INPUT_MARKER,  /* only the marker */
};

struct jpeg_input {
	struct jpeg_source_mgr source; /* must be first: the library passes back a pointer to it */
	struct jpeg_progress_mgr progress;
	size_t size; /* size of the file */
	/*
	 * next: end of the bytes supplied so far or, if only a marker was supplied, the start of
	 * that marker. end: end of the file.
	 */
	const uint8_t *next, *end;
	/* start of the latest bytes supplied that contain a segment, which end at its marker */
	const uint8_t *segment;
	const uint8_t *marker_end;
	enum jpeg_input_part last;
	bool arithmetic;
	bool has_end; /* the file has an end marker */
	bool ended;   /* the input supplied an end marker that the file lacks */
	/*
	 * the library requested a segment's marker and has read all zeros supplied for the segment
	 */
	bool zeros_in_doubt;
	int scan; /* number of the scan whose components were recorded */
	uint32_t components_seen;
};

/* Call once per decompressor. */
void jpeg_input_attach(struct jpeg_input *input, j_decompress_ptr cinfo);
/*
 * Starts the next file. Its bytes are read several times and must not change before the image is
 * finished.
 */
void jpeg_input_begin(struct jpeg_input *input, const uint8_t *data, size_t size);
/*
 * Call after jpeg_read_header(). Raises an error if the image needs more memory than the limit
 * allows, or than its number of bytes can justify. coefficients: all coefficients will be in memory
 * at once, as for all files with several scans.
 */
void jpeg_input_check_size(const struct jpeg_input *input, j_decompress_ptr cinfo,
			   bool coefficients);
/*
 * Call after reading the last row or all coefficients. Raises -EBADMSG if data that they depend on
 * was missing.
 */
void jpeg_input_check_whole(const struct jpeg_input *input, j_decompress_ptr cinfo);
/*
 * Call after the last row of a single-scan image. Returns true if the bytes after the image must be
 * checked too: then call jpeg_finish_decompress(), which raises any error.
 */
bool jpeg_input_needs_end(const struct jpeg_input *input);
/*
 * For the trap, while it handles JWRN_EXTRANEOUS_DATA: returns true if the extraneous bytes before
 * a marker may be skipped.
 */
bool jpeg_input_passes_over(j_decompress_ptr cinfo);
