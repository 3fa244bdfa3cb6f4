/*
 * Brace expansion of shard names, as shells and WebDataset write it: {a,b,c} and numeric ranges
 * {000..012}, several in one word, also nested. A leading zero in either bound pads every number to
 * the wider bound. A word without a complete brace expression is itself. Pure; the caller owns the
 * list.
 */
#pragma once

#include "format/packimg.h"

#include <stddef.h>

struct word_list {
	char **words;
	size_t count, room;
};

void word_list_deinit(struct word_list *list);
int word_list_add(struct word_list *list, const char *word);
__attribute__((format(printf, 2, 3))) int word_list_add_format(struct word_list *list,
							       const char *format, ...);

enum {
	BRACE_WORDS_MAX = 100000,
};

/* Appends the words in order. -E2BIG past BRACE_WORDS_MAX, -ENOMEM. */
int brace_expand(const char *word, struct word_list *list, struct packimg_error *error);
