/*
 * Sections `members` and `sizes` of a file (SPEC.md), which a writer derives from the file's index:
 * it reads back what it has written. Each takes one pass over the index. Memory does not depend on
 * the number of samples, but for eight bytes for each 64 KiB in a temporary file (spool.h): members
 * takes 8 bytes a class and at most 33 MiB, and the temporary file 4, 12 or 20 bytes a sample (up
 * to 2^8, 2^16 or 2^24 classes).
 */
#pragma once

#include "format/layout.h"
#include "format/write/output.h"

/* A file that is being written. */
struct hint_source {
	const char *directory; /* for the temporary file */
	uint64_t index_offset; /* of the index, which must have been flushed */
	uint64_t sample_count;
	uint32_t class_count;
};

/*
 * Appends the sections that the file does not have, and adds them to its table: `members` if there
 * are classes and not too many samples, and `sizes`. Reads the index from output->fd. -EBADMSG if a
 * label is not a class.
 */
int hint_sections_write(const struct hint_source *source, struct output *output,
			struct pimg_section *sections, uint32_t *section_count);
