#include "recipe.h"

#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 128 };

__attribute__((format(printf, 2, 3))) static int fail(char *error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error, RECIPE_ERROR_MAX, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static void *field(const struct recipe *recipe, const struct recipe_key *key)
{
	return (char *)recipe + key->offset;
}

/*
 * Optimal string alignment distance: how many slips of the finger turn a into b. Long texts count
 * as far apart.
 */
static unsigned distance(const char *a, const char *b)
{
	enum { SIDE = 48 };
	size_t n = strlen(a), m = strlen(b);
	if (n >= SIDE || m >= SIDE)
		return UINT32_MAX;
	unsigned d[SIDE][SIDE];
	for (size_t i = 0; i <= n; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

static const struct recipe_section *find_section(const char *name)
{
	for (size_t i = 0; i < recipe_sections_count; i++)
		if (!strcmp(recipe_sections[i].name, name))
			return &recipe_sections[i];
	return NULL;
}

static const struct recipe_key *find_key(const char *section, const char *name)
{
	for (size_t i = 0; i < recipe_keys_count; i++)
		if (!strcmp(recipe_keys[i].section, section) && !strcmp(recipe_keys[i].name, name))
			return &recipe_keys[i];
	return NULL;
}

static int fail_section(const char *where, const char *name, char *error)
{
	const char *nearest = NULL;
	unsigned best = UINT32_MAX;
	for (size_t i = 0; i < recipe_sections_count; i++) {
		unsigned d = distance(name, recipe_sections[i].name);
		if (d < best) {
			best = d;
			nearest = recipe_sections[i].name;
		}
	}
	if (nearest && best <= 3)
		return fail(error, "%s: no section [%s]; did you mean [%s]?", where, name, nearest);
	return fail(error, "%s: no section [%s]; `trainer --help-recipe` lists them", where, name);
}

/* A key of the same name in another section is nearer than any slip. */
static int fail_key(const char *where, const char *section, const char *name, char *error)
{
	const struct recipe_key *nearest = NULL;
	unsigned best = UINT32_MAX;
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		unsigned d = 2 * distance(name, key->name);
		if (d < UINT32_MAX / 2 && strcmp(section, key->section))
			d++;
		if (d < best) {
			best = d;
			nearest = key;
		}
	}
	if (nearest && best <= 7)
		return fail(error, "%s: no key %s.%s; did you mean %s.%s?", where, section, name,
			    nearest->section, nearest->name);
	return fail(error, "%s: no key %s.%s; `trainer --help-recipe` lists them", where, section,
		    name);
}

/* A decimal number and nothing after it but blanks; end is where it stopped. */
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
		return fail(error, "%s: %s.%s = \"%s\": expected a number from %.12g to %.12g",
			    where, key->section, key->name, text, key->min, key->max);
	*value = number;
	return 0;
}

static int set_integer(const struct recipe_key *key, const char *where, const char *text,
		       uint64_t *value, char *error)
{
	char *end = NULL;
	errno = 0;
	unsigned long long number = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
	if (!end || *end || errno || (double)number < key->min || (double)number > key->max)
		return fail(error,
			    "%s: %s.%s = \"%s\": expected a whole number from %.17g to %.17g",
			    where, key->section, key->name, text, key->min, key->max);
	*value = number;
	return 0;
}

static int set_boolean(const struct recipe_key *key, const char *where, const char *text,
		       bool *value, char *error)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(text, words[i])) {
			*value = i & 1;
			return 0;
		}
	}
	return fail(error, "%s: %s.%s = \"%s\": expected true or false", where, key->section,
		    key->name, text);
}

static int set_word(const struct recipe_key *key, const char *where, const char *text, int *value,
		    char *error)
{
	int position = 0;
	for (const char *word = key->words; word; position++) {
		size_t length = strcspn(word, "|");
		if (strlen(text) == length && !memcmp(text, word, length)) {
			*value = position;
			return 0;
		}
		word = word[length] ? word + length + 1 : NULL;
	}
	return fail(error, "%s: %s.%s = \"%s\": expected one of %s", where, key->section, key->name,
		    text, key->words);
}

static int set_numbers(const struct recipe_key *key, const char *where, const char *text,
		       struct recipe_numbers *value, char *error)
{
	struct recipe_numbers numbers = {0};
	const char *at = text;
	while (*at) {
		double number;
		if (numbers.count == RECIPE_NUMBERS_MAX || !read_number(at, &number, &at) ||
		    number < key->min || number > key->max || (*at && *at != ','))
			return fail(error,
				    "%s: %s.%s = \"%s\": expected at most %d numbers from %.12g to "
				    "%.12g, "
				    "with commas between",
				    where, key->section, key->name, text, RECIPE_NUMBERS_MAX,
				    key->min, key->max);
		numbers.value[numbers.count++] = number;
		if (*at == ',') {
			at += 1 + strspn(at + 1, " \t");
			if (!*at)
				return fail(
					error,
					"%s: %s.%s = \"%s\": a number is missing after the comma",
					where, key->section, key->name, text);
		}
	}
	*value = numbers;
	return 0;
}

static int set(struct recipe *recipe, const struct recipe_key *key, const char *where,
	       const char *text, char *error)
{
	switch (key->type) {
	case RECIPE_TEXT: {
		char **value = field(recipe, key);
		if (strlen(text) >= RECIPE_TEXT_MAX)
			return fail(error, "%s: %s.%s is longer than %d bytes", where, key->section,
				    key->name, RECIPE_TEXT_MAX - 1);
		char *copy = strdup(text);
		if (!copy)
			return -ENOMEM;
		free(*value);
		*value = copy;
		return 0;
	}
	case RECIPE_INTEGER:
		return set_integer(key, where, text, field(recipe, key), error);
	case RECIPE_NUMBER:
		return set_number(key, where, text, field(recipe, key), error);
	case RECIPE_BOOLEAN:
		return set_boolean(key, where, text, field(recipe, key), error);
	case RECIPE_WORD:
		return set_word(key, where, text, field(recipe, key), error);
	case RECIPE_NUMBERS:
		return set_numbers(key, where, text, field(recipe, key), error);
	}
	return -EINVAL;
}

int recipe_init(struct recipe *recipe)
{
	char error[RECIPE_ERROR_MAX];
	struct recipe fresh = {0};
	for (size_t i = 0; i < recipe_keys_count; i++) {
		int r = set(&fresh, &recipe_keys[i], "default", recipe_keys[i].fallback, error);
		if (r) {
			recipe_deinit(&fresh);
			return r;
		}
	}
	*recipe = fresh;
	return 0;
}

void recipe_deinit(struct recipe *recipe)
{
	for (size_t i = 0; i < recipe_keys_count; i++) {
		if (recipe_keys[i].type != RECIPE_TEXT)
			continue;
		char **value = field(recipe, &recipe_keys[i]);
		free(*value);
		*value = NULL;
	}
}

/*
 * What inih is told, and what it does not tell: the number of the line, and lines that it would
 * cut.
 */
struct reading {
	struct recipe *recipe;
	const char *name;
	FILE *file;
	unsigned line;
	bool continues; /* the line starts with a blank: it continues the value above */
	unsigned set_on[KEYS_MAX];
	char value[RECIPE_TEXT_MAX];
	char *error;
	int result;
};

static void refuse(struct reading *reading, const char *text)
{
	if (reading->result)
		return;
	reading->result = fail(reading->error, "%s:%u: %s", reading->name, reading->line, text);
}

/* As fgets, for inih. A section is checked here because inih reports none that is empty. */
static char *read_line(char *text, int size, void *user)
{
	struct reading *reading = user;
	if (reading->result || !fgets(text, size, reading->file))
		return NULL;
	reading->line++;
	size_t length = strlen(text);
	if (length == (size_t)size - 1 && text[length - 1] != '\n') {
		snprintf(reading->value, sizeof(reading->value),
			 "line longer than %d bytes; go on with an indented line below it",
			 size - 2);
		refuse(reading, reading->value);
		return NULL;
	}
	reading->continues = text[0] == ' ' || text[0] == '\t';
	const char *start = text + strspn(text, " \t");
	if (*start == '[' && !reading->continues) {
		size_t end = strcspn(start, "]\n");
		if (start[end] == ']') {
			char where[512];
			snprintf(where, sizeof(where), "%s:%u", reading->name, reading->line);
			snprintf(reading->value, sizeof(reading->value), "%.*s", (int)end - 1,
				 start + 1);
			if (!find_section(reading->value))
				reading->result =
					fail_section(where, reading->value, reading->error);
		}
	}
	return reading->result ? NULL : text;
}

/* For inih: 0 stops with an error. */
static int handle(void *user, const char *section, const char *name, const char *text)
{
	struct reading *reading = user;
	if (reading->result)
		return 0;
	char where[512];
	snprintf(where, sizeof(where), "%s:%u", reading->name, reading->line);
	if (!*section) {
		reading->result = fail(reading->error, "%s: %s stands before the first [section]",
				       where, name);
		return 0;
	}
	const struct recipe_key *key = find_key(section, name);
	if (!key) {
		reading->result = fail_key(where, section, name, reading->error);
		return 0;
	}
	unsigned *set_on = &reading->set_on[key - recipe_keys];
	if (reading->continues) {
		size_t length = strlen(reading->value);
		snprintf(reading->value + length, sizeof(reading->value) - length, "%s%s",
			 length ? " " : "", text);
		if (strlen(reading->value) == sizeof(reading->value) - 1)
			refuse(reading, "value too long");
	} else if (*set_on) {
		reading->result = fail(reading->error, "%s: %s.%s was already set on line %u",
				       where, section, name, *set_on);
		return 0;
	} else {
		snprintf(reading->value, sizeof(reading->value), "%s", text);
	}
	if (!*set_on)
		*set_on = reading->line;
	if (!reading->result)
		reading->result = set(reading->recipe, key, where, reading->value, reading->error);
	return !reading->result;
}

static int load(struct recipe *recipe, const char *name, FILE *file, char *error)
{
	struct reading *reading = calloc(1, sizeof(*reading));
	if (!reading)
		return -ENOMEM;
	*reading = (struct reading){.recipe = recipe, .name = name, .file = file, .error = error};
	int line = ini_parse_stream(read_line, reading, handle, reading);
	if (!reading->result && line > 0) {
		reading->line = (unsigned)line;
		refuse(reading, "expected [section] or key = value");
	}
	if (!reading->result && (line < 0 || ferror(file)))
		reading->result = fail(error, "%s: cannot be read", name);
	int r = reading->result;
	free(reading);
	return r;
}

int recipe_load(struct recipe *recipe, const char *path, char *error)
{
	FILE *file = fopen(path, "re");
	if (!file) {
		int r = -errno;
		snprintf(error, RECIPE_ERROR_MAX, "%s: %s", path, strerror(-r));
		return r;
	}
	int r = load(recipe, path, file, error);
	fclose(file);
	return r;
}

int recipe_load_text(struct recipe *recipe, const char *name, const char *text, char *error)
{
	if (!*text)
		return 0;
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	if (!file)
		return -errno;
	int r = load(recipe, name, file, error);
	fclose(file);
	return r;
}

int recipe_override(struct recipe *recipe, const char *argument, char *error)
{
	static const char where[] = "command line";
	char name[128];
	const char *equals = strchr(argument, '=');
	if (!equals || (size_t)(equals - argument) >= sizeof(name))
		return fail(error, "%s: \"%s\": expected section.key=value", where, argument);
	memcpy(name, argument, (size_t)(equals - argument));
	name[equals - argument] = '\0';
	char *dot = strchr(name, '.');
	if (!dot)
		return fail(error, "%s: \"%s\": expected section.key=value", where, argument);
	*dot = '\0';
	if (!find_section(name))
		return fail_section(where, name, error);
	const struct recipe_key *key = find_key(name, dot + 1);
	if (!key)
		return fail_key(where, name, dot + 1, error);
	return set(recipe, key, where, equals + 1, error);
}

int recipe_check(const struct recipe *recipe, char *error)
{
	if (!*recipe->data.train)
		return fail(error,
			    "data.train is not set: it names the packed dataset to train on");
	if (recipe->data.mean.count != 0 && recipe->data.mean.count != 3)
		return fail(error, "data.mean has %u numbers, expected 3 (R, G, B) or none",
			    recipe->data.mean.count);
	if (recipe->data.std.count != recipe->data.mean.count)
		return fail(error, "data.mean and data.std go together: %u and %u numbers",
			    recipe->data.mean.count, recipe->data.std.count);
	if (!*recipe->data.val && *recipe->data.val_pipeline)
		return fail(error, "data.val_pipeline is set, but no data.val to run it on");
	const struct recipe_schedule_keys *schedule = &recipe->schedule;
	if (schedule->warmup > 0 && schedule->warmup >= recipe->train.epochs &&
	    recipe->train.epochs > 0)
		return fail(error,
			    "schedule.warmup = %g epochs leaves nothing of train.epochs = %g",
			    schedule->warmup, recipe->train.epochs);
	if (schedule->name == RECIPE_MULTI_STEP && !schedule->milestones.count)
		return fail(error,
			    "schedule.milestones is empty: schedule.name = multi_step needs them");
	for (unsigned i = 1; i < schedule->milestones.count; i++)
		if (schedule->milestones.value[i] <= schedule->milestones.value[i - 1])
			return fail(error, "schedule.milestones must rise: %g is followed by %g",
				    schedule->milestones.value[i - 1],
				    schedule->milestones.value[i]);
	if (recipe->optim.nesterov && recipe->optim.momentum == 0)
		return fail(error, "optim.nesterov = true needs optim.momentum above 0");
	return 0;
}

static int word_text(const char *words, int position, char *text, size_t size)
{
	while (position-- > 0)
		words += strcspn(words, "|") + 1;
	return snprintf(text, size, "%.*s", (int)strcspn(words, "|"), words);
}

/* The shortest decimal that reads back to the same double. */
static int number_text(double value, char *text, size_t size)
{
	int length = 0;
	for (int digits = 6; digits <= 17; digits++) {
		length = snprintf(text, size, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	return length;
}

int recipe_key_text(const struct recipe *recipe, const struct recipe_key *key, char *text,
		    size_t size)
{
	const void *value = field(recipe, key);
	int length = 0;
	switch (key->type) {
	case RECIPE_TEXT:
		length = snprintf(text, size, "%s", *(char *const *)value);
		break;
	case RECIPE_INTEGER:
		length = snprintf(text, size, "%llu", (unsigned long long)*(const uint64_t *)value);
		break;
	case RECIPE_NUMBER:
		length = number_text(*(const double *)value, text, size);
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
		for (unsigned i = 0; i < numbers->count; i++) {
			char number[32];
			number_text(numbers->value[i], number, sizeof(number));
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

/* Breaks a long value at blanks into indented lines, which inih puts together again. */
static void write_value(FILE *file, const char *name, const char *text)
{
	enum { WIDTH = 150 };
	fprintf(file, "%s =", name);
	while (*text) {
		size_t length = strlen(text);
		if (length > WIDTH) {
			size_t cut = WIDTH;
			while (cut > 0 && text[cut] != ' ')
				cut--;
			if (cut > 0)
				length = cut;
		}
		fprintf(file, " %.*s\n", (int)length, text);
		text += length + strspn(text + length, " ");
		if (*text)
			fputc('\t', file);
		else
			return;
	}
	fputc('\n', file);
}

int recipe_write(const struct recipe *recipe, FILE *file)
{
	char text[RECIPE_TEXT_MAX];
	const char *section = "";
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		int r = recipe_key_text(recipe, key, text, sizeof(text));
		if (r < 0)
			return r;
		if (strcmp(section, key->section)) {
			fprintf(file, "%s[%s]\n", *section ? "\n" : "", key->section);
			section = key->section;
		}
		write_value(file, key->name, text);
	}
	return ferror(file) ? -EIO : 0;
}

int recipe_compare(const struct recipe *recipe, const struct recipe *saved, bool allow_trajectory,
		   char *error)
{
	char now[RECIPE_TEXT_MAX], then[RECIPE_TEXT_MAX];
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		if (key->resume == RECIPE_FREE ||
		    (key->resume == RECIPE_TRAJECTORY && allow_trajectory))
			continue;
		if (recipe_key_text(recipe, key, now, sizeof(now)) < 0 ||
		    recipe_key_text(saved, key, then, sizeof(then)) < 0)
			return -ENOSPC;
		if (!strcmp(now, then))
			continue;
		return fail(error, "%s.%s is \"%.200s\" but was \"%.200s\" in the checkpoint: %s",
			    key->section, key->name, now, then,
			    key->resume == RECIPE_FIXED
				    ? "the run cannot go on like this; start a new one"
				    : "the losses would differ from an unbroken run; "
				      "--allow-changes goes on all the same");
	}
	return 0;
}
