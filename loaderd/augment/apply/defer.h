/*
 * Steps that are left to the client (transform_defer): the last of a pipeline, as far as struct
 * deferred can say what they do. Geometry first, a random_crop and then flips, and then colour and
 * erasing. Values only; any thread.
 */
#pragma once

#include "format/base/deferred.h"
#include "loaderd/augment/apply/plan.h"

/* What a plan leaves to the client; the plan then only has the rest. */
void defer_take(struct plan *plan, struct deferred *ret_deferred);
