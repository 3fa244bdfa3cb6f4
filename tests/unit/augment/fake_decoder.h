/*
 * A decoder in place of libpackimg's, for raw RGB samples. It returns what the interface allows
 * rather than what is handy: pixels around the region (full of garbage, which must not show in any
 * result) and half scale with the fractional offset that comes with it. One thread; state is
 * global.
 */
#pragma once

#include "format/packimg.h"

struct fake_decoder {
	uint32_t margin; /* pixels of garbage around the region */
	bool halve;      /* return half scale where the hints allow */
	/* What the last call asked for, and how many there were. */
	struct packimg_region region;
	uint32_t hint_width, hint_height;
	unsigned calls;
	bool halved;
	/* What packimg_decode_ahead() was last told: how many, and the last of them. */
	uint32_t ahead_count;
	struct packimg_ahead ahead;
	int fail; /* returned instead, when negative */
};

extern struct fake_decoder fake_decoder;
