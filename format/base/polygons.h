/*
 * Polygons of objects: the rows of a value such as `polygons(boxes) f32[*,2]`, which are vertices
 * of the polygons of each box (SPEC.md, "Schema"). A row with a number that is not finite ends a
 * polygon, and one more ends the object: in "a b c | d e f | | | g h i | |", where | is such a row,
 * the first object has two polygons, the second none, the third one. Rows are pairs of f32 without
 * alignment, and may change meanwhile: each is read once. Pure functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the number of objects; UINT64_MAX if the rows end within one. */
uint64_t polygons_count(const void *rows, size_t count);
/*
 * Returns the row after the next row from `first` on that is not finite, `count` if there is none.
 * Sets *ret_vertices to the number of rows before it.
 */
size_t polygons_next(const void *rows, size_t count, size_t first, size_t *ret_vertices);
/*
 * Removes the rows of objects whose keep[i] is 0, and those after the last object; the others stay
 * in order. Returns the number of remaining rows.
 */
size_t polygons_keep(void *rows, size_t count, const uint8_t *keep, size_t objects);
