/*
 * Result files that options name: of a search, an evaluation or a trace. They are independent of
 * the output folder. Rank 0 only. Stateless functions.
 */
#pragma once

#include "trainer/run/context.h"

#include <stdio.h>

/* Checks that the files are writable before the work starts. */
int result_files_check(struct run_context *ctx);
/*
 * Writes the file `name` followed by `ending`, with the output of print(data, file), atomically.
 * Errors name `option`.
 */
int result_file_write(struct run_context *ctx, const char *option, const char *name,
		      const char *ending, void (*print)(const void *data, FILE *file),
		      const void *data);
