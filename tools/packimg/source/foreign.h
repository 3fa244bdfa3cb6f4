/*
 * Files that hold images or labels in forms that packimg does not read, told by their first bytes
 * or by their names, so that a refusal can say what they are and what takes them. No state, any
 * thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FOREIGN_HEAD = 64 }; /* bytes at most that tell what a file is */

struct foreign {
	const char *what;   /* "a Parquet file" */
	const char *remedy; /* an imperative */
};

/* Both NULL where it is none of these. The head is of size bytes, at most FOREIGN_HEAD. */
const struct foreign *foreign_of_head(const uint8_t *head, size_t size);
const struct foreign *foreign_of_name(const char *name);
