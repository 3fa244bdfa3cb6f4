/*
 * Suggests the known word that a misspelt one probably meant: commands, options, keys, pipeline
 * steps. Stateless, any thread; copies no strings.
 */
#pragma once

#include <limits.h>

#define NEAREST_NONE UINT_MAX

/*
 * Edit distance between written and meant: insertions, deletions, substitutions and transpositions
 * of neighbours. Ignores case and the difference between '_' and '-'. NEAREST_NONE if too large for
 * a likely slip.
 */
unsigned nearest_slips(const char *written, const char *meant);

struct nearest {
	const char *written;
	const char *meant; /* NULL if no word is near */
	unsigned slips;
};

/*
 * nearest_to() starts a search; nearest_offer() each known word. The first of the nearest words
 * wins.
 */
struct nearest nearest_to(const char *written);
void nearest_offer(struct nearest *nearest, const char *known);
