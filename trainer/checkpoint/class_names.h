/*
 * Class names, indexed by class and stored in the metadata of weights as a JSON array of strings.
 * The caller of class_names_read() owns them.
 */
#pragma once

#include <stdint.h>

enum {
	CLASS_NAMES_MAX = 1 << 20
}; /* limit of the JSON array in bytes; weights with a longer one omit the names */

struct class_names {
	uint32_t count;
	const char **name; /* [count] */
	void *array;       /* storage of the names */
};

/*
 * Returns the JSON array, which the caller frees. NULL if there are no names, they are too long,
 * one is not UTF-8, or memory is short.
 */
char *class_names_write(const char *const *names, uint32_t count);
/* -EINVAL if the text is not an array of strings, or is too long. -ENOMEM. */
int class_names_read(const char *text, struct class_names *ret_names);
void class_names_deinit(struct class_names *names);
/*
 * Returns the first class whose names differ between two lists; if there is none, the length of the
 * shorter list. A name that is just the class's number matches any name.
 */
uint32_t class_names_differ(const char *const *a, uint32_t a_count, const char *const *b,
			    uint32_t b_count);
