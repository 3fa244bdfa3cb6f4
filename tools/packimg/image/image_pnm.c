/*
 * PBM, PGM and PPM, plain and raw (netpbm's pbm(5), pgm(5), ppm(5)): reads the first image of a
 * file.
 */
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <string.h>

struct pnm {
	const uint8_t *at, *end;
	uint32_t width, height, maximum;
	uint32_t channels;
	bool plain, bits;
};

static bool is_space(uint8_t byte)
{
	return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Skips white space and comments; a comment ends with its line. */
static void pnm_skip(struct pnm *pnm)
{
	while (pnm->at < pnm->end && (is_space(*pnm->at) || *pnm->at == '#')) {
		if (*pnm->at == '#')
			while (pnm->at < pnm->end && *pnm->at != '\n' && *pnm->at != '\r')
				pnm->at++;
		else
			pnm->at++;
	}
}

/*
 * Reads a number of at most `digits` digits, and at most `maximum`; returns false if there is none.
 */
static bool pnm_number(struct pnm *pnm, int digits, uint32_t maximum, uint32_t *ret_number)
{
	uint64_t number = 0;
	int count = 0;

	pnm_skip(pnm);
	for (; pnm->at < pnm->end && *pnm->at >= '0' && *pnm->at <= '9' && count < digits; count++)
		number = number * 10 + (uint64_t)(*pnm->at++ - '0');
	*ret_number = (uint32_t)number;
	return count > 0 && number <= maximum;
}

static int pnm_open(struct pnm *pnm, const uint8_t *data, size_t size, struct packimg_error *error)
{
	uint8_t digit = data[1]; /* the caller has checked the magic number */
	uint32_t kind = (digit - '1') % 3u;

	*pnm = (struct pnm){
		.at = data + 2,
		.end = data + size,
		.maximum = 1,
		.channels = kind == 2 ? 3 : 1,
		.plain = digit <= '3',
		.bits = kind == 0,
	};
	if (!pnm_number(pnm, 10, UINT32_MAX, &pnm->width) ||
	    !pnm_number(pnm, 10, UINT32_MAX, &pnm->height))
		return packimg_fail(error, -EBADMSG, "damaged PNM: its size is missing");
	if (!pnm->bits && (!pnm_number(pnm, 10, UINT32_MAX, &pnm->maximum) || !pnm->maximum))
		return packimg_fail(error, -EBADMSG, "damaged PNM: its maximum value is missing");
	if (pnm->maximum > UINT16_MAX)
		return image_not_supported(error, "PNM of values up to %u; 65535 is the maximum",
					   pnm->maximum);
	/* the pixels start after exactly one white space byte, whatever their values */
	if (!pnm->plain && (pnm->at == pnm->end || !is_space(*pnm->at++)))
		return packimg_fail(error, -EBADMSG, "damaged PNM: it ends within its header");
	return 0;
}

static int pnm_probe(const uint8_t *data, size_t size, struct image_info *info,
		     struct packimg_error *error)
{
	struct pnm pnm;
	int r = pnm_open(&pnm, data, size, error);

	info->width = pnm.width;
	info->height = pnm.height;
	info->channels = (uint8_t)pnm.channels;
	return r;
}

/* Rounds value / maximum to 8 bits. */
static uint8_t pnm_scale(uint32_t value, uint32_t maximum)
{
	return value >= maximum ? 255 : (uint8_t)((value * 255 + maximum / 2) / maximum);
}

/* Reads a row of numbers; returns false at the end of the data or if something else occurs. */
static bool pnm_plain_row(struct pnm *pnm, uint8_t *row)
{
	for (size_t i = 0; i < (size_t)pnm->width * pnm->channels; i++) {
		uint32_t value;

		if (!pnm_number(pnm, pnm->bits ? 1 : 10, pnm->maximum, &value))
			return false;
		row[i] = pnm->bits ? (value ? 0 : 255) : pnm_scale(value, pnm->maximum);
	}
	return true;
}

static bool pnm_raw_row(struct pnm *pnm, uint8_t *row)
{
	size_t count = (size_t)pnm->width * pnm->channels;
	size_t bytes = pnm->bits ? (count + 7) / 8 : pnm->maximum > 255 ? 2 * count : count;
	const uint8_t *in = pnm->at;

	if (bytes > (size_t)(pnm->end - pnm->at))
		return false;
	pnm->at += bytes;
	for (size_t i = 0; i < count; i++) {
		if (pnm->bits)
			row[i] = in[i / 8] >> (7 - i % 8) & 1 ? 0 : 255;
		else if (pnm->maximum > 255)
			row[i] = pnm_scale((uint32_t)in[2 * i] << 8 | in[2 * i + 1], pnm->maximum);
		else
			row[i] = pnm_scale(in[i], pnm->maximum);
	}
	return true;
}

/* Expands each value to three equal ones in place, starting from the end. */
static void spread(uint8_t *row, uint32_t width)
{
	while (width-- > 0)
		memset(row + 3 * (size_t)width, row[width], 3);
}

static int pnm_read(const uint8_t *data, size_t size, const struct image_info *info,
		    uint64_t memory_max, uint8_t *rgb, struct packimg_error *error)
{
	struct pnm pnm;
	int r = pnm_open(&pnm, data, size, error);

	for (uint32_t y = 0; !r && y < info->height; y++) {
		uint8_t *row = rgb + 3 * (size_t)info->width * y;

		if (!(pnm.plain ? pnm_plain_row(&pnm, row) : pnm_raw_row(&pnm, row)))
			return packimg_fail(
				error, -EBADMSG,
				"damaged PNM: its pixels end early or are not numbers in row %u",
				y);
		if (pnm.channels == 1)
			spread(row, info->width);
	}
	return r;
}

const struct image_reading pnm_reading = {.probe = pnm_probe, .read = pnm_read};
