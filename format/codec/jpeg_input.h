/*
 * A JPEG file as libjpeg-turbo gets to read it, whoever calls the library: the bytes, what an image
 * may cost, and whether all of it is there. SPEC.md, "Complete JPEGs", is what is decided here and,
 * for warnings, in jpeg_trap.c. It belongs to one decompressor whose error manager is a jpeg_trap;
 * its functions jump.
 *
 * An arithmetic-coded segment ends where its marker stands, and zeros that an encoder would have
 * ended it with may be left out. So the library decodes on from zeros without a word when a segment
 * was cut off. It is given that many zeros before the marker, and has to leave some of them.
 */
#pragma once

#include "format/codec/jpeg_common.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the library was given last; it asks for more when it has read that. */
enum jpeg_input_part {
	JPEG_INPUT_BYTES,
	JPEG_INPUT_SEGMENT, /* bytes up to the marker that ends an arithmetic-coded segment */
	JPEG_INPUT_ZEROS,   /* behind that, before the marker */
	JPEG_INPUT_MARKER,  /* the marker alone */
};

struct jpeg_input {
	struct jpeg_source_mgr source; /* first: the library hands back a pointer to it */
	struct jpeg_progress_mgr progress;
	size_t size; /* of the file */
	/* behind the bytes that were given; a marker alone is still to come with what follows it */
	const uint8_t *next, *end;
	/* where the latest bytes with a segment begin; they end at its marker */
	const uint8_t *segment;
	const uint8_t *marker_end;
	enum jpeg_input_part last;
	bool arithmetic;
	bool has_end; /* there is an end marker */
	bool ended;   /* one was given that the file lacks */
	/* a segment's marker was asked for, and none of the zeros was left over so far */
	bool zeros_in_doubt;
	int scan; /* whose components were taken down */
	uint32_t components_seen;
};

/* Once for a decompressor. */
void jpeg_input_attach(struct jpeg_input *input, j_decompress_ptr cinfo);
/*
 * The next file. Its bytes are read again and again: nobody may change them before the image is
 * finished.
 */
void jpeg_input_begin(struct jpeg_input *input, const uint8_t *data, size_t size);
/*
 * After jpeg_read_header(): raises where the image would need more memory than its bytes and the
 * limit justify. coefficients: all will be in memory at once, which is so in any case when there
 * are several scans.
 */
void jpeg_input_check_size(const struct jpeg_input *input, j_decompress_ptr cinfo,
			   bool coefficients);
/*
 * After the last row, or all coefficients, were read: raises -EBADMSG unless everything was there
 * that they were made of.
 */
void jpeg_input_check_whole(const struct jpeg_input *input, j_decompress_ptr cinfo);
/*
 * After the last row of an image of a single scan: must what follows it be looked at, too, by
 * jpeg_finish_decompress(), which raises what it finds?
 */
bool jpeg_input_needs_end(const struct jpeg_input *input);
/*
 * For the trap: may the bytes before a marker that belong to nothing be passed over? Of a
 * JWRN_EXTRANEOUS_DATA that is being raised.
 */
bool jpeg_input_passes_over(j_decompress_ptr cinfo);
