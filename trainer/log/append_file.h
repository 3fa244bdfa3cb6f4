/*
 * Append-only files of records, each written at once, so that a killed run leaves at most one torn
 * record, at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Opens for reading and appending, creates if needed; or a negative errno. Safe in shared folders
 * such as /tmp: -ELOOP for a symbolic link, -EBADF for anything else but a regular file, and never
 * blocks (FIFOs).
 */
int append_file_open(const char *path);
/* Error text for people. */
const char *append_file_error(int r);
/* Appends a record, with one write if possible; on failure removes what was written of it. */
int append_file_write(int fd, const void *record, size_t size);

#define APPEND_FILE_NO_STEP UINT64_MAX
/*
 * Maximal line length in bytes, including the newline. The longest lines are those of
 * samples.jsonl: 65536 numbers (data.batch_size) of up to 19 digits.
 */
enum { APPEND_FILE_LINE_MAX = 1 << 21 };
/*
 * Truncates a file of lines at the first line of a step beyond `step`, and drops a torn last line.
 * step_of gets a line without its newline; APPEND_FILE_NO_STEP truncates as well. So does a line
 * longer than APPEND_FILE_LINE_MAX or with NUL bytes, which no run writes.
 */
int append_file_truncate(int fd, uint64_t step, uint64_t (*step_of)(const char *line));
