/* A bitmap font of the printable ASCII characters, for text in contact sheets. Constant. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	FONT_WIDTH = 5,   /* pixels of a glyph */
	FONT_HEIGHT = 7,  /* pixels of a glyph */
	FONT_ADVANCE = 6, /* pixels from a glyph to the next */
};

/* Returns whether the glyph of a character is set at column x and row y. A box if it has none. */
bool font_pixel(uint32_t character, unsigned x, unsigned y);
