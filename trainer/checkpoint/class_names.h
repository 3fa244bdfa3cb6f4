/*
 * Class names by number, stored in the metadata of weights as a JSON array of strings. Owned by the
 * reader.
 */
#pragma once

#include <stdint.h>

enum {
	CLASS_NAMES_MAX = 1 << 20
}; /* limit on the array in bytes; weights with longer ones are written without names */

struct class_names {
	uint32_t count;
	const char **name; /* [count] */
	void *array;       /* storage of the names */
};

/*
 * Returns the array, to be freed; NULL if there are no names, they are too long, one is not UTF-8,
 * or out of memory.
 */
char *class_names_write(const char *const *names, uint32_t count);
/* -EINVAL if not an array of strings, or too long. -ENOMEM. */
int class_names_read(const char *text, struct class_names *ret_names);
void class_names_deinit(struct class_names *names);
/*
 * Returns the first class whose names differ between two lists; if none does, the shorter list's
 * count. A name that is just the class's number matches any name.
 */
uint32_t class_names_differ(const char *const *a, uint32_t a_count, const char *const *b,
			    uint32_t b_count);
