#include "tools/packimg/image/image_format.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool begins(const uint8_t *data, size_t size, size_t offset, const char *bytes, size_t count)
{
	return size >= offset + count && memcmp(data + offset, bytes, count) == 0;
}

#define BEGINS(offset, bytes) begins(data, size, offset, bytes, sizeof(bytes) - 1)

static bool is_jpeg(const uint8_t *data, size_t size)
{
	return BEGINS(0, "\xff\xd8\xff");
}

static bool is_png(const uint8_t *data, size_t size)
{
	return BEGINS(0, "\x89PNG\r\n\x1a\n");
}

static bool is_webp(const uint8_t *data, size_t size)
{
	return BEGINS(0, "RIFF") && BEGINS(8, "WEBP");
}

static bool is_gif(const uint8_t *data, size_t size)
{
	return BEGINS(0, "GIF87a") || BEGINS(0, "GIF89a");
}

static bool is_tiff(const uint8_t *data, size_t size)
{
	return BEGINS(0, "II*\0") || BEGINS(0, "MM\0*") || BEGINS(0, "II+\0") || BEGINS(0, "MM\0+");
}

/*
 * Returns true for a bitmap header without a file header, as in the Windows clipboard: checks its
 * size and that there is one plane.
 */
static bool is_bitmap(const uint8_t *data, size_t size)
{
	static const uint8_t sizes[] = {40, 52, 56, 64, 108, 124};
	enum { BITS = 14, BITS_MAX = 32 };

	return size > BITS + 1 && memchr(sizes, data[0], sizeof(sizes)) && BEGINS(1, "\0\0\0") &&
	       BEGINS(12, "\1\0") && data[BITS] <= BITS_MAX && data[BITS + 1] == 0;
}

/* A bitmap array (OS/2) has its own header before the header of the first bitmap. */
static bool is_bmp(const uint8_t *data, size_t size)
{
	return BEGINS(0, "BM") || (BEGINS(0, "BA") && BEGINS(14, "BM")) || is_bitmap(data, size);
}

static bool is_pnm(const uint8_t *data, size_t size)
{
	return size > 2 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6' &&
	       (data[2] == ' ' || data[2] == '#' || (data[2] >= '\t' && data[2] <= '\r'));
}

/*
 * Searches the brands of an ISO base media file (ISO/IEC 14496-12, 4.3): major brand, version,
 * compatible brands.
 */
static bool has_brand(const uint8_t *data, size_t size, const char *brand, size_t count)
{
	if (!BEGINS(4, "ftyp"))
		return false;
	size_t end = (size_t)data[0] << 24 | (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
	for (size_t at = 8; at + 4 <= end && at + 4 <= size; at += 4)
		if (at != 12 && memcmp(data + at, brand, count) == 0)
			return true;
	return false;
}

static bool is_avif(const uint8_t *data, size_t size)
{
	return has_brand(data, size, "avif", 4) || has_brand(data, size, "avis", 4);
}

static bool is_heif(const uint8_t *data, size_t size)
{
	return has_brand(data, size, "hei", 3) || has_brand(data, size, "hev", 3) ||
	       has_brand(data, size, "mif1", 4);
}

static bool is_jpeg_xl(const uint8_t *data, size_t size)
{
	return BEGINS(0, "\xff\x0a") || BEGINS(0, "\0\0\0\x0cJXL ");
}

static bool is_jpeg_2000(const uint8_t *data, size_t size)
{
	return BEGINS(0, "\0\0\0\x0cjP  ") || BEGINS(0, "\xff\x4f\xff\x51");
}

static bool is_pam(const uint8_t *data, size_t size)
{
	return BEGINS(0, "P7\n");
}

static bool is_pfm(const uint8_t *data, size_t size)
{
	return BEGINS(0, "PF\n") || BEGINS(0, "Pf\n");
}

const struct image_format image_formats[IMAGE_KINDS] = {
#define FORMAT(kind, small, name, library, reading, ...)                                           \
	[IMAGE_##kind] = {name, is_##small, {__VA_ARGS__}, library, reading},
	IMAGE_ROWS(FORMAT)
#undef FORMAT
};

enum image_kind image_kind_of(const uint8_t *data, size_t size)
{
	enum image_kind kind = 0;

	while (kind < IMAGE_KINDS && !image_formats[kind].is(data, size))
		kind++;
	return kind;
}

enum image_kind image_kind_of_name(const char *name)
{
	size_t size = strlen(name);

	for (enum image_kind kind = 0; kind < IMAGE_KINDS; kind++)
		for (const char *const *ending = image_formats[kind].endings; *ending; ending++) {
			size_t count = strlen(*ending);

			if (size > count && strcasecmp(name + size - count, *ending) == 0)
				return kind;
		}
	return IMAGE_KINDS;
}

static void list_add(char *list, const char *comma, const char *word)
{
	size_t used = strlen(list);

	snprintf(list + used, IMAGE_LIST_SIZE - used, "%s%s", used ? comma : "", word);
}

const char *image_list_names(char list[static IMAGE_LIST_SIZE])
{
	const char *last = NULL;

	*list = 0;
	for (enum image_kind kind = 0; kind < IMAGE_KINDS; kind++) {
		if (!image_formats[kind].reading)
			continue;
		if (last)
			list_add(list, ", ", last);
		last = image_formats[kind].name;
	}
	list_add(list, " and ", last);
	return list;
}

const char *image_list_endings(char list[static IMAGE_LIST_SIZE])
{
	*list = 0;
	for (enum image_kind kind = 0; kind < IMAGE_KINDS; kind++)
		for (const char *const *ending = image_formats[kind].endings;
		     *ending && image_formats[kind].reading; ending++)
			list_add(list, ", ", *ending);
	return list;
}
