/* Files that grow by whole records, so that a killed run leaves at most one torn last record. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Opened for reading and appending, made if need be; or a negative errno. The name can be known
 * beforehand, and the folder be everyone's: -ELOOP for a symbolic link, -EBADF for what else is no
 * regular file, and nobody is waited for.
 */
int appended_open(const char *path);
/* What such an error is, for a person. */
const char *appended_why(int r);
/* One write. A record that does not fit leaves nothing of itself. */
int appended_put(int fd, const void *record, size_t size);

#define APPENDED_NO_STEP UINT64_MAX
/*
 * Bytes of a line with its end. The longest are those of samples.jsonl: 65536 numbers
 * (data.batch_size) of up to 19 digits.
 */
enum { APPENDED_LINE_MAX = 1 << 21 };
/*
 * Cuts off, of a file of lines, the first of a step beyond `step` with all that follows, and a torn
 * last line. step_of: that of a line without its end, or APPENDED_NO_STEP, which is cut, too. So is
 * a line that is longer than APPENDED_LINE_MAX or holds zeros: no run wrote it.
 */
int appended_cut(int fd, uint64_t step, uint64_t (*step_of)(const char *line));
