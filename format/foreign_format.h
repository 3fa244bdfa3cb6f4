/*
 * What a file is that was given for another: told by its first bytes or by its name, so that a
 * refusal can say what it is and what takes it. Nothing is read by it. Plain functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOREIGN_HEAD = 512 }; /* bytes at most that tell what a file is */

struct foreign {
	const char *what;   /* "a Parquet file" */
	const char *remedy; /* an imperative */
	bool is_source;     /* of packimg convert, or may be one */
};

/* NULL where it is none of these. */
const struct foreign *foreign_format_of_head(const uint8_t *head, size_t size);
const struct foreign *foreign_format_of_name(const char *name);
