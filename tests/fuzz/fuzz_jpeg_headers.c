/*
 * JPEG headers: whatever our parser accepts, libjpeg-turbo must accept without a relevant warning,
 * and both must read the same size, components, sampling, tables, restart interval and start of the
 * scan. The input is a JPEG file or, if its first byte is not FF, a description of changes to valid
 * headers.
 */
#include "format/codec/jpeg/jpeg_frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_reference.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 14 };

static uint8_t buffer[FILE_MAX];

static void check(bool right, const char *what, unsigned component)
{
	if (right)
		return;
	fprintf(stderr, "differs, component %u: %s\n", component, what);
	abort();
}

static void check_tables(const struct jpeg_frame *frame, const struct jpeg_decompress_struct *d,
			 unsigned i)
{
	const struct jpeg_component *ours = &frame->components[i];
	const jpeg_component_info *theirs = d->cur_comp_info[i];
	const uint8_t *specs[2] = {frame->huffman[0][ours->dc_slot],
				   frame->huffman[1][ours->ac_slot]};

	for (int is_ac = 0; is_ac < 2; is_ac++) {
		const JHUFF_TBL *table = is_ac ? d->ac_huff_tbl_ptrs[theirs->ac_tbl_no]
					       : d->dc_huff_tbl_ptrs[theirs->dc_tbl_no];
		unsigned count = 0;

		check(table, "presence of a code", i);
		for (unsigned k = 0; k < 16; k++)
			count += specs[is_ac][k];
		check(memcmp(table->bits + 1, specs[is_ac], 16) == 0, "lengths of a code", i);
		check(memcmp(table->huffval, specs[is_ac] + 16, count) == 0, "symbols of a code",
		      i);
	}
}

static void compare(const struct jpeg_frame *frame, const struct jpeg_decompress_struct *d)
{
	check(d->image_width == frame->width && d->image_height == frame->height, "size", 0);
	check((uint32_t)d->num_components == frame->component_count, "number of components", 0);
	check((uint32_t)d->comps_in_scan == frame->component_count, "components in the scan", 0);
	check(d->data_precision == 8 && !d->progressive_mode && !d->arith_code, "coding", 0);
	check(d->jpeg_color_space == (frame->component_count == 1 ? JCS_GRAYSCALE : JCS_YCbCr),
	      "colour space", 0);
	check(d->restart_interval == frame->restart_interval, "restart interval", 0);
	check(d->src->next_input_byte == frame->scan, "beginning of the scan", 0);
	check(d->src->bytes_in_buffer == frame->scan_size, "size of the scan", 0);
	for (unsigned i = 0; i < frame->component_count; i++) {
		const struct jpeg_component *ours = &frame->components[i];
		const jpeg_component_info *theirs = &d->comp_info[i];
		const JQUANT_TBL *quant = d->quant_tbl_ptrs[theirs->quant_tbl_no];

		check(d->cur_comp_info[i] == theirs, "order in the scan", i);
		if (frame->component_count >
		    1) /* sampling factors of a single component have no meaning */
			check((uint32_t)theirs->h_samp_factor == ours->h &&
				      (uint32_t)theirs->v_samp_factor == ours->v,
			      "sampling", i);
		check(theirs->downsampled_width == ours->width &&
			      theirs->downsampled_height == ours->height,
		      "size of a component", i);
		check(quant, "presence of a quantisation table", i);
		for (unsigned k = 0; k < 64; k++)
			check(quant->quantval[k] == (uint16_t)frame->quant[ours->quant_slot][k],
			      "quantisation", i);
		check_tables(frame, d, i);
	}
}

/*
 * ---- builds a file from segments: `kind` selects the segment and a length error, `detail` the
 * contents ----
 */

struct input {
	const uint8_t *next, *end;
};

static uint32_t take(struct input *input)
{
	return input->next < input->end ? *input->next++ : 0;
}

static uint8_t *fill(uint8_t *out, uint32_t size, struct input *input)
{
	while (size-- > 0)
		*out++ = (uint8_t)take(input);
	return out;
}

static uint8_t *put_frame(uint8_t *out, uint32_t detail, struct input *input)
{
	static const uint8_t luma[] = {0x11, 0x21, 0x12, 0x22, 0x41, 0x42, 0x14, 0x31};
	uint32_t count = detail % 8 == 7 ? take(input) % 5 : detail & 1 ? 3 : 1;

	*out++ = detail % 8 == 6 ? (uint8_t)take(input) : 8;
	out = fill(out, 4, input);
	out[-1] |= detail & 64 ? 0 : 1; /* at least one code */
	out[-3] |= detail & 64 ? 0 : 1;
	*out++ = (uint8_t)count;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t byte = take(input);

		*out++ = (uint8_t)(detail & 8 ? take(input) : i + 1);
		*out++ = (uint8_t)(detail & 16 ? byte : i ? 0x11 : luma[byte & 7]);
		*out++ = (uint8_t)(detail & 32 ? take(input) : byte >> 3 & 3);
	}
	return out;
}

static uint8_t *put_quant(uint8_t *out, uint32_t detail, struct input *input)
{
	uint32_t wide = detail & 1;

	*out++ = detail & 8 ? (uint8_t)take(input) : (uint8_t)(wide << 4 | (detail >> 1 & 3));
	return fill(out, wide ? 128 : 64, input);
}

static uint8_t *put_code(uint8_t *out, uint32_t detail, struct input *input)
{
	uint8_t *counts = out + 1;
	uint32_t count = 0;

	*out = detail & 8 ? (uint8_t)take(input) : (uint8_t)((detail & 1) << 4 | (detail >> 1 & 3));
	for (unsigned i = 0; i < 16; i++) {
		counts[i] = (uint8_t)(take(input) % (detail & 16 ? 256 : 8));
		count += counts[i];
	}
	return fill(out + 17, count < 300 ? count : 300, input);
}

static uint8_t *put_scan(uint8_t *out, uint32_t detail, struct input *input)
{
	uint32_t count = detail % 8 == 7 ? take(input) % 5 : detail & 1 ? 3 : 1;

	*out++ = (uint8_t)count;
	for (uint32_t i = 0; i < count; i++) {
		*out++ = (uint8_t)(detail & 8 ? take(input) : i + 1);
		*out++ = (uint8_t)(detail & 16 ? take(input) : take(input) & 0x33);
	}
	*out++ = 0;
	*out++ = detail & 32 ? (uint8_t)take(input) : 63;
	*out++ = 0;
	return out;
}

static uint8_t *put_application(uint8_t *out, uint32_t detail, struct input *input)
{
	const char *name = detail & 1 ? "JFIF" : detail & 2 ? "Adobe" : "Other";

	memcpy(out, name, 5);
	return fill(out + 5, detail >> 3 & 15, input);
}

enum kind { FRAME, QUANT, CODE, SCAN, RESTART, JFIF, ADOBE, OTHER };

static uint8_t *put_content(uint8_t *out, enum kind kind, uint32_t detail, struct input *input)
{
	switch (kind) {
	case FRAME:
		return put_frame(out, detail, input);
	case QUANT:
		return put_quant(out, detail, input);
	case CODE:
		return put_code(out, detail, input);
	case SCAN:
		return put_scan(out, detail, input);
	case RESTART:
		return fill(out, 2, input);
	case JFIF:
	case ADOBE:
		return put_application(out, detail, input);
	default:
		return fill(out, take(input) % 32, input);
	}
}

static uint8_t *put_segment(uint8_t *out, uint32_t kind, uint32_t detail, struct input *input)
{
	static const uint8_t markers[] = {0xc0, 0xdb, 0xc4, 0xda, 0xdd, 0xe0, 0xee, 0};
	uint32_t marker = markers[kind % 8], size;
	uint8_t *begin = out;

	if (kind % 8 == FRAME)
		marker += detail >> 6 & 1;
	else if (kind % 8 == OTHER)
		marker = detail;
	out = put_content(out + 4, kind % 8, detail, input);
	size = (uint32_t)(out - begin) - 2 + (kind >> 4 == 15 ? take(input) - 128 : 0);
	begin[0] = 0xff;
	begin[1] = (uint8_t)marker;
	begin[2] = (uint8_t)(size >> 8);
	begin[3] = (uint8_t)size;
	if (kind >> 4 == 14) { /* a fill byte */
		memmove(begin + 1, begin, (size_t)(out - begin));
		out++;
	}
	return out;
}

/*
 * Makes valid headers, but may leave out segments or insert others before them. The largest segment
 * is a Huffman table of 321 bytes.
 */
static size_t make_file(const uint8_t *data, size_t size)
{
	struct input input = {data, data + size};
	uint32_t first = take(&input), color = first & 1;
	const uint8_t segments[][2] = {
		{first & 2   ? JFIF
		 : first & 4 ? ADOBE
			     : OTHER,
		 first & 2   ? 1 + 8 * 9
		 : first & 4 ? 2 + 8 * 7
			     : 0xe5},
		{QUANT, (uint8_t)(first >> 3 & 1)},
		{QUANT, 2},
		{CODE, 0},
		{CODE, 1},
		{CODE, 2},
		{CODE, 3},
		{FRAME, (uint8_t)color},
		{first & 16 ? RESTART : OTHER, 0xfe},
		{SCAN, (uint8_t)color},
	};
	uint8_t *out = buffer;

	*out++ = 0xff;
	*out++ = 0xd8;
	for (unsigned i = 0; i < sizeof(segments) / sizeof(*segments); i++) {
		uint32_t change = take(&input);

		for (; change >= 240 && change < 252 && out < buffer + sizeof(buffer) - 8192;
		     change = take(&input)) {
			uint32_t kind = take(&input);

			out = put_segment(out, kind, take(&input), &input);
		}
		if (change < 240)
			out = put_segment(out, segments[i][0], segments[i][1], &input);
	}
	return (size_t)(out - buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct jpeg_decompress_struct *d;
	struct jpeg_frame frame;

	if (size > 0 && data[0] != 0xff) {
		size = make_file(data, size);
		/* input at the end of the buffer, so that the sanitizer detects overreads */
		data = memmove(buffer + sizeof(buffer) - size, buffer, size);
	}
	if (jpeg_frame_parse(data, size, &frame) < 0)
		return 0;
	d = jpeg_reference_headers(data, size);
	check(d, jpeg_reference_complaint(), 0);
	compare(&frame, d);
	return 0;
}
