/*
 * Internal to recipe/. recipe.c has the keys, recipe_value.c values as text, recipe_ini.c recipe
 * files, recipe_order.c the keys that choose samples, recipe_pairs.c conflicts between keys.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/recipe/recipe.h"

#include <errno.h>

/* Writes a sentence to error and returns -EINVAL. */
#define recipe_fail(error, ...) sentence_fail((error), RECIPE_ERROR_MAX, -EINVAL, __VA_ARGS__)

/*
 * Look up a section or key by name; return NULL if there is none. recipe_fail_section() and
 * recipe_fail_key() report that, with the nearest name. where: file:line.
 */
const struct recipe_section *recipe_find_section(const char *name);
const struct recipe_key *recipe_find_key(const char *section, const char *name);
int recipe_fail_section(const char *where, const char *name, char *error);
int recipe_fail_key(const char *where, const char *section, const char *name, char *error);
/* Reports a value that is not in key->words. */
int recipe_fail_word(const char *where, const struct recipe_key *key, const char *text,
		     char *error);

/* Address of a key's value. */
void *recipe_field(const struct recipe *recipe, const struct recipe_key *key);
/* Checks a value given as text and sets it. */
int recipe_set(struct recipe *recipe, const struct recipe_key *key, const char *where,
	       const char *text, char *error);

/* -EINVAL if the datasets to train on, their shares and weights contradict each other. */
int recipe_check_order(const struct recipe_data *data, char *error);
/* -EINVAL if the recipe enables two methods that recipe_pairs.inc lists as incompatible. */
int recipe_check_pairs(const struct recipe *recipe, char *error);

/*
 * Returns a predicate ("has ...") that explains why a string would not survive a round trip through
 * a recipe file; NULL if it would.
 */
const char *recipe_text_problem(const char *text);
