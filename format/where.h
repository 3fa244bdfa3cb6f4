/*
 * Filters over the samples of a dataset: "width >= 200 and label in (1, 5)". A filter is parsed
 * once, with the names bound to the dataset's schema, and then matched with any number of samples.
 * packimg(1), FILTERS, describes the language; the parser is a recursive descent with bounded depth
 * that emits postfix code (where/where_code.h). A comparison with an absent value or NaN is
 * unknown, as in SQL, and only samples for which the whole filter is true match.
 */
#pragma once

#include "format/packimg.h"

enum {
	WHERE_TEXT_MAX = 1 << 20,       /* bytes of a filter */
	WHERE_OPERATIONS_MAX = 1 << 16, /* names, operators and literals outside of lists */
	WHERE_DEPTH_MAX = 64,           /* nested parentheses */
	WHERE_PATTERN_MAX = 255,        /* bytes of a pattern */
};

/* A parsed filter. Immutable; any thread may use it. */
struct where;

struct where_error {
	char text[PACKIMG_ERROR_MAX];
	int position; /* byte offset in the filter */
};

/*
 * Parses a filter and binds its names to the dataset's schema and classes. Keeps no reference to
 * either argument. -EINVAL with a text and a position for a filter that is wrong or too long;
 * -ENOMEM. error may be NULL.
 */
int where_parse(const char *text, const struct packimg *dataset, struct where **ret_where,
		struct where_error *error);
void where_free(struct where *where);
/*
 * Returns 1 if the filter holds for the sample and 0 if not; -EBADMSG if the sample's record or a
 * value is damaged or cannot be read, which the caller has to handle; -ERANGE if there is no such
 * sample. The dataset is the one that the filter was parsed for, mapped or not. Reads only values
 * that the filter names, and not those that cannot change the result: in "a or b", b only if a is
 * not true. Allocates nothing and takes no locks. The time is bounded by the length of the filter
 * and, for text, count() of polygons and patterns, by the length of the values.
 */
int where_match(const struct where *where, const struct packimg *dataset, uint64_t index);
/*
 * Like where_match(), but ends with -ECANCELED once stopped(context) says true, which it asks
 * before each comparison with a pattern: thousands of these may take a second for one sample.
 */
int where_match_until(const struct where *where, const struct packimg *dataset, uint64_t index,
		      bool (*stopped)(const void *context), const void *context);
