/*
 * Takes the random decisions of a step that changes pixels: whether it acts, in which order and how
 * strongly. Numbers are drawn from the sample's stream in a fixed order, so they depend on nothing
 * but seed, epoch and sample. Pure but for the stream; any thread.
 */
#pragma once

#include "loaderd/augment/grammar/policy.h"

/* Appends a step's effects; the list has room for the most that grammar.c allows. */
void draw_effects(const struct step *step, const struct drawing *to);
/* The most effects that a step can append. */
unsigned draw_effects_max(const struct step *step);
/*
 * Decides about random_erasing or cutout on a picture of width x height: whether a rectangle is
 * erased, and which. It may be empty.
 */
bool draw_erase(const struct step *step, uint32_t width, uint32_t height,
		struct random_stream *random, struct erase *ret_erase);
