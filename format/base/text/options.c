#include "format/base/text/options.h"

#include "format/base/text/nearest.h"
#include "format/base/text/number.h"
#include "format/base/text/printable.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPTIONS_MAX = 128,
	KNOWN = 1, /* getopt's result for every known option; never '?' */
};

/* Options that argp adds to every program. */
static const struct option added[] = {
	{"help", no_argument, NULL, KNOWN},       {"usage", no_argument, NULL, KNOWN},
	{"version", no_argument, NULL, KNOWN},    {"program-name", required_argument, NULL, KNOWN},
	{"HANG", optional_argument, NULL, KNOWN},
};
enum { ADDED = sizeof(added) / sizeof(added[0]), ADDED_VISIBLE = 3 };

/* Options of an argp, converted for getopt_long(). */
struct table {
	struct option rows[OPTIONS_MAX + ADDED + 1]; /* zero-terminated */
	unsigned count;
	char letters[3 * OPTIONS_MAX + sizeof("?V")];
};

static bool is_end(const struct argp_option *option)
{
	return !option->key && !option->name && !option->doc && !option->group;
}

static void add_letter(struct table *table, const struct argp_option *option)
{
	size_t length = strlen(table->letters);

	if (option->key <= ' ' || option->key > '~')
		return;
	snprintf(table->letters + length, sizeof(table->letters) - length, "%c%s", option->key,
		 !option->arg                          ? ""
		 : option->flags & OPTION_ARG_OPTIONAL ? "::"
						       : ":");
}

static void options_fill(struct table *table, const struct argp_option *options)
{
	*table = (struct table){.letters = "?V"};
	memcpy(table->rows, added, sizeof(added));
	table->count = ADDED;
	for (; !is_end(options) && table->count < OPTIONS_MAX + ADDED; options++) {
		add_letter(table, options);
		if (options->name)
			table->rows[table->count++] = (struct option){
				.name = options->name,
				.has_arg = !options->arg ? no_argument
					   : options->flags & OPTION_ARG_OPTIONAL
						   ? optional_argument
						   : required_argument,
				.val = KNOWN,
			};
	}
}

/*
 * True if some name begins with this prefix: getopt also reports an ambiguous abbreviation as
 * unknown.
 */
static bool begins_one(const struct table *table, const char *name, size_t size)
{
	for (unsigned i = 0; i < table->count; i++)
		if (strncmp(table->rows[i].name, name, size) == 0)
			return true;
	return false;
}

/*
 * Finds an argument that is an unknown option, and returns its name and size. NULL if there is
 * none, or if argp has a better message for it.
 */
static const char *find_unknown(const struct table *table, int argc, char **argv, size_t *ret_size)
{
	const char *name = NULL;
	int found;

	opterr = 0;
	optind = 0;
	do
		found = getopt_long(argc, argv, table->letters, table->rows, NULL);
	while (found != -1 && found != '?');
	if (found == '?' && optopt == 0) {
		name = argv[optind - 1] + 2;
		*ret_size = strcspn(name, "=");
		if (begins_one(table, name, *ret_size))
			name = NULL;
	}
	opterr = 1;
	optind = 1;
	return name;
}

static bool is_hidden(const struct argp_option *options, const char *name)
{
	for (; !is_end(options); options++)
		if (options->name && strcmp(options->name, name) == 0)
			return options->flags & OPTION_HIDDEN;
	return false;
}

static const char *nearest_option(const struct table *table, const struct argp_option *options,
				  const char *name)
{
	struct nearest nearest = nearest_to(name);

	for (unsigned i = 0; i < table->count; i++)
		if ((i < ADDED_VISIBLE || i >= ADDED) && !is_hidden(options, table->rows[i].name))
			nearest_offer(&nearest, table->rows[i].name);
	return nearest.meant;
}

static void options_refuse(const char *program, const char *written, const char *nearest)
{
	printable_line(stderr, "%s: unrecognized option '--%s'%s%s%s", program, written,
		       nearest ? "; did you mean '--" : "", nearest ? nearest : "",
		       nearest ? "'?" : "");
	printable_line(stderr, "Try `%s --help' or `%s --usage' for more information.", program,
		       program);
	exit(argp_err_exit_status);
}

static void options_check(const struct argp *argp, int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	/* Copy argv, because getopt permutes it. */
	char **copy = calloc((size_t)argc + 1, sizeof(*copy)), *written;
	struct table table;
	size_t size;

	if (!copy)
		return;
	memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	options_fill(&table, argp->options);
	const char *name = find_unknown(&table, argc, copy, &size);
	free(copy);
	written = name ? strndup(name, size) : NULL;
	if (written)
		options_refuse(slash ? slash + 1 : argv[0], written,
			       nearest_option(&table, argp->options, written));
	free(written);
}

void options_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	if (argc > 0)
		options_check(argp, argc, argv);
	error_t r = argp_parse(argp, argc, argv, 0, NULL, input);
	if (!r)
		return;
	printable_line(stderr, "%s: %s", program_invocation_short_name, strerror(r));
	exit(argp_err_exit_status);
}

/* The rows of a program while its command line is parsed. */
struct reading {
	const struct options_row *rows;
	const struct argp *rest;
	void *input;
};

enum { KEY_OF_ROW = 0x10000 }; /* key of the first row without an option letter */

static bool is_last(const struct options_row *row)
{
	return !row->name && !row->help && row->kind != OPTIONS_ARGUMENT;
}

static int key_of(const struct reading *reading, const struct options_row *row)
{
	return row->key || !row->name ? row->key : KEY_OF_ROW + (int)(row - reading->rows);
}

static void options_refuse_value(const struct options_row *row, const char *text,
				 struct argp_state *state)
{
	char words[256] = "";

	for (int i = 0; row->words && row->words[i]; i++)
		snprintf(words + strlen(words), sizeof(words) - strlen(words), "%s%s",
			 i ? ", " : "", row->words[i]);
	if (row->refusal)
		argp_error(state, "--%s: \"%s\" %s", row->name, text, row->refusal);
	else if (row->words)
		argp_error(state, "--%s: \"%s\" is none of %s", row->name, text, words);
	else
		argp_error(state, "--%s: \"%s\" is not a whole number from %llu to %llu", row->name,
			   text, (unsigned long long)row->low, (unsigned long long)row->high);
}

/* Returns the index of the text in words, -1 if it is none of them. */
static int which_word(const char *const *words, const char *text)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

/* Stores the value of an option. Returns false if the row does not accept the text. */
static bool options_take(const struct options_row *row, const char *text, void *at)
{
	uint64_t whole;
	double number;
	int word;

	switch (row->kind) {
	case OPTIONS_FLAG:
		*(bool *)at = true;
		return true;
	case OPTIONS_TEXT:
		*(const char **)at = text;
		return true;
	case OPTIONS_U64:
	case OPTIONS_UNSIGNED:
		if (number_u64(text, row->low, row->high, &whole))
			return false;
		if (row->kind == OPTIONS_U64)
			*(uint64_t *)at = whole;
		else
			*(unsigned *)at = (unsigned)whole;
		return true;
	case OPTIONS_BYTES:
		if (number_bytes(text, &whole) || whole < row->low || whole > row->high)
			return false;
		*(uint64_t *)at = whole;
		return true;
	case OPTIONS_DOUBLE:
		if (number_double(text, &number) || !(number >= row->min && number <= row->max))
			return false;
		*(double *)at = number;
		return true;
	default:
		word = which_word(row->words, text);
		if (word < 0)
			return false;
		if (row->kind == OPTIONS_SECOND)
			*(bool *)at = word == 1;
		else
			*(int *)at = word;
		return true;
	}
}

uint64_t options_u64(const char *option, const char *text, uint64_t low, uint64_t high,
		     struct argp_state *state)
{
	const struct options_row row = {option, .kind = OPTIONS_U64, .low = low, .high = high};
	uint64_t value = low;

	if (!options_take(&row, text, &value))
		options_refuse_value(&row, text, state);
	return value;
}

int options_word(const char *option, const char *text, const char *const *words,
		 struct argp_state *state)
{
	const struct options_row row = {option, .kind = OPTIONS_WORD, .words = words};
	int word = 0;

	if (!options_take(&row, text, &word))
		options_refuse_value(&row, text, state);
	return word;
}

/* Handles a non-option argument; at ARGP_KEY_END checks that there was one. */
static bool options_take_argument(const struct reading *reading, int key, const char *text,
				  struct argp_state *state)
{
	const struct options_row *row = reading->rows;

	while (!is_last(row) && row->kind != OPTIONS_ARGUMENT)
		row++;
	if (is_last(row) || (key != ARGP_KEY_ARG && key != ARGP_KEY_END))
		return false;
	const char **at = (const char **)(void *)((char *)reading->input + row->at);
	if (key == ARGP_KEY_END) {
		if (!*at)
			argp_error(state, "no %s given", row->argument);
		return false;
	}
	if (*at)
		argp_error(state, "one %s at a time", row->argument);
	*at = text;
	return true;
}

static error_t parse_rows(int key, char *text, struct argp_state *state)
{
	const struct reading *reading = state->input;

	for (const struct options_row *row = reading->rows; !is_last(row); row++) {
		if (!row->name || row->kind == OPTIONS_OWN || key_of(reading, row) != key)
			continue;
		if (!options_take(row, text, (char *)reading->input + row->at))
			options_refuse_value(row, text, state);
		return 0;
	}
	if (options_take_argument(reading, key, text, state))
		return 0;
	state->input = reading->input;
	return reading->rest->parser ? reading->rest->parser(key, text, state) : ARGP_ERR_UNKNOWN;
}

void options_read(const struct options_row *rows, const struct argp *rest, int argc, char **argv,
		  void *input)
{
	struct reading reading = {rows, rest, input};
	struct argp_option options[OPTIONS_MAX + 1] = {0};
	struct argp argp = *rest;
	unsigned count = 0;

	for (const struct options_row *row = rows; !is_last(row); row++) {
		if (row->kind == OPTIONS_ARGUMENT || count == OPTIONS_MAX)
			continue;
		options[count++] = (struct argp_option){
			.name = row->name,
			.key = key_of(&reading, row),
			.arg = row->argument,
			.flags = row->flags,
			.doc = row->help,
			.group = row->group,
		};
	}
	argp.options = options;
	argp.parser = parse_rows;
	options_parse(&argp, argc, argv, &reading);
}
