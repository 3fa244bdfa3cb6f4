/*
 * Builds names of new files from untrusted names. Bytes that printable.h would escape (control
 * characters, invalid UTF-8, direction and format marks), '/' and NUL become %XX with upper-case
 * hexadecimal digits, as in a URL. So does a '%' followed by two hexadecimal digits. All other
 * names stay as they are, and the encoding is reversible. Pure functions, any thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stddef.h>

enum {
	FILE_NAME_MAX = 255, /* bytes, NAME_MAX on Linux */
};

/* Appends the escaped name of a file or folder. 0 or -ENOMEM. */
int file_name_append(struct buffer *path, const char *name, size_t size);
