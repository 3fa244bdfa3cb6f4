/*
 * The words of the pipeline grammar: steps with their parameters, what kind of value each takes and
 * within which bounds, and what to answer to a name that is none of them. Constant data and pure
 * functions for grammar.c and grammar_set.c; any thread.
 */
#pragma once

#include "loaderd/augment/grammar/steps.h"
#include "loaderd/augment/kernels/effects.h"

enum {
	NAME_MAX_SIZE = 32, /* bytes of a name that count, with the 0 */
	PARAMETERS_MAX = 7,
	NUMBERS_MAX = 4,
};

enum value_type {
	VALUE_NONE,
	VALUE_SIZE,   /* N or WxH, with a schedule */
	VALUE_EXTENT, /* N or WxH */
	VALUE_NUMBER, /* one within limits */
	VALUE_WHOLE,  /* the same, without a fraction */
	VALUE_RANGE,  /* LOW:HIGH within limits */
	VALUE_SPREAD, /* the same, or one number that stands for a range round the neutral value */
	VALUE_COLOUR, /* one number or R:G:B */
	VALUE_PAIR,   /* one number or X:Y */
	VALUE_SHEAR,  /* one number for both ends, LOW:HIGH, or LOW:HIGH:LOW:HIGH */
	VALUE_WORD,   /* one of words */
};

struct parameter {
	const char *key;
	enum value_type type;
	double min, max;
	/*
	 * the choices, separated by '|'; of other types than VALUE_WORD: what may stand in place of
	 * numbers
	 */
	const char *words;
	bool required;
	double otherwise[3]; /* where it is not given: numbers, or which of the words */
	/* Offsets in struct step, 0: none; of what is given, whether a word is, whether anything
	 * is. */
	size_t into, word, given;
};

/* One argument as written. */
struct value {
	int position; /* -1: not given */
	double numbers[NUMBERS_MAX];
	unsigned count;
	char word[NAME_MAX_SIZE]; /* empty where numbers stand, */
	unsigned choice;          /* which of the words it is */
};

/* A step as written, with its arguments in the order of the rule. */
struct call {
	const struct rule *rule;
	const struct value *values;
	struct transform_error *error; /* for what is wrong with them */
};

struct rule {
	const char *name;
	enum step_kind kind;
	struct parameter parameters[PARAMETERS_MAX];
	/*
	 * What values mean beyond their rows: 0, or -EINVAL where they do not go together. NULL:
	 * nothing.
	 */
	int (*set)(const struct call *call, struct step *step);
	enum effect_kind effect; /* of STEP_EFFECT: what it does */
};

extern const struct rule grammar_rules[]; /* ends with one without a name */

/*
 * Puts the values of a step that stands in the list of steps into it, and what stands for those
 * that are not given. Errors of set.
 */
int grammar_set(const struct call *call, struct step *step);
/* The rule of that name, or NULL. */
const struct rule *grammar_find(const char *name);
/* -EINVAL, with the name that was probably meant. */
int grammar_fail_name(struct transform_error *error, int position, const char *name);
int grammar_fail_key(struct transform_error *error, int position, const struct rule *rule,
		     const char *key);
