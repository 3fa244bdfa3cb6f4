/*
 * Replaces libpackimg's decoder for raw RGB samples, and raw samples as masks of bytes. Makes use
 * of all freedom that the interface allows: returns additional pixels around the region (garbage
 * that must not affect any result), and half scale with the resulting fractional offset. The state
 * is global, so use it on one thread only.
 */
#pragma once

#include "format/packimg.h"

struct fake_decoder {
	uint32_t margin; /* pixels of garbage around the region */
	bool halve;      /* return half scale if the hints allow it */
	/* Arguments of the last decoding call, and the number of calls. */
	struct packimg_region region;
	uint32_t hint_width, hint_height;
	unsigned calls;
	bool halved;
	/* Last call of packimg_decode_ahead(): number of entries, and the last entry. */
	uint32_t ahead_count;
	struct packimg_ahead ahead;
	/* Last argument of packimg_decoder_limit(), and the number of its calls. */
	uint64_t limit;
	unsigned limits;
	/* Calls of packimg_decode_raster_bands(), which are among `calls`. */
	unsigned begun, followed;
	int fail; /* if negative, every call fails with this error */
};

extern struct fake_decoder fake_decoder;
