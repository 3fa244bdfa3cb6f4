/*
 * Recognises foreign file formats by their first bytes or by name, so that an error message can say
 * which format a file has and which program reads it. Performs no I/O. Pure functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOREIGN_HEAD = 512 }; /* bytes needed to recognise a file, at most */

struct foreign {
	const char *what;   /* "a Parquet file" */
	const char *remedy; /* a sentence in the imperative */
	bool is_source;     /* packimg convert accepts it, or may accept it as a source */
};

/* Both return NULL if the format is unknown. */
const struct foreign *foreign_format_of_head(const uint8_t *head, size_t size);
const struct foreign *foreign_format_of_name(const char *name);
