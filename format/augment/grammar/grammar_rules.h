/*
 * Vocabulary of the pipeline grammar: the transforms and their parameters, the type and bounds of
 * each value, and error messages for unknown names. Constant data and pure functions for grammar.c
 * and grammar_set.c; any thread.
 */
#pragma once

#include "format/augment/grammar/transforms.h"
#include "format/augment/kernels/effects.h"

enum {
	NAME_MAX_SIZE = 32, /* significant bytes of a name, terminator included */
	PARAMETERS_MAX = 7,
	NUMBERS_MAX = TRANSFORM_LIST_MAX,
	DEFAULTS_MAX = 7,
};

enum value_type {
	VALUE_NONE,
	VALUE_SIZE,   /* N or WxH, with an optional schedule */
	VALUE_EXTENT, /* N or WxH */
	VALUE_NUMBER, /* one number within limits */
	VALUE_WHOLE,  /* one whole number within limits */
	VALUE_RANGE,  /* LOW:HIGH within limits */
	VALUE_SPREAD, /* LOW:HIGH, or one number for a range around the neutral value */
	VALUE_COLOUR, /* one number or R:G:B */
	VALUE_PAIR,   /* one number or X:Y */
	VALUE_LIST,   /* NUMBER { ":" NUMBER }, at most TRANSFORM_LIST_MAX */
	VALUE_SHEAR,  /* one number for +-N, LOW:HIGH, or LOW:HIGH:LOW:HIGH */
	VALUE_WORD,   /* one of `words` */
};

struct parameter {
	const char *key;
	enum value_type type;
	double min, max;
	const char *hint; /* remedy for a number out of bounds; may be NULL */
	/*
	 * Allowed words, separated by '|'. For types other than VALUE_WORD: words allowed instead
	 * of numbers.
	 */
	const char *words;
	bool required;
	double otherwise[DEFAULTS_MAX]; /* default value: numbers, or the index of a word */
	unsigned otherwise_count;       /* how many of them a VALUE_LIST has */
	/*
	 * Offsets in struct transform, 0 if unused: of the value, of a flag set if a word is given,
	 * and of a flag set if anything is given.
	 */
	size_t into, word, given;
};

/* One argument as written. */
struct value {
	int position; /* -1 if not given */
	double numbers[NUMBERS_MAX];
	unsigned count;
	char word[NAME_MAX_SIZE]; /* empty if numbers are given */
	unsigned choice;          /* index of the word */
};

/* A transform as written. The values are in the order of the rule's parameters. */
struct call {
	const struct rule *rule;
	const struct value *values;
	struct pipeline_error *error; /* receives errors in the values */
};

struct rule {
	const char *name;
	enum transform_kind kind;
	struct parameter parameters[PARAMETERS_MAX];
	/*
	 * Handles what the parameter rows cannot express; may be NULL. Returns -EINVAL if the
	 * values conflict.
	 */
	int (*set)(const struct call *call, struct transform *transform);
	enum effect_kind effect; /* the effect of a TRANSFORM_EFFECT */
};

extern const struct rule grammar_rules[]; /* ends with a rule without a name */

/*
 * Stores a call's values, or their defaults, in `transform`. For all transforms except those that
 * set the format (normalize, to, layout, channels). Returns the errors of rule->set.
 */
int grammar_set(const struct call *call, struct transform *transform);
/* Returns the rule of that name, or NULL. */
const struct rule *grammar_find(const char *name);
/* Return -EINVAL with a message that suggests the most similar name. */
int grammar_fail_name(struct pipeline_error *error, int position, const char *name);
int grammar_fail_key(struct pipeline_error *error, int position, const struct rule *rule,
		     const char *key);
