/*
 * A file that appears under its name complete or not at all, whenever the process is killed, the
 * disk is full or the machine loses power: it is written under a temporary name beside it,
 * PATH.PID.tmp, and on the disk before it gets its own, in place of an older one, which until then
 * stays as it was. Embedded in its writer, used by one thread; two processes need a lock between
 * them only where one must not undo what the other wrote.
 */
#pragma once

#include <stddef.h>

enum { ATOMIC_FILE_PATH_MAX = 4096 };

struct atomic_file {
	int fd; /* to write to */
	char path[ATOMIC_FILE_PATH_MAX], temporary[ATOMIC_FILE_PATH_MAX];
};

/* Negative errno; there is nothing to abandon then. */
int atomic_file_create(struct atomic_file *file, const char *path);
/* All of it. */
int atomic_file_write(struct atomic_file *file, const void *data, size_t size);
/*
 * Once, of a file that was created: gives it its name, if r, what writing it came to, is 0; else,
 * or when that fails, removes it. Returns r, or what failed.
 */
int atomic_file_close(struct atomic_file *file, int r);

/*
 * Whether a file could get that name now, for what is computed long before it is written: -EISDIR:
 * it is a folder's; -EPERM: it is another user's file's, in a folder where only they may remove it.
 */
int atomic_file_check(const char *path);

/* All three, of a text. */
int atomic_file_put(const char *path, const char *text, size_t size);

/*
 * Of a name that a writer that was killed may have left: the length of the one that the file was to
 * get; 0 of others.
 */
size_t atomic_file_leftover(const char *name);
