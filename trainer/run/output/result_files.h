/*
 * Files that options name: the results of a search, an evaluation or a trace, outside of the output
 * folder. Rank 0 only. Stateless functions.
 */
#pragma once

#include "trainer/run/context.h"

#include <stdio.h>

/* Checks that the files are writable before the work starts. */
int result_files_check(struct run_context *ctx);
/*
 * Writes a file, `name` followed by `ending`, through print(data, file), atomically; errors name
 * `option`.
 */
int result_file_write(struct run_context *ctx, const char *option, const char *name,
		      const char *ending, void (*print)(const void *data, FILE *file),
		      const void *data);
