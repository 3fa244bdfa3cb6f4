/*
 * Texts of filters: literals, names of classes, and texts of a sample. The last are in a file that
 * another process may change, or in an unmapped dataset, so they are read in pieces of bounded
 * size, each copied once by packimg_read(); a change can make a result wrong, but nothing else.
 * Texts of any length compare byte by byte, as memcmp() does. Stateless, any thread. Functions
 * return 0, or -EBADMSG if a text cannot be read.
 */
#pragma once

#include "format/where/where_code.h"

/* Sample whose texts are read. */
struct where_sample {
	const struct packimg *dataset;
	uint64_t index;
};

/* ret_order: -1, 0 or 1; any number but 0 if only equality is wanted and the sizes differ. */
int where_text_compare(const struct where_sample *sample, const struct where_operand *a,
		       const struct where_operand *b, bool only_equality, int *ret_order);
/* Orders literals for where_text_in(): by size, then by bytes. */
int where_text_order(const struct where_text *a, const struct where_text *b);
int where_text_in(const struct where_sample *sample, const struct where_operand *text,
		  const struct where_operand *list, size_t count, bool *ret_found);
/*
 * Matches the whole text with a pattern of at most WHERE_PATTERN_MAX bytes, in which '*' stands for
 * any text, '?' for a character, and '\' quotes the next byte. Takes at most as many steps as the
 * text has bytes for each byte of the pattern: after a mismatch, only the last '*' takes one byte
 * more.
 */
int where_text_like(const struct where_sample *sample, const struct where_operand *text,
		    const struct where_text *pattern, bool *ret_matches);
/*
 * Counts the objects of a value of polygons of objects (format/base/polygons.h); -EBADMSG if its
 * rows end within one.
 */
int where_count_objects(const struct where_sample *sample, const void *rows, size_t count,
			uint64_t *ret_objects);
