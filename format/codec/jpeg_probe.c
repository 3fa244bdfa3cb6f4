/*
 * Reads the marker segments of a JPEG up to its first scan: size, coding and orientation. The input
 * is untrusted, and may be a file that is changing: each value that bounds an access is copied
 * once.
 */
#include "format/base/copy_once.h"
#include "format/base/exif.h"
#include "format/error.h"
#include "format/packimg.h"

#include <errno.h>
#include <string.h>

enum {
	MARKER_SOF0 = 0xc0,
	MARKER_SOF2 = 0xc2,
	MARKER_DHT = 0xc4,
	MARKER_JPG = 0xc8,
	MARKER_SOF9 = 0xc9,
	MARKER_SOF10 = 0xca,
	MARKER_DAC = 0xcc,
	MARKER_SOF15 = 0xcf,
	MARKER_RST0 = 0xd0,
	MARKER_SOI = 0xd8,
	MARKER_EOI = 0xd9,
	MARKER_SOS = 0xda,
	MARKER_DRI = 0xdd,
	MARKER_APP1 = 0xe1,
	MARKER_SOF55 = 0xf7, /* marker of JPEG-LS, T.87 */
	MARKER_TEM = 0x01,
	COMPONENTS_MAX = 255,
};

static uint32_t get16(const uint8_t *from)
{
	uint8_t bytes[2];

	copy_once(bytes, from, sizeof(bytes));
	return (uint32_t)bytes[0] << 8 | bytes[1];
}

/* Orientation from APP1 segments. The first EXIF and the first XMP segment count. */
struct app1 {
	bool has_exif, has_xmp;
	uint8_t exif, xmp;
};

static void parse_app1(const uint8_t *segment, size_t size, struct app1 *app1)
{
	static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; /* with its NUL */

	if (!app1->has_exif && size >= 6 && memcmp(segment, "Exif\0", 5) == 0) {
		app1->has_exif = true;
		app1->exif = exif_orientation(segment, size);
	} else if (!app1->has_xmp && size >= sizeof(xmp) &&
		   memcmp(segment, xmp, sizeof(xmp)) == 0) {
		app1->has_xmp = true;
		app1->xmp = xmp_orientation(segment + sizeof(xmp), size - sizeof(xmp));
	}
}

/* Returns the number of MCUs in a row. With a single component, each MCU is a block (T.81, A.2). */
static uint32_t count_mcus_wide(const uint8_t *components, const struct packimg_jpeg_info *info)
{
	uint32_t factor = 1;

	for (uint32_t i = 0; i < info->components && info->components > 1; i++)
		if (components[3 * i + 1] >> 4 > (int)factor)
			factor = components[3 * i + 1] >> 4;
	return (info->width + 8 * factor - 1) / (8 * factor);
}

static int not_supported(uint8_t frame, struct packimg_error *error)
{
	return packimg_fail(error, -ENOTSUP,
			    "JPEG coding SOF%d (lossless or hierarchical) is not supported; make a "
			    "baseline JPEG of it",
			    frame - MARKER_SOF0);
}

static int parse_frame(uint8_t marker, const uint8_t *segment, size_t size,
		       struct packimg_jpeg_info *info, uint32_t *ret_mcus_wide,
		       struct packimg_error *error)
{
	uint8_t head[6], components[3 * COMPONENTS_MAX];

	if (marker > MARKER_SOF2 && marker != MARKER_SOF9 && marker != MARKER_SOF10)
		return not_supported(marker, error);
	if (info->width != 0)
		return packimg_damaged(error, "JPEG has two frame headers");
	if (size < sizeof(head))
		return packimg_damaged(error, "JPEG frame header is too short");
	copy_once(head, segment, sizeof(head));
	if (size - sizeof(head) < (size_t)head[5] * 3)
		return packimg_damaged(error, "JPEG frame header is too short");
	copy_once(components, segment + sizeof(head), (size_t)head[5] * 3);
	info->precision = head[0];
	info->height = get16(head + 1);
	info->width = get16(head + 3);
	info->components = head[5];
	info->progressive = marker == MARKER_SOF2 || marker == MARKER_SOF10;
	info->arithmetic = marker >= MARKER_SOF9;
	if (info->height == 0 && info->width != 0)
		return packimg_fail(error, -ENOTSUP,
				    "JPEG gives its height after the scan (DNL), which is not "
				    "supported; save it "
				    "anew");
	if (info->width == 0 || info->components == 0)
		return packimg_damaged(error, "JPEG is %ux%u with %u components", info->width,
				       info->height, info->components);
	*ret_mcus_wide = count_mcus_wide(components, info);
	return 0;
}

static bool is_frame(uint8_t marker)
{
	return marker >= MARKER_SOF0 && marker <= MARKER_SOF15 && marker != MARKER_DHT &&
	       marker != MARKER_JPG && marker != MARKER_DAC;
}

/* Finds the next marker, skipping stray bytes; -EBADMSG at the end of data. */
static int next_marker(const uint8_t *data, size_t size, size_t *position, uint8_t *ret_marker)
{
	uint8_t previous = 0, byte;

	for (size_t i = *position; i < size; i++) {
		copy_once(&byte, data + i, 1);
		if (previous == 0xff && byte != 0xff && byte != 0) {
			*ret_marker = byte;
			*position = i + 1;
			return 0;
		}
		previous = byte;
	}
	return -EBADMSG;
}

/*
 * True if the header of the first scan, as far as present, lists fewer components than the frame.
 */
static bool has_several_scans(const uint8_t *data, size_t size, size_t position,
			      uint32_t components)
{
	return size - position >= 3 && data[position + 2] < components;
}

int packimg_jpeg_probe(const uint8_t *data, size_t size, struct packimg_jpeg_info *ret_info,
		       struct packimg_error *error)
{
	struct packimg_jpeg_info info = {0};
	struct app1 app1 = {0};
	uint32_t mcus_wide = 1;
	size_t position = 2;
	bool jpeg_ls = false;
	uint8_t marker;

	if (size < 4 || data[0] != 0xff || data[1] != MARKER_SOI)
		return packimg_damaged(error, "not a JPEG file");
	for (;;) {
		if (next_marker(data, size, &position, &marker) < 0)
			return packimg_damaged(error,
					       "JPEG header ends early or is damaged at byte %zu",
					       position);
		if (marker == MARKER_SOS)
			break;
		if (marker == MARKER_EOI || marker == MARKER_SOI)
			return packimg_damaged(error, "JPEG has no image before byte %zu",
					       position);
		if (marker == MARKER_TEM || (marker >= MARKER_RST0 && marker < MARKER_SOI))
			continue;
		size_t length = size - position < 2 ? 0 : get16(data + position);
		if (length < 2 || length > size - position)
			return packimg_damaged(error, "JPEG segment at byte %zu is cut short",
					       position);
		const uint8_t *segment = data + position + 2;
		size_t segment_size = length - 2;
		if (is_frame(marker)) {
			int r = parse_frame(marker, segment, segment_size, &info, &mcus_wide,
					    error);
			if (r < 0)
				return r;
		} else if (marker == MARKER_APP1) {
			parse_app1(segment, segment_size, &app1);
		} else if (marker == MARKER_DRI && segment_size >= 2) {
			info.restart_interval = get16(segment);
		} else if (marker == MARKER_SOF55) {
			jpeg_ls = true;
		}
		position += 2 + segment_size;
	}
	if (info.width == 0 && jpeg_ls)
		return not_supported(MARKER_SOF55, error);
	if (info.width == 0)
		return packimg_damaged(error, "JPEG has a scan but no frame header");
	info.restart_within_rows = info.restart_interval % mcus_wide != 0;
	info.several_scans = has_several_scans(data, size, position, info.components);
	info.orientation = orientation_of(app1.exif, app1.xmp);
	*ret_info = info;
	return 0;
}
