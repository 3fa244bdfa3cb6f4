/*
 * Between the files of the recipe: recipe.c its keys, recipe_value.c values as text, recipe_ini.c
 * recipes as files, recipe_pairs.c which keys do not go together.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/recipe/recipe.h"

#include <errno.h>

/* Writes a sentence to error; -EINVAL. */
#define recipe_fail(error, ...) sentence_fail((error), RECIPE_ERROR_MAX, -EINVAL, __VA_ARGS__)

/*
 * NULL: there is none of that name; recipe_fail_section and recipe_fail_key say so, and what is
 * near. where: file:line.
 */
const struct recipe_section *recipe_find_section(const char *name);
const struct recipe_key *recipe_find_key(const char *section, const char *name);
int recipe_fail_section(const char *where, const char *name, char *error);
int recipe_fail_key(const char *where, const char *section, const char *name, char *error);
/* Of a text that is none of key->words. */
int recipe_fail_word(const char *where, const struct recipe_key *key, const char *text,
		     char *error);

/* Where a key's value is. */
void *recipe_field(const struct recipe *recipe, const struct recipe_key *key);
/* Sets it from text, if that is one of its values. */
int recipe_set(struct recipe *recipe, const struct recipe_key *key, const char *where,
	       const char *text, char *error);

/* -EINVAL: two methods are switched on that recipe_pairs.inc says do not go together. */
int recipe_check_pairs(const struct recipe *recipe, char *error);

/*
 * Why the text cannot be written to a recipe file and read back, to go on after it ("has ...");
 * NULL: it can.
 */
const char *recipe_text_problem(const char *text);
