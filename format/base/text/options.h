/*
 * Command lines for every program of the house: argp, with options that are rows of a table and
 * write themselves into the program's structure, and with a hint for one that there is not. Reads
 * and writes getopt(3)'s variables, so it is for the main thread, before others begin.
 */
#pragma once

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

/* What an option's text becomes, and as what it is kept. */
enum options_kind {
	OPTIONS_OWN,      /* the program's parser takes it, under its key */
	OPTIONS_FLAG,     /* bool: true */
	OPTIONS_TEXT,     /* const char *: itself */
	OPTIONS_U64,      /* uint64_t: a whole number from low to high */
	OPTIONS_UNSIGNED, /* unsigned: likewise */
	OPTIONS_BYTES,    /* uint64_t: likewise, written as number_bytes() takes it */
	OPTIONS_DOUBLE,   /* double: a number from least to most */
	OPTIONS_WORD,     /* int, or an enum: which of the words it is */
	OPTIONS_SECOND,   /* bool: whether it is the second word */
	OPTIONS_ARGUMENT, /* const char *: what stands without an option, exactly once */
};

struct options_row {
	const char *name;     /* NULL: a heading, or OPTIONS_ARGUMENT */
	int key;              /* its letter; 0: none; of OPTIONS_OWN also a number above 255 */
	const char *argument; /* NULL: it has none */
	const char *help;
	enum options_kind kind;
	size_t at; /* in the program's structure */
	uint64_t low, high;
	double min, max;
	const char *const *words; /* NULL behind the last */
	/* "is not a fraction from 0 to 1"; NULL: made of low and high, or of the words */
	const char *refusal;
	int flags, group; /* argp's */
};

/*
 * The rows end with one of zeros. rest is argp's but for the options; its parser may be NULL, and
 * gets what is not a row's own. What is refused is said on standard error, and ends the program
 * with argp_err_exit_status.
 */
void options_read(const struct options_row *rows, const struct argp *rest, int argc, char **argv,
		  void *input);

/*
 * For OPTIONS_OWN: as the rows' kinds take texts, and refuse them. options_word(): which of the
 * words it is.
 */
uint64_t options_u64(const char *option, const char *text, uint64_t low, uint64_t high,
		     struct argp_state *state);
int options_word(const char *option, const char *text, const char *const *words,
		 struct argp_state *state);

/* As argp_parse() without flags, for options that are argp's. */
void options_parse(const struct argp *argp, int argc, char **argv, void *input);
