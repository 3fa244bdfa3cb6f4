/*
 * Brace expansion of shard names, as in shells and WebDataset: {a,b,c} and numeric ranges
 * {000..012}, also several in one word, or nested. If either bound has a leading zero, all numbers
 * are padded to the width of the wider bound. A word without a complete brace expression expands to
 * itself. Pure functions; the caller owns the list.
 */
#pragma once

#include "format/packimg.h"

#include <stddef.h>

struct string_list {
	char **strings;
	size_t count, capacity;
};

void string_list_deinit(struct string_list *list);
int string_list_add(struct string_list *list, const char *word);
__attribute__((format(printf, 2, 3))) int string_list_add_format(struct string_list *list,
								 const char *format, ...);

enum {
	BRACE_EXPAND_MAX = 100000,
};

/* Appends the words in order. -E2BIG if there are more than BRACE_EXPAND_MAX; -ENOMEM. */
int brace_expand(const char *word, struct string_list *list, struct packimg_error *error);
