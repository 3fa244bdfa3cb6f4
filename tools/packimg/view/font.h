/* A bitmap font of the printable ASCII characters, for text in contact sheets. Constant. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	FONT_WIDTH = 5,   /* pixels of a glyph */
	FONT_HEIGHT = 7,  /* pixels of a glyph */
	FONT_ADVANCE = 6, /* pixels from one glyph to the next */
};

/*
 * Returns true if the glyph of a character covers column x, row y. A character without a glyph is a
 * box.
 */
bool font_pixel(uint32_t character, unsigned x, unsigned y);
