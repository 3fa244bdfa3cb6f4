/*
 * Append-only files of records. Each record is appended with one write, so a killed run leaves at
 * most one torn record, the last.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Opens for reading and appending; creates the file if needed. Returns a descriptor or a negative
 * errno. Safe in shared folders such as /tmp: -ELOOP for a symbolic link, -EBADF for anything else
 * that is not a regular file; never blocks on a FIFO.
 */
int append_file_open(const char *path);
/* Error string for a negative errno returned by these functions. */
const char *append_file_error(int r);
/* Appends a record, with a single write if possible. On failure, removes a partial record. */
int append_file_write(int fd, const void *record, size_t size);

#define APPEND_FILE_NO_STEP UINT64_MAX
/*
 * Maximum length of a line in bytes, including the newline. The longest lines are in samples.jsonl:
 * 65536 numbers (data.batch_size) of up to 19 digits.
 */
enum { APPEND_FILE_LINE_MAX = 1 << 21 };
/*
 * Truncates a file of lines before the first line that is torn, longer than APPEND_FILE_LINE_MAX,
 * contains NUL bytes or has a step beyond `step`. step_of() returns the step of a line without its
 * newline, or APPEND_FILE_NO_STEP, which truncates as well.
 */
int append_file_truncate(int fd, uint64_t step, uint64_t (*step_of)(const char *line));
