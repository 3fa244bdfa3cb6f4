/*
 * The manifest of packimg extract: a CSV table of the samples, which packimg convert reads. Lists
 * of classes of samples without labels are written with the names of the classes, as convert reads
 * several labels in a cell. Main thread only.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct extract_manifest {
	const struct packimg *dataset;
	const uint64_t *samples; /* indices */
	uint64_t count;
	uint32_t files;           /* per sample: 1 + the number of further images */
	const char *const *paths; /* `files` for each sample; NULL for a file that is not written */
	uint64_t damaged;         /* values that were left out */
	/* internal: */
	bool has_lists;     /* there are lists of classes, and no columns of labels */
	struct buffer text; /* of a value */
};

/* Writes the table; errors of writing are those of the file. Reports and counts damaged values. */
void extract_manifest_write(struct extract_manifest *manifest, FILE *file);
