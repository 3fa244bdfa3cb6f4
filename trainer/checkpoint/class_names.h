/*
 * Names of classes by their numbers, and as weights keep them in their metadata: a JSON array of
 * texts. Owned by whoever read them.
 */
#pragma once

#include <stdint.h>

enum {
	CLASS_NAMES_MAX = 1 << 20
}; /* bytes of the array, above which weights are written without */

struct class_names {
	uint32_t count;
	const char **name; /* [count] */
	void *array;       /* that the names are in */
};

/* To be freed. NULL: there are none, they are too long, one is not UTF-8, or memory is out. */
char *class_names_write(const char *const *names, uint32_t count);
/* -EINVAL: not an array of texts, or too long a one. -ENOMEM. */
int class_names_read(const char *text, struct class_names *ret_names);
void class_names_deinit(struct class_names *names);
/*
 * The first class that two lists name differently; the shorter's count if there is none. Where
 * labels were given as numbers, the number is all that there is of a name, and fits its class under
 * any.
 */
uint32_t class_names_differ(const char *const *a, uint32_t a_count, const char *const *b,
			    uint32_t b_count);
