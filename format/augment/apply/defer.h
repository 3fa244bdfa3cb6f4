/*
 * Transforms left to the client (pipeline_defer()): the last transforms of a pipeline, as far as
 * struct deferred can describe them. Geometry comes first (a random_crop, then flips), then colour
 * and erasing. Works on plain values; any thread may call it.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/deferred.h"

/* Moves the client's part of the geometry to *ret_deferred. */
void defer_take(struct geometry *geometry, struct deferred *ret_deferred);
