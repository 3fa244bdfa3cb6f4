/*
 * Descriptions of the pipelines' transforms for users, for programs that list them. Made from the
 * rows of grammar/transform_rows.h and kernels/effect_rows.h, without the code that runs
 * transforms: linked separately (transform_list_dep). Constant; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { TRANSFORM_ARGUMENTS_MAX = 7, TRANSFORM_DEFAULT_MAX = 32 };

struct transform_argument {
	const char *name;
	const char *
		form; /* notation of numbers, such as "LOW:HIGH"; empty if only words are allowed */
	double min, max;   /* of each number; both 0 if form is empty */
	const char *words; /* separated by '|', instead of numbers; may be empty */
	bool required;
	/* the default as in loaderd(1); empty if the argument or one of its alternatives is
	 * required */
	char otherwise[TRANSFORM_DEFAULT_MAX];
};

struct transform_entry {
	const char *name;
	const char *text; /* what it does: one sentence */
	size_t argument_count;
	struct transform_argument arguments[TRANSFORM_ARGUMENTS_MAX];
};

/* Writes entry i, in the order of the tables; false if there is none. */
bool transform_list_get(size_t i, struct transform_entry *ret_entry);
