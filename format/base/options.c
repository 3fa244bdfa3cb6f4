#include "format/base/options.h"

#include "format/base/nearest.h"
#include "format/base/printable.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPTIONS_MAX = 128,
	KNOWN = 1, /* what getopt returns for every option that there is: never '?' */
};

/* What argp adds to every program. */
static const struct option added[] = {
	{"help", no_argument, NULL, KNOWN},       {"usage", no_argument, NULL, KNOWN},
	{"version", no_argument, NULL, KNOWN},    {"program-name", required_argument, NULL, KNOWN},
	{"HANG", optional_argument, NULL, KNOWN},
};
enum { ADDED = sizeof(added) / sizeof(added[0]), ADDED_VISIBLE = 3 };

/* An argp's options as getopt_long() takes them. */
struct table {
	struct option rows[OPTIONS_MAX + ADDED + 1]; /* the last is zeros */
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

static void fill(struct table *table, const struct argp_option *options)
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

/* getopt says of an abbreviation that fits several that there is none, too. */
static bool begins_one(const struct table *table, const char *name, size_t size)
{
	for (unsigned i = 0; i < table->count; i++)
		if (strncmp(table->rows[i].name, name, size) == 0)
			return true;
	return false;
}

/*
 * The name in an argument that is no option, with its size. NULL: there is none, or one that argp
 * says more of.
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

static void refuse(const char *program, const char *written, const char *nearest)
{
	printable_line(stderr, "%s: unrecognized option '--%s'%s%s%s", program, written,
		       nearest ? "; did you mean '--" : "", nearest ? nearest : "",
		       nearest ? "'?" : "");
	printable_line(stderr, "Try `%s --help' or `%s --usage' for more information.", program,
		       program);
	exit(argp_err_exit_status);
}

static void check(const struct argp *argp, int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *name;
	char **copy = calloc((size_t)argc + 1, sizeof(*copy)), *written; /* getopt sorts it */
	struct table table;
	size_t size;

	if (!copy)
		return;
	memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	fill(&table, argp->options);
	name = find_unknown(&table, argc, copy, &size);
	free(copy);
	written = name ? strndup(name, size) : NULL;
	if (written)
		refuse(slash ? slash + 1 : argv[0], written,
		       nearest_option(&table, argp->options, written));
	free(written);
}

void options_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	error_t r;

	if (argc > 0)
		check(argp, argc, argv);
	r = argp_parse(argp, argc, argv, 0, NULL, input);
	if (!r)
		return;
	printable_line(stderr, "%s: %s", program_invocation_short_name, strerror(r));
	exit(argp_err_exit_status);
}
