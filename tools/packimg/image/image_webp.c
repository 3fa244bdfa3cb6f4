/* WebP, with libwebp: a still image, or the first frame of an animation on its canvas. */
#include "format/base/exif.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static WebPDemuxer *webp_open(const uint8_t *data, size_t size)
{
	const WebPData file = {data, size};

	return WebPDemux(&file);
}

static uint8_t webp_orientation(WebPDemuxer *demuxer)
{
	WebPChunkIterator chunk;
	uint8_t exif = 0, xmp = 0;

	if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk))
		exif = exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
	WebPDemuxReleaseChunkIterator(&chunk);
	if (WebPDemuxGetChunk(demuxer, "XMP ", 1, &chunk))
		xmp = xmp_orientation(chunk.chunk.bytes, chunk.chunk.size);
	WebPDemuxReleaseChunkIterator(&chunk);
	return orientation_of(exif, xmp);
}

/*
 * Reports a file without readable chunks. If its first chunk has another name, the file is a newer
 * kind of WebP.
 */
static int webp_fail(const uint8_t *data, size_t size, struct packimg_error *error)
{
	enum { NAME = 12, NAME_SIZE = 4 };

	if (size >= NAME + NAME_SIZE && memcmp(data + NAME, "VP8", 3) != 0)
		return image_not_supported(error, "WebP that is not coded by VP8");
	return packimg_fail(error, -EBADMSG, "damaged WebP: its chunks are incomplete");
}

static int webp_probe(const uint8_t *data, size_t size, struct image_info *info,
		      struct packimg_error *error)
{
	WebPDemuxer *demuxer = webp_open(data, size);

	if (!demuxer)
		return webp_fail(data, size, error);
	info->width = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
	info->height = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT);
	info->orientation = webp_orientation(demuxer);
	WebPDemuxDelete(demuxer);
	return 0;
}

/*
 * The canvas around a frame is black, as in Pillow, where it consists of transparent pixels with
 * zero colours.
 */
static bool read_frame(const WebPIterator *frame, const struct image_info *info, uint8_t *rgb)
{
	size_t stride = 3 * (size_t)info->width;
	size_t offset = (size_t)frame->y_offset * stride + 3 * (size_t)frame->x_offset;

	if (frame->x_offset < 0 || frame->y_offset < 0 ||
	    (uint32_t)(frame->x_offset + frame->width) > info->width ||
	    (uint32_t)(frame->y_offset + frame->height) > info->height)
		return false;
	if ((uint32_t)frame->width < info->width || (uint32_t)frame->height < info->height)
		memset(rgb, 0, stride * info->height);
	return WebPDecodeRGBInto(frame->fragment.bytes, frame->fragment.size, rgb + offset,
				 stride * info->height - offset, (int)stride);
}

static int webp_read(const uint8_t *data, size_t size, const struct image_info *info,
		     uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	WebPDemuxer *demuxer = webp_open(data, size);
	WebPIterator frame;

	if (!demuxer)
		return webp_fail(data, size, error);
	bool whole = WebPDemuxGetFrame(demuxer, 1, &frame) && read_frame(&frame, info, rgb);
	WebPDemuxReleaseIterator(&frame);
	WebPDemuxDelete(demuxer);
	return whole ? 0 : packimg_fail(error, -EBADMSG, "damaged WebP: its pixels are incomplete");
}

/* Lossless images are decoded to four bytes per pixel. */
const struct image_reading webp_reading = {
	.probe = webp_probe, .read = webp_read, .pixel_memory = 4};
