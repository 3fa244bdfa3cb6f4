/*
 * Internal to recipe/: recipe.c keys, recipe_value.c values as text, recipe_ini.c recipes as files,
 * recipe_pairs.c conflicts between keys.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/recipe/recipe.h"

#include <errno.h>

/* Writes a sentence to error and returns -EINVAL. */
#define recipe_fail(error, ...) sentence_fail((error), RECIPE_ERROR_MAX, -EINVAL, __VA_ARGS__)

/*
 * Return NULL if not found. recipe_fail_section() and recipe_fail_key() report that, with the
 * nearest name. where: file:line.
 */
const struct recipe_section *recipe_find_section(const char *name);
const struct recipe_key *recipe_find_key(const char *section, const char *name);
int recipe_fail_section(const char *where, const char *name, char *error);
int recipe_fail_key(const char *where, const char *section, const char *name, char *error);
/* Reports a text that is not in key->words. */
int recipe_fail_word(const char *where, const struct recipe_key *key, const char *text,
		     char *error);

/* Address of a key's value. */
void *recipe_field(const struct recipe *recipe, const struct recipe_key *key);
/* Sets the value from text, after checking it. */
int recipe_set(struct recipe *recipe, const struct recipe_key *key, const char *where,
	       const char *text, char *error);

/* -EINVAL if the recipe enables two methods that exclude each other by recipe_pairs.inc. */
int recipe_check_pairs(const struct recipe *recipe, char *error);

/*
 * Explains why a text would not survive a round trip through a recipe file (a predicate: "has
 * ..."); NULL if it does.
 */
const char *recipe_text_problem(const char *text);
