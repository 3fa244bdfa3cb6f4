/*
 * Elements of masks and rasters as wider ones, of which each number is the same: integers as
 * integers or f32. Pure functions; any thread.
 */
#pragma once

#include "format/base/schema.h"

/* Returns true if `to` has every number of `from`, which is u8, u16, i16, i32 or f32. */
bool widen_can(enum schema_element from, enum schema_element to);
/*
 * Widens `count` elements in place: they lie at the end of the room for as many of `to`, without
 * alignment. Does nothing if the elements are equal.
 */
void widen(enum schema_element from, enum schema_element to, void *elements, size_t count);
