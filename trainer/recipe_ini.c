#include "recipe_value.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 128 };

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
	reading->result =
		recipe_fail(reading->error, "%s:%u: %s", reading->name, reading->line, text);
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
			if (!recipe_find_section(reading->value))
				reading->result =
					recipe_fail_section(where, reading->value, reading->error);
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
		reading->result = recipe_fail(
			reading->error, "%s: %s stands before the first [section]", where, name);
		return 0;
	}
	const struct recipe_key *key = recipe_find_key(section, name);
	if (!key) {
		reading->result = recipe_fail_key(where, section, name, reading->error);
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
		reading->result =
			recipe_fail(reading->error, "%s: %s.%s was already set on line %u", where,
				    section, name, *set_on);
		return 0;
	} else {
		snprintf(reading->value, sizeof(reading->value), "%s", text);
	}
	if (!*set_on)
		*set_on = reading->line;
	if (!reading->result)
		reading->result =
			recipe_set(reading->recipe, key, where, reading->value, reading->error);
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
		reading->result = recipe_fail(error, "%s: cannot be read", name);
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
