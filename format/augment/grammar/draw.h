/*
 * Draws the random decisions of a transform that changes pixels: whether it applies, in which order
 * and how strongly. Numbers come from the sample's stream in a fixed order, so they depend only on
 * seed, epoch and sample. The only state is the stream; any thread.
 */
#pragma once

#include "format/augment/grammar/policy.h"

/*
 * Appends a transform's effects to the list, which always has room: grammar.c limits pipelines
 * accordingly.
 */
void draw_effects(const struct transform *transform, const struct drawing *to);
/* Returns the maximum number of effects that a transform appends. */
unsigned draw_effects_max(const struct transform *transform);
/*
 * Draws the rectangle of random_erasing or cutout for a picture of width x height. Returns true and
 * sets *ret_erase if a rectangle is erased; the rectangle may be empty.
 */
bool draw_erase(const struct transform *transform, uint32_t width, uint32_t height,
		struct random_stream *random, struct erase *ret_erase);
