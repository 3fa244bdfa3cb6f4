/*
 * The fixed table of colours for class numbers, mask numbers and rows. Pure function, any thread.
 */
#pragma once

#include <stdint.h>

struct colour {
	uint8_t red, green, blue;
};

/* Returns the colour of a number; the table repeats, also below 0. */
struct colour colour_of(int64_t number);
