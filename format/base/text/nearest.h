/*
 * Suggests the known word closest to a misspelt one: a command, option, key or pipeline step.
 * Stateless, any thread; copies no strings.
 */
#pragma once

#include <limits.h>

#define NEAREST_NONE UINT_MAX

/*
 * Returns the edit distance between written and meant: insertions, deletions, substitutions and
 * transpositions of adjacent characters. Ignores case, '_' and '-'. NEAREST_NONE if the distance is
 * too large for a likely misspelling.
 */
unsigned nearest_distance(const char *written, const char *meant);

struct nearest {
	const char *written;
	const char *meant; /* NULL if no known word is close enough */
	unsigned distance;
};

/*
 * nearest_to() starts a search. Call nearest_offer() with each known word; of several at the same
 * distance the first one wins.
 */
struct nearest nearest_to(const char *written);
void nearest_offer(struct nearest *nearest, const char *known);
