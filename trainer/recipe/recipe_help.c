#include "trainer/recipe/recipe.h"

#include <string.h>

static void print_words(FILE *file, const char *words)
{
	for (const char *c = words; *c; c++)
		*c == '|' ? fputs(", ", file) : fputc(*c, file);
}

/* Prints type and bounds of a key. */
static void print_type(FILE *file, const struct recipe_key *key)
{
	switch (key->type) {
	case RECIPE_TEXT:
		print_words(file, key->words ? key->words : "text");
		break;
	case RECIPE_INTEGER:
		if (key->step)
			fprintf(file, "%.0f, %.0f, %.0f, ... %.0f", key->min, key->min + key->step,
				key->min + 2 * key->step, key->max);
		else
			fprintf(file, "whole number, %.0f to %.0f%s%s", key->min, key->max,
				key->words ? ", or " : "", key->words ? key->words : "");
		break;
	case RECIPE_NUMBER:
		fprintf(file, "number, %.9g to %.9g", key->min, key->max);
		break;
	case RECIPE_BOOLEAN:
		fputs("true or false", file);
		break;
	case RECIPE_WORD:
		print_words(file, key->words);
		break;
	case RECIPE_NUMBERS:
		fprintf(file, "comma-separated numbers%s%s", key->words ? ", or " : "",
			key->words ? key->words : "");
		break;
	case RECIPE_STAGES:
		fputs("comma-separated numbers, or several such lists, each with @ and its first "
		      "epoch, separated by semicolons",
		      file);
		break;
	}
}

static void print_wrapped(FILE *file, const char *text, int indent, int width)
{
	int column = 0;
	while (*text) {
		int length = (int)strcspn(text, " ");
		if (column && column + 1 + length > width - indent) {
			fputc('\n', file);
			column = 0;
		}
		if (column)
			column += fprintf(file, " %.*s", length, text);
		else
			column = fprintf(file, "%*s%.*s", indent, "", length, text) - indent;
		text += length + (text[length] == ' ');
	}
	fputc('\n', file);
}

void recipe_help(FILE *file)
{
	for (size_t s = 0; s < recipe_sections_count; s++) {
		fprintf(file, "%s[%s]\n", s ? "\n" : "", recipe_sections[s].name);
		print_wrapped(file, recipe_sections[s].help, 0, 100);
		for (size_t i = 0; i < recipe_keys_count; i++) {
			const struct recipe_key *key = &recipe_keys[i];
			if (strcmp(key->section, recipe_sections[s].name) != 0)
				continue;
			fprintf(file, "  %s = %s    (", key->name,
				*key->fallback ? key->fallback : "\"\"");
			print_type(file, key);
			fputs(")\n", file);
			print_wrapped(file, key->help, 8, 100);
		}
	}
}

/* Escapes _ and * for scdoc. */
static void print_escaped(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (strchr("_*\\#<>[]", *text))
			fputc('\\', file);
		fputc(*text, file);
	}
}

void recipe_help_scdoc(FILE *file)
{
	for (size_t s = 0; s < recipe_sections_count; s++) {
		fprintf(file, "## [%s]\n\n", recipe_sections[s].name);
		print_escaped(file, recipe_sections[s].help);
		fputs("\n\n", file);
		for (size_t i = 0; i < recipe_keys_count; i++) {
			const struct recipe_key *key = &recipe_keys[i];
			if (strcmp(key->section, recipe_sections[s].name) != 0)
				continue;
			fputc('*', file);
			print_escaped(file, key->name);
			fputs("* = ", file);
			print_escaped(file, *key->fallback ? key->fallback : "(empty)");
			fputs("\n\t", file);
			print_escaped(file, key->help);
			fputs(" (", file);
			char type[512];
			FILE *memory = fmemopen(type, sizeof(type), "w");
			if (memory) {
				print_type(memory, key);
				fclose(memory);
				print_escaped(file, type);
			}
			fputs(")\n\n", file);
		}
	}
}
