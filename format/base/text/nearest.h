/*
 * Which of the words that are known was probably meant by one that is not: commands, options, keys,
 * steps of pipelines. Functions without state, any thread; nothing is copied.
 */
#pragma once

#include <limits.h>

#define NEAREST_NONE UINT_MAX

/*
 * Slips of the finger (a character too many, too few or wrong, two neighbours exchanged) that make
 * what was written of what was meant; NEAREST_NONE: so many that it is not likely. Case, '_' and
 * '-' do not count.
 */
unsigned nearest_slips(const char *written, const char *meant);

struct nearest {
	const char *written;
	const char *meant; /* NULL: none is near */
	unsigned slips;
};

/* Begins with nothing; then each known word is offered, of which the first of the nearest stays. */
struct nearest nearest_to(const char *written);
void nearest_offer(struct nearest *nearest, const char *known);
