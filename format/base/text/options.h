/*
 * Command line parsing for all programs: argp with a table of options. Each row stores its value in
 * the program's structure, and an unknown option gets a suggestion. Uses the global variables of
 * getopt(3): call it on the main thread, before starting others.
 */
#pragma once

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

/* Type of an option, and C type of its value. */
enum options_kind {
	OPTIONS_OWN,      /* handled by the program's parser under its key */
	OPTIONS_FLAG,     /* bool, set to true */
	OPTIONS_TEXT,     /* const char *, the argument itself */
	OPTIONS_U64,      /* uint64_t, an integer from low to high */
	OPTIONS_UNSIGNED, /* unsigned, an integer from low to high */
	OPTIONS_BYTES,    /* uint64_t from low to high, in the syntax of number_bytes() */
	OPTIONS_DOUBLE,   /* double, a number from min to max */
	OPTIONS_WORD,     /* int or enum, the index in `words` */
	OPTIONS_SECOND,   /* bool, true for the second of `words` */
	OPTIONS_ARGUMENT, /* const char *, the one required non-option argument */
};

struct options_row {
	const char *name;     /* NULL for a heading or OPTIONS_ARGUMENT */
	int key;              /* option letter or 0; for OPTIONS_OWN also a number above 255 */
	const char *argument; /* name of the argument in the help; NULL if the option takes none */
	const char *help;
	enum options_kind kind;
	size_t at; /* offset of the value in the program's structure */
	uint64_t low, high;
	double min, max;
	const char *const *words; /* NULL-terminated */
	/*
	 * error text such as "is not a fraction from 0 to 1"; if NULL, the text is built from low
	 * and high, or from words
	 */
	const char *refusal;
	int flags, group; /* as in struct argp_option */
};

/*
 * Parses the command line into input. A zeroed row ends the table. rest provides the other fields
 * of struct argp; its parser (may be NULL) receives the keys that no row handles. On an error,
 * writes it to standard error and exits with argp_err_exit_status.
 */
void options_read(const struct options_row *rows, const struct argp *rest, int argc, char **argv,
		  void *input);

/*
 * Parse a value for OPTIONS_OWN, with the errors of the other option types. options_word() returns
 * the index in words.
 */
uint64_t options_u64(const char *option, const char *text, uint64_t low, uint64_t high,
		     struct argp_state *state);
int options_word(const char *option, const char *text, const char *const *words,
		 struct argp_state *state);

/* Like argp_parse() without flags, for options declared as struct argp_option. */
void options_parse(const struct argp *argp, int argc, char **argv, void *input);
