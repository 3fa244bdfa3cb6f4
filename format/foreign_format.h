/*
 * Recognises foreign file formats by their first bytes or by file name, so that an error message
 * can say which format a file has and which program reads it. Performs no I/O. Pure functions, any
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOREIGN_HEAD = 512 }; /* maximum number of bytes needed to recognise a file */

struct foreign {
	const char *what;   /* the format with its article, such as "a Parquet file" */
	const char *remedy; /* what the user can do, an imperative sentence */
	bool is_source;     /* packimg convert accepts this format, or may accept it */
};

/* Both return NULL if the format is unknown. */
const struct foreign *foreign_format_of_head(const uint8_t *head, size_t size);
const struct foreign *foreign_format_of_name(const char *name);
