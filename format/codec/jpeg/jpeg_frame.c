#include "format/codec/jpeg/jpeg_frame.h"

#include "format/base/copy_once.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

const uint8_t jpeg_zigzag_position[64] = {
	0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
	41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
	30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

enum {
	SIDE_MAX = 65500, /* pixels, the limit of libjpeg */
	/* minimum segment sizes in bytes at which libjpeg accepts a JFIF or Adobe marker */
	JFIF_SIZE_MIN = 14,
	ADOBE_SIZE_MIN = 12,
	FRAME_SIZE_MAX = 6 + 3 * JPEG_COMPONENTS_MAX,
	SCAN_SIZE_MAX = 4 + 2 * JPEG_COMPONENTS_MAX,
};

/* State collected from the markers before the scan. */
struct parser {
	struct jpeg_frame *frame;
	uint8_t ids[JPEG_COMPONENTS_MAX];
	uint8_t quant_seen; /* one bit per slot */
	uint8_t huffman_seen[2];
	bool have_frame, jfif, adobe;
	uint8_t adobe_transform;
};

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Copies the next `size` bytes of a segment; false if fewer are left. */
static bool frame_take(const uint8_t **p, size_t *left, void *to, size_t size)
{
	if (*left < size)
		return false;
	copy_once(to, *p, size);
	*p += size;
	*left -= size;
	return true;
}

static int parse_quant(struct parser *parser, const uint8_t *p, size_t size)
{
	uint8_t head, values[128];

	while (frame_take(&p, &size, &head, 1)) {
		unsigned wide = head >> 4, slot = head & 15;

		if (wide > 1 || slot > 3 || !frame_take(&p, &size, values, wide ? 128 : 64))
			return -ENOTSUP;
		for (unsigned k = 0; k < 64; k++)
			parser->frame->quant[slot][jpeg_zigzag_position[k]] =
				(int16_t)(wide ? get16(values + 2 * k) : values[k]);
		parser->quant_seen |= 1u << slot;
	}
	return 0;
}

static int parse_huffman(struct parser *parser, const uint8_t *p, size_t size)
{
	uint8_t head;

	while (frame_take(&p, &size, &head, 1)) {
		unsigned class = head >> 4, slot = head & 15, count = 0;

		if (class > 1 || slot > 3)
			return -ENOTSUP;
		uint8_t *table = parser->frame->huffman[class][slot];
		if (!frame_take(&p, &size, table, 16))
			return -ENOTSUP;
		for (unsigned i = 0; i < 16; i++)
			count += table[i];
		if (count > 256 || !frame_take(&p, &size, table + 16, count))
			return -ENOTSUP;
		parser->huffman_seen[class] |= 1u << slot;
	}
	return 0;
}

/* True if luma is 1, 2 or 4 times as wide as chroma and once or twice as high. */
static bool sampling_fits(uint32_t component, uint32_t h, uint32_t v)
{
	if (component > 0)
		return h == 1 && v == 1;
	return (h == 1 || h == 2 || h == 4) && (v == 1 || v == 2);
}

static int parse_frame(struct parser *parser, const uint8_t *segment, size_t size)
{
	struct jpeg_frame *frame = parser->frame;
	uint8_t p[FRAME_SIZE_MAX];

	if (parser->have_frame || size < 6 || size > sizeof(p))
		return -ENOTSUP;
	copy_once(p, segment, size);
	if (p[0] != 8 || (p[5] != 1 && p[5] != 3) || size != 6 + 3 * (size_t)p[5])
		return -ENOTSUP;
	frame->height = get16(p + 1);
	frame->width = get16(p + 3);
	frame->component_count = p[5];
	if (!frame->width || frame->width > SIDE_MAX || !frame->height || frame->height > SIDE_MAX)
		return -ENOTSUP;
	for (uint32_t i = 0; i < frame->component_count; i++) {
		struct jpeg_component *component = &frame->components[i];

		parser->ids[i] = p[6 + 3 * i];
		component->h = p[7 + 3 * i] >> 4;
		component->v = p[7 + 3 * i] & 15;
		component->quant_slot = p[8 + 3 * i];
		if (component->quant_slot > 3 || !sampling_fits(i, component->h, component->v))
			return -ENOTSUP;
	}
	parser->have_frame = true;
	return 0;
}

/*
 * True if three components are YCbCr rather than RGB, by libjpeg's rules. RGB is left to
 * libjpeg-turbo.
 */
static bool is_ycbcr(const struct parser *parser)
{
	if (parser->jfif)
		return true;
	if (parser->adobe)
		return parser->adobe_transform != 0;
	return !(parser->ids[0] == 'R' && parser->ids[1] == 'G' && parser->ids[2] == 'B');
}

static int parse_scan(struct parser *parser, const uint8_t *segment, size_t size)
{
	struct jpeg_frame *frame = parser->frame;
	uint32_t count = frame->component_count;
	uint8_t bytes[SCAN_SIZE_MAX], *p = bytes;

	if (!parser->have_frame || size != 4 + 2 * (size_t)count)
		return -ENOTSUP;
	copy_once(bytes, segment, size);
	if (p[0] != count)
		return -ENOTSUP;
	if (count == 3 && !is_ycbcr(parser))
		return -ENOTSUP;
	for (uint32_t i = 0; i < count; i++) {
		struct jpeg_component *component = &frame->components[i];
		unsigned dc = p[2 + 2 * i] >> 4, ac = p[2 + 2 * i] & 15;

		if (p[1 + 2 * i] != parser->ids[i] || dc > 3 || ac > 3)
			return -ENOTSUP;
		component->dc_slot = (uint8_t)dc;
		component->ac_slot = (uint8_t)ac;
		if (!(parser->huffman_seen[0] & 1u << dc) ||
		    !(parser->huffman_seen[1] & 1u << ac) ||
		    !(parser->quant_seen & 1u << component->quant_slot))
			return -ENOTSUP;
	}
	/*
	 * Ignore Ss, Se, Ah and Al. Only progressive scans need them, and some encoders write
	 * zeros.
	 */
	return 0;
}

static void frame_measure(struct jpeg_frame *frame)
{
	if (frame->component_count == 1) /* one component is never interleaved: T.81 A.2.2 */
		frame->components[0].h = frame->components[0].v = 1;
	uint32_t h_max = frame->components[0].h, v_max = frame->components[0].v;
	frame->mcu_height = 8 * v_max;
	frame->mcu_blocks = 0;
	frame->mcus_wide = (frame->width + 8 * h_max - 1) / (8 * h_max);
	frame->mcus_high = (frame->height + frame->mcu_height - 1) / frame->mcu_height;
	for (uint32_t i = 0; i < frame->component_count; i++) {
		struct jpeg_component *component = &frame->components[i];

		component->width = (frame->width * component->h + h_max - 1) / h_max;
		component->height = (frame->height * component->v + v_max - 1) / v_max;
		frame->mcu_blocks += component->h * component->v;
	}
}

static int parse_segment(struct parser *parser, unsigned marker, const uint8_t *p, size_t size)
{
	uint8_t head[ADOBE_SIZE_MIN];

	switch (marker) {
	case 0xc0:
	case 0xc1:
		return parse_frame(parser, p, size);
	case 0xc4:
		return parse_huffman(parser, p, size);
	case 0xdb:
		return parse_quant(parser, p, size);
	case 0xdd:
		if (size != 2)
			return -ENOTSUP;
		copy_once(head, p, 2);
		parser->frame->restart_interval = get16(head);
		return 0;
	case 0xda:
		return parse_scan(parser, p, size);
	case 0xe0:
		if (size >= JFIF_SIZE_MIN && memcmp(p, "JFIF", 5) == 0)
			parser->jfif = true;
		return 0;
	case 0xee:
		if (size < ADOBE_SIZE_MIN)
			return 0;
		copy_once(head, p, sizeof(head));
		if (memcmp(head, "Adobe", 5) == 0) {
			parser->adobe = true;
			parser->adobe_transform = head[11];
		}
		return 0;
	case 0xfe:
		return 0;
	default:
		return marker > 0xe0 && marker <= 0xef ? 0 : -ENOTSUP;
	}
}

int jpeg_frame_parse(const uint8_t *data, size_t size, struct jpeg_frame *ret_frame)
{
	struct parser parser = {.frame = ret_frame};
	uint8_t head[4];
	size_t at = 2;

	if (size < 4 || data[0] != 0xff || data[1] != 0xd8)
		return -ENOTSUP;
	ret_frame->component_count = 0;
	ret_frame->restart_interval = 0;
	while (at + sizeof(head) <= size) {
		copy_once(head, data + at, sizeof(head));
		unsigned marker = head[1];
		size_t length = get16(head + 2);

		/* skip fill bytes and stray bytes */
		if (head[0] != 0xff || marker == 0 || marker == 0xff) {
			at++;
			continue;
		}
		if (length < 2 || length > size - at - 2)
			return -ENOTSUP;
		int r = parse_segment(&parser, marker, data + at + 4, length - 2);
		if (r < 0)
			return r;
		at += 2 + length;
		if (marker == 0xda) {
			frame_measure(ret_frame);
			ret_frame->scan = data + at;
			ret_frame->scan_size = size - at;
			return 0;
		}
	}
	return -ENOTSUP;
}

bool jpeg_has_end(const uint8_t *data, size_t size)
{
	const uint8_t *p = data + size;

	while (p > data && (p = memrchr(data, 0xd9, (size_t)(p - data))))
		if (p > data && p[-1] == 0xff)
			return true;
	return false;
}
