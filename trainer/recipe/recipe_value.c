#include "trainer/recipe/recipe_value.h"

#include "format/base/text/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parses a decimal number and the blanks after it. Sets *ret_end to the rest of the text. */
static bool read_number(const char *text, double *ret_value, const char **ret_end)
{
	char *end;
	if (*text != '-' && *text != '+' && *text != '.' && (*text < '0' || *text > '9'))
		return false;
	double value = strtod(text, &end);
	if (end == text || !isfinite(value))
		return false;
	*ret_value = value;
	*ret_end = end + strspn(end, " \t");
	return true;
}

static int set_number(const struct recipe_key *key, const char *where, const char *text,
		      double *value, char *error)
{
	const char *end;
	double number;
	if (!read_number(text, &number, &end) || *end || number < key->min || number > key->max)
		return recipe_fail(error,
				   "%s: %s.%s = \"%s\": expected a number from %.12g to %.12g",
				   where, key->section, key->name, text, key->min, key->max);
	*value = number;
	return 0;
}

/* Reports a number that is not a multiple of the step from the minimum. */
static int fail_step(const struct recipe_key *key, const char *where, unsigned long long number,
		     char *error)
{
	unsigned min = (unsigned)key->min, step = key->step;
	unsigned long long below = number - (number - min) % step;
	return recipe_fail(error,
			   "%s: %s.%s = \"%llu\": expected one of %u, %u, %u, ... %.0f; the "
			   "nearest are %llu and %llu",
			   where, key->section, key->name, number, min, min + step, min + 2 * step,
			   key->max, below, below + step);
}

static int set_integer(const struct recipe_key *key, const char *where, const char *text,
		       uint64_t *value, char *error)
{
	char *end = NULL;
	if (key->words && strcmp(text, key->words) == 0) {
		*value = 0;
		return 0;
	}
	errno = 0;
	unsigned long long number = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
	if (!end || *end || errno || (double)number < key->min || (double)number > key->max)
		return recipe_fail(
			error,
			"%s: %s.%s = \"%s\": expected a whole number from %.17g to %.17g%s%s",
			where, key->section, key->name, text, key->min, key->max,
			key->words ? ", or " : "", key->words ? key->words : "");
	if (key->step && (number - (unsigned)key->min) % key->step)
		return fail_step(key, where, number, error);
	*value = number;
	return 0;
}

static int set_boolean(const struct recipe_key *key, const char *where, const char *text,
		       bool *value, char *error)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(text, words[i]) == 0) {
			*value = i & 1;
			return 0;
		}
	}
	return recipe_fail(error, "%s: %s.%s = \"%s\": expected true or false", where, key->section,
			   key->name, text);
}

/* Returns the index of the word in words, "a|b|c"; -1 if not found. */
static int find_word(const char *words, const char *text)
{
	int position = 0;
	for (const char *word = words; word; position++) {
		size_t length = strcspn(word, "|");
		if (strlen(text) == length && memcmp(text, word, length) == 0)
			return position;
		word = word[length] ? word + length + 1 : NULL;
	}
	return -1;
}

static int set_word(const struct recipe_key *key, const char *where, const char *text, int *value,
		    char *error)
{
	int position = find_word(key->words, text);
	if (position < 0)
		return recipe_fail_word(where, key, text, error);
	*value = position;
	return 0;
}

static int set_numbers(const struct recipe_key *key, const char *where, const char *text,
		       struct recipe_numbers *value, char *error)
{
	struct recipe_numbers numbers = {0};
	const char *at = text;
	if (key->words && strcmp(text, key->words) == 0) {
		*value = (struct recipe_numbers){.word = true};
		return 0;
	}
	while (*at) {
		double number;
		if (numbers.count == RECIPE_NUMBERS_MAX || !read_number(at, &number, &at) ||
		    number < key->min || number > key->max || (*at && *at != ','))
			return recipe_fail(error,
					   "%s: %s.%s = \"%s\": expected at most %d "
					   "comma-separated numbers from %.12g to %.12g%s%s",
					   where, key->section, key->name, text, RECIPE_NUMBERS_MAX,
					   key->min, key->max, key->words ? ", or " : "",
					   key->words ? key->words : "");
		numbers.value[numbers.count++] = number;
		if (*at == ',') {
			at += 1 + strspn(at + 1, " \t");
			if (!*at)
				return recipe_fail(
					error,
					"%s: %s.%s = \"%s\": a number is missing after the comma",
					where, key->section, key->name, text);
		}
	}
	*value = numbers;
	return 0;
}

static int set_text(const struct recipe_key *key, const char *where, const char *text, char **value,
		    char *error)
{
	if (key->words && find_word(key->words, text) < 0)
		return recipe_fail_word(where, key, text, error);
	if (strlen(text) >= RECIPE_TEXT_MAX)
		return recipe_fail(error, "%s: %s.%s is longer than %d bytes", where, key->section,
				   key->name, RECIPE_TEXT_MAX - 1);
	const char *problem = recipe_text_problem(text);
	if (problem)
		return recipe_fail(error, "%s: %s.%s = \"%.300s\" %s", where, key->section,
				   key->name, text, problem);
	char *copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	free(*value);
	*value = copy;
	return 0;
}

int recipe_set(struct recipe *recipe, const struct recipe_key *key, const char *where,
	       const char *text, char *error)
{
	switch (key->type) {
	case RECIPE_TEXT:
		return set_text(key, where, text, recipe_field(recipe, key), error);
	case RECIPE_INTEGER:
		return set_integer(key, where, text, recipe_field(recipe, key), error);
	case RECIPE_NUMBER:
		return set_number(key, where, text, recipe_field(recipe, key), error);
	case RECIPE_BOOLEAN:
		return set_boolean(key, where, text, recipe_field(recipe, key), error);
	case RECIPE_WORD:
		return set_word(key, where, text, recipe_field(recipe, key), error);
	case RECIPE_NUMBERS:
		return set_numbers(key, where, text, recipe_field(recipe, key), error);
	}
	return -EINVAL;
}

static int word_text(const char *words, int position, char *text, size_t size)
{
	while (position-- > 0)
		words += strcspn(words, "|") + 1;
	return snprintf(text, size, "%.*s", (int)strcspn(words, "|"), words);
}

int recipe_key_text(const struct recipe *recipe, const struct recipe_key *key, char *text,
		    size_t size)
{
	const void *value = recipe_field(recipe, key);
	char number[NUMBER_SHORTEST];
	int length = 0;
	switch (key->type) {
	case RECIPE_TEXT:
		length = snprintf(text, size, "%s", *(char *const *)value);
		break;
	case RECIPE_INTEGER:
		length = key->words && !*(const uint64_t *)value
				 ? snprintf(text, size, "%s", key->words)
				 : snprintf(text, size, "%llu",
					    (unsigned long long)*(const uint64_t *)value);
		break;
	case RECIPE_NUMBER:
		number_shortest(*(const double *)value, number);
		length = snprintf(text, size, "%s", number);
		break;
	case RECIPE_BOOLEAN:
		length = snprintf(text, size, "%s", *(const bool *)value ? "true" : "false");
		break;
	case RECIPE_WORD:
		length = word_text(key->words, *(const int *)value, text, size);
		break;
	case RECIPE_NUMBERS: {
		const struct recipe_numbers *numbers = value;
		text[0] = '\0';
		if (numbers->word)
			length = snprintf(text, size, "%s", key->words);
		for (unsigned i = 0; i < numbers->count; i++) {
			number_shortest(numbers->value[i], number);
			if ((size_t)length >= size)
				return -ENOSPC;
			length += snprintf(text + length, size - (size_t)length, "%s%s",
					   i ? ", " : "", number);
		}
		break;
	}
	}
	return (size_t)length < size ? length : -ENOSPC;
}
