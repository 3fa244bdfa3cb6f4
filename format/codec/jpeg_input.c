#include "format/codec/jpeg_input.h"

#include "format/codec/jpeg/jpeg_frame.h"

#include <errno.h>
#include <string.h>

enum {
	/*
	 * Maximum number of scans; encoders write about ten. Each scan costs a pass over all
	 * blocks, however few bytes it has.
	 */
	SCANS_MAX = 100,
	/*
	 * Maximum number of zeros that an arithmetic-coded segment may lack. Encoders drop 1 to 4
	 * bytes, or up to 12 if the rest of the image has one colour. Decoding a photograph that is
	 * truncated anywhere consumes more than 30 zeros, and nearly always more than 64.
	 */
	ZEROS_MAX = 16,
	MARKER_TEM = 0x01,
	MARKER_SOF9 = 0xc9,
	MARKER_SOF10 = 0xca,
	MARKER_RST0 = 0xd0,
	MARKER_RST7 = 0xd7,
	MARKER_SOI = 0xd8,
	MARKER_EOI = 0xd9,
	MARKER_SOS = 0xda,
};

/* Limit in bytes for the coefficients of a multi-scan file: 170 megapixels without subsampling. */
#define COEFFICIENTS_SIZE_MAX ((uint64_t)1 << 30)

static struct jpeg_input *input_of(j_decompress_ptr cinfo)
{
	return (struct jpeg_input *)cinfo->src;
}

/* Returns the start of the next marker, including fill bytes; end if there is none. */
static const uint8_t *find_marker(const uint8_t *p, const uint8_t *end)
{
	while (p < end && (p = memchr(p, 0xff, (size_t)(end - p)))) {
		const uint8_t *code = p;

		while (code < end && *code == 0xff)
			code++;
		if (code < end && *code != 0)
			return p;
		p = code;
	}
	return end;
}

/*
 * Returns the next entropy-coded bytes, which follow a scan header or a restart marker; end if
 * there are none.
 */
static const uint8_t *find_segment(const uint8_t *p, const uint8_t *end, bool *arithmetic)
{
	while ((p = find_marker(p, end)) < end) {
		while (*p == 0xff)
			p++;
		uint8_t code = *p++;

		if (code >= MARKER_RST0 && code <= MARKER_RST7)
			return p;
		if (code == MARKER_SOI || code == MARKER_TEM)
			continue;
		if (code == MARKER_EOI || end - p < 2 || (p[0] << 8 | p[1]) > end - p)
			return end;
		*arithmetic |= code == MARKER_SOF9 || code == MARKER_SOF10;
		p += p[0] << 8 | p[1];
		if (code == MARKER_SOS)
			return p;
	}
	return end;
}

static void input_supply(struct jpeg_input *input, const uint8_t *data, size_t size)
{
	input->source.next_input_byte = data;
	input->source.bytes_in_buffer = size;
}

/*
 * Supplies the next bytes of the file, after a marker already supplied. In an arithmetic-coded
 * file, stops at the marker that ends the segment; this may supply no bytes at all.
 */
static void input_give_bytes(struct jpeg_input *input)
{
	const uint8_t *from = input->last == JPEG_INPUT_MARKER ? input->marker_end : input->next;

	input->next = find_segment(input->next, input->end, &input->arithmetic);
	input->next = input->arithmetic ? find_marker(input->next, input->end) : input->end;
	input->last = JPEG_INPUT_BYTES;
	if (input->arithmetic && input->next < input->end) {
		input->last = JPEG_INPUT_SEGMENT;
		input->segment = from;
	}
	input_supply(input, from, (size_t)(input->next - from));
}

/*
 * Supplies only the marker that ends a segment. When the library requests more, it no longer needs
 * the zeros.
 */
static void input_give_marker(struct jpeg_input *input)
{
	const uint8_t *p = input->next;

	while (*p == 0xff)
		p++;
	input->marker_end = p + 1;
	input->last = JPEG_INPUT_MARKER;
	input_supply(input, input->next, (size_t)(input->marker_end - input->next));
}

_Noreturn static void raise_early_end(j_decompress_ptr cinfo)
{
	jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG,
			"JPEG data end before the image does: the file is truncated or damaged");
}

/*
 * True if the scan refines DC coefficients: it may need only one bit per block, all of them zero.
 */
static bool refines_dc(const struct jpeg_decompress_struct *cinfo)
{
	return cinfo->progressive_mode && cinfo->Ss == 0 && cinfo->Ah > 0;
}

static void source_init(j_decompress_ptr cinfo)
{
}

static boolean source_fill(j_decompress_ptr cinfo)
{
	static const uint8_t zeros[ZEROS_MAX], end_of_image[] = {0xff, 0xd9};
	struct jpeg_input *input = input_of(cinfo);

	if (input->last == JPEG_INPUT_ZEROS) {
		input->zeros_in_doubt = !refines_dc(cinfo);
		input_give_marker(input);
		return TRUE;
	}
	if (input->last != JPEG_INPUT_SEGMENT) {
		input_give_bytes(input);
		if (input->source.bytes_in_buffer > 0)
			return TRUE;
	}
	if (input->last == JPEG_INPUT_SEGMENT) {
		if (input->zeros_in_doubt)
			raise_early_end(cinfo);
		input->last = JPEG_INPUT_ZEROS;
		input_supply(input, zeros, sizeof(zeros));
	} else {
		/* Only arithmetic-coded data can be incomplete without a warning of the library. */
		if (input->ended || input->arithmetic)
			raise_early_end(cinfo);
		input->ended = true;
		input_supply(input, end_of_image, sizeof(end_of_image));
	}
	return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long size)
{
	struct jpeg_source_mgr *source = cinfo->src;

	if (size <= 0)
		return;
	/* Header segments are supplied whole. */
	if ((size_t)size > source->bytes_in_buffer)
		raise_early_end(cinfo);
	source->next_input_byte += size;
	source->bytes_in_buffer -= (size_t)size;
}

static bool all_zero(const uint8_t *p, const uint8_t *end)
{
	while (p < end)
		if (*p++)
			return false;
	return true;
}

bool jpeg_input_passes_over(j_decompress_ptr cinfo)
{
	struct jpeg_input *input = input_of(cinfo);
	int *count = &cinfo->err->msg_parm.i[0], marker = cinfo->err->msg_parm.i[1];

	if (cinfo->src->fill_input_buffer != source_fill) /* the source manager of another caller */
		return false;
	if (input->last == JPEG_INPUT_MARKER) {
		/* The zeros come directly before the marker. */
		const uint8_t *coded_end = input->next;

		input->zeros_in_doubt = false;
		*count -= ZEROS_MAX;
		if (*count <= 0)
			return true;
		/* Other bytes would have been decoded instead of the omitted zeros. */
		if (*count > coded_end - input->segment || !all_zero(coded_end - *count, coded_end))
			return false;
	}
	/*
	 * A truncated file may have been padded. Padding also decodes to something, but hardly to
	 * as much as is missing.
	 */
	if (input->ended)
		return false;
	/* Extraneous bytes between scans mean that the previous scan was misread. */
	return cinfo->input_scan_number == 0 || marker == MARKER_EOI ||
	       (marker >= MARKER_RST0 && marker <= MARKER_RST7);
}

/* Called for every MCU row of every scan. */
static void progress_monitor(j_common_ptr common)
{
	j_decompress_ptr cinfo = (j_decompress_ptr)common;
	struct jpeg_input *input = input_of(cinfo);

	if (cinfo->input_scan_number > SCANS_MAX)
		jpeg_trap_raise(common, -EBADMSG, "JPEG has more than %d scans", SCANS_MAX);
	if (cinfo->input_scan_number == input->scan)
		return;
	input->scan = cinfo->input_scan_number;
	for (int i = 0; i < cinfo->comps_in_scan; i++) {
		uint32_t bit = 1u << cinfo->cur_comp_info[i]->component_index;

		if (!cinfo->progressive_mode && input->components_seen & bit)
			jpeg_trap_raise(common, -EBADMSG,
					"JPEG has two scans of the same component");
		input->components_seen |= bit;
	}
}

void jpeg_input_attach(struct jpeg_input *input, j_decompress_ptr cinfo)
{
	*input = (struct jpeg_input){
		.source =
			{
				.init_source = source_init,
				.fill_input_buffer = source_fill,
				.skip_input_data = source_skip,
				.resync_to_restart = jpeg_resync_to_restart,
				.term_source = source_init,
			},
		.progress.progress_monitor = progress_monitor,
	};
	cinfo->src = &input->source;
	cinfo->progress = &input->progress;
}

void jpeg_input_begin(struct jpeg_input *input, const uint8_t *data, size_t size)
{
	*input = (struct jpeg_input){
		.source = input->source,
		.progress = input->progress,
		.size = size,
		.next = data,
		.end = data + size,
		.has_end = jpeg_has_end(data, size),
	};
	input_give_bytes(input);
}

void jpeg_input_check_size(const struct jpeg_input *input, j_decompress_ptr cinfo,
			   bool coefficients)
{
	/*
	 * A Huffman code has at least one bit; with arithmetic coding a block can take a fraction
	 * of a bit.
	 */
	uint64_t blocks = 0, blocks_max = (uint64_t)input->size * (cinfo->arith_code ? 512 : 8);

	for (int i = 0; i < cinfo->num_components; i++)
		blocks += (uint64_t)cinfo->comp_info[i].width_in_blocks *
			  cinfo->comp_info[i].height_in_blocks;
	if (blocks > blocks_max)
		jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG,
				"JPEG has too few bytes for %ux%u pixels", cinfo->image_width,
				cinfo->image_height);
	if ((coefficients || jpeg_has_multiple_scans(cinfo)) &&
	    blocks * sizeof(JBLOCK) > COEFFICIENTS_SIZE_MAX)
		jpeg_trap_raise((j_common_ptr)cinfo, -ENOTSUP,
				"JPEG of several scans and %ux%u pixels is too large",
				cinfo->image_width, cinfo->image_height);
}

/* True if all bits of all coefficients of a component were received. */
static bool has_all_bits(const int bits[DCTSIZE2])
{
	for (int k = 0; k < DCTSIZE2; k++)
		if (bits[k] != 0)
			return false;
	return true;
}

void jpeg_input_check_whole(const struct jpeg_input *input, j_decompress_ptr cinfo)
{
	if (input->zeros_in_doubt)
		raise_early_end(cinfo);
	for (int i = 0; jpeg_has_multiple_scans(cinfo) && i < cinfo->num_components; i++)
		if (cinfo->progressive_mode ? !has_all_bits(cinfo->coef_bits[i])
					    : !(input->components_seen & 1u << i))
			jpeg_trap_raise((j_common_ptr)cinfo, -EBADMSG,
					"JPEG lacks scans: coefficients of component %d are "
					"missing; the file is truncated or damaged",
					i + 1);
}

/*
 * Arithmetic-coded data may continue in the bytes that follow. A file without end marker may have
 * been padded after truncation.
 */
bool jpeg_input_needs_end(const struct jpeg_input *input)
{
	return input->arithmetic || !input->has_end;
}
