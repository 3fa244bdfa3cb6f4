/*
 * Transforms deferred to the client (pipeline_defer()): as many of the last transforms of a
 * pipeline as struct deferred can describe. Geometry comes first (a random_crop, then flips), then
 * colour and erasing. Works on plain values; any thread may call it.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/deferred.h"

/* Removes the client's stage, the last one, from the geometry and describes it in *ret_deferred. */
void defer_take(struct geometry *geometry, struct deferred *ret_deferred);
