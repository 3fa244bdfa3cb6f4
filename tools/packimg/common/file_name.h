/*
 * Names of new files, made of names that strangers wrote. What printable.h would not show as it is
 * (control characters, bytes that are not UTF-8, marks of direction and format), '/' and NUL become
 * %XX for each byte, with capital hexadecimal digits, as in a URL; so does a '%' that two
 * hexadecimal digits follow. Every other name stays as it is, and unescaping gives back each. Pure
 * functions, any thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stddef.h>

enum {
	FILE_NAME_MAX = 255, /* bytes that file systems take, NAME_MAX of Linux */
};

/* Appends the name of a file or folder, escaped. 0 or -ENOMEM. */
int file_name_append(struct buffer *path, const char *name, size_t size);
