/*
 * Datasets for tests of format/: writes one with every value of a schema, and opens it. The bytes
 * follow from the dataset's name and the number of the sample. Files are in the folder of
 * fixture.h; a dataset replaces an earlier one of its name.
 */
#pragma once

#include "format/packimg.h"

/* A dataset to write. */
struct made {
	const char *name;
	const char *schema;  /* NULL: implied */
	const char *classes; /* separated by commas; NULL: none */
	uint32_t count;
	uint64_t shard_size;
	int32_t labels;       /* labels are i % labels; none if 0 */
	const char *metadata; /* value of the key "origin", or NULL */
	double mean, std;     /* not recorded if 0 */
};

/* Writes NAME.pimg, and opens it. The caller closes it. */
struct packimg *make(struct made made);
/*
 * Writes NAME.pimg with one sample and without a recorded schema, and opens it. Each field is one
 * digit, its type, then its name.
 */
struct packimg *make_implied(const char *name, const char *const *fields, uint32_t count);
/* Opens the files of an open dataset once more, as "again.pimg". */
struct packimg *reopen(const struct packimg *dataset, bool unmapped);
