/*
 * What a file says of its fields beside names and types (SPEC.md, "Traits"): how long values are at
 * most, and which bytes are text. Written for every dataset that has fields or sources; a file of
 * an earlier version has none, and nothing is known then. Whoever wrote the file can say anything:
 * readers hold every value against it.
 */
#pragma once

#include "format/reader.h"

/* After the fields were read: takes types and lengths over into the dataset. */
int traits_read(struct packimg *dataset, int fd, const char *name, const struct pimg_header *header,
		struct packimg_error *error);

/* What all samples of a dataset turned out to have. */
struct traits_found {
	uint64_t source_longest;
	uint64_t longest[PACKIMG_FIELDS_MAX];
};

/* -EBADMSG when the lengths that are recorded are not those of any value. */
int traits_check(const struct packimg *dataset, const struct traits_found *found,
		 struct packimg_error *error);
