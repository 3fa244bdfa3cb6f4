/*
 * Replaces libpackimg's decoder for raw RGB samples. It exercises the freedom that the interface
 * allows: it returns extra pixels around the region (garbage that must not affect any result) and
 * half scale with the fractional offset that results. Global state, so one thread only.
 */
#pragma once

#include "format/packimg.h"

struct fake_decoder {
	uint32_t margin; /* pixels of garbage around the region */
	bool halve;      /* return half scale where the hints allow */
	/* Arguments of the last call, and the number of calls. */
	struct packimg_region region;
	uint32_t hint_width, hint_height;
	unsigned calls;
	bool halved;
	/* Arguments of the last packimg_decode_ahead(): the count and the last entry. */
	uint32_t ahead_count;
	struct packimg_ahead ahead;
	int fail; /* if negative, every call fails with it */
};

extern struct fake_decoder fake_decoder;
