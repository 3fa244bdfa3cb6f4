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

/* Reports a value of RECIPE_STAGES. */
#define fail_stages(key, where, text, error, format, ...)                                          \
	recipe_fail(error, "%s: %s.%s = \"%.300s\": " format, where, (key)->section, (key)->name,  \
		    text, ##__VA_ARGS__)

static int fail_stages_expected(const struct recipe_key *key, const char *where, const char *text,
				char *error)
{
	return fail_stages(key, where, text, error,
			   "expected at most %d comma-separated numbers from %.12g to %.12g, or "
			   "several such lists with their first epochs, as in 3, 1@0; 1, 1@6",
			   RECIPE_NUMBERS_MAX, key->min, key->max);
}

/* Parses a list and the blanks after it. Returns its end, or NULL. */
static const char *read_list(const struct recipe_key *key, const char *at, double *values,
			     unsigned room, unsigned *ret_count)
{
	unsigned count = 0;
	for (;; at += 1 + strspn(at + 1, " \t")) {
		if (count == room || !read_number(at, &values[count], &at) ||
		    values[count] < key->min || values[count] > key->max)
			return NULL;
		count++;
		if (*at != ',')
			break;
	}
	*ret_count = count;
	return at;
}

/* Checks a stage against those before it. count: its numbers. */
static int check_stage(const struct recipe_key *key, const char *where, const char *text,
		       const struct recipe_stages *stages, unsigned count, char *error)
{
	unsigned last = stages->stages - 1;
	double from = stages->from[last];
	if (last == 0 && from != 0)
		return fail_stages(key, where, text, error,
				   "the first list begins at epoch %.12g: begin it at 0", from);
	if (last > 0 && !(from > stages->from[last - 1]))
		return fail_stages(key, where, text, error,
				   "the epochs after @ must ascend: %.12g is followed by %.12g",
				   stages->from[last - 1], from);
	if (count != stages->count)
		return fail_stages(key, where, text, error,
				   "the list from epoch %.12g on has %u number%s, but the first "
				   "has %u: give all lists equally many",
				   from, count, count == 1 ? "" : "s", stages->count);
	return 0;
}

/* Parses "@EPOCH" and the blanks after it. Returns its end, or NULL. */
static const char *read_from(const char *at, double *ret_from)
{
	bool found = *at == '@' && read_number(at + 1 + strspn(at + 1, " \t"), ret_from, &at) &&
		     *ret_from >= 0 && *ret_from <= RECIPE_EPOCHS_MAX && (!*at || *at == ';');
	return found ? at : NULL;
}

/* Parses the list at `*at` with its epoch, and the semicolon after it, and appends it. */
static int read_stage(const struct recipe_key *key, const char *where, const char *text,
		      const char **at, struct recipe_stages *stages, char *error)
{
	unsigned used = stages->stages * stages->count, count;
	if (stages->stages == RECIPE_STAGES_MAX ||
	    used + stages->count > RECIPE_STAGE_NUMBERS_MAX - RECIPE_NUMBERS_MAX)
		return fail_stages(key, where, text, error,
				   "too many lists: there may be %d, and about %d numbers",
				   RECIPE_STAGES_MAX,
				   RECIPE_STAGE_NUMBERS_MAX - RECIPE_NUMBERS_MAX);
	const char *end = read_list(key, *at, stages->value + used, RECIPE_NUMBERS_MAX, &count);
	if (!end)
		return fail_stages_expected(key, where, text, error);
	bool first = stages->stages++ == 0;
	if (first)
		stages->count = count;
	*at = end;
	if (first && !*end)
		return 0;
	end = read_from(end, &stages->from[stages->stages - 1]);
	if (!end)
		return fail_stages(key, where, text, error,
				   "expected @ and an epoch from 0 to %d after each of several "
				   "lists, as in 3, 1@0; 1, 1@6",
				   RECIPE_EPOCHS_MAX);
	if (first && !*end)
		return fail_stages(key, where, text, error,
				   "leave out @ after a single list; if others follow, write no "
				   "blank before their semicolon, which would begin a comment in a "
				   "recipe file");
	*at = *end ? end + 1 + strspn(end + 1, " \t") : end;
	if (*end && !**at)
		return fail_stages(key, where, text, error,
				   "a list is missing after the last semicolon");
	return check_stage(key, where, text, stages, count, error);
}

static int set_stages(const struct recipe_key *key, const char *where, const char *text,
		      struct recipe_stages *value, char *error)
{
	struct recipe_stages stages = {0};
	for (const char *at = text; *at;) {
		int r = read_stage(key, where, text, &at, &stages, error);
		if (r < 0)
			return r;
	}
	*value = stages;
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
	case RECIPE_STAGES:
		return set_stages(key, where, text, recipe_field(recipe, key), error);
	}
	return -EINVAL;
}

static int word_text(const char *words, int position, char *text, size_t size)
{
	while (position-- > 0)
		words += strcspn(words, "|") + 1;
	return snprintf(text, size, "%.*s", (int)strcspn(words, "|"), words);
}

/* Returns the length, which is at least `size` if there is no room. */
static int list_text(const double *values, unsigned count, char *text, size_t size)
{
	char number[NUMBER_SHORTEST];
	int length = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < count && (size_t)length < size; i++) {
		number_shortest(values[i], number);
		length += snprintf(text + length, size - (size_t)length, "%s%s", i ? ", " : "",
				   number);
	}
	return length;
}

static int stages_text(const struct recipe_stages *stages, char *text, size_t size)
{
	char number[NUMBER_SHORTEST];
	if (stages->stages <= 1)
		return list_text(stages->value, stages->count, text, size);
	int length = 0;
	for (unsigned i = 0; i < stages->stages && (size_t)length < size; i++) {
		if (i > 0)
			length += snprintf(text + length, size - (size_t)length, "; ");
		if ((size_t)length >= size)
			break;
		length += list_text(stages->value + i * stages->count, stages->count, text + length,
				    size - (size_t)length);
		if ((size_t)length >= size)
			break;
		number_shortest(stages->from[i], number);
		length += snprintf(text + length, size - (size_t)length, "@%s", number);
	}
	return length;
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
		length = numbers->word ? snprintf(text, size, "%s", key->words)
				       : list_text(numbers->value, numbers->count, text, size);
		break;
	}
	case RECIPE_STAGES:
		length = stages_text(value, text, size);
		break;
	}
	return (size_t)length < size ? length : -ENOSPC;
}
