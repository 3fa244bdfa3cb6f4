/*
 * A file that appears under its name either complete or not at all, even if the process is killed,
 * the disk fills up or power fails. Writes to a temporary file in the same folder, PATH.PID.tmp,
 * and syncs it before the rename, so an older file stays intact until then. Embedded in its writer,
 * used by one thread. Two processes need a lock only if one must not overwrite the other's file.
 */
#pragma once

#include <stddef.h>

enum { ATOMIC_FILE_PATH_MAX = 4096 };

struct atomic_file {
	int fd; /* the temporary file, open for writing */
	char path[ATOMIC_FILE_PATH_MAX], temporary[ATOMIC_FILE_PATH_MAX];
};

/* Creates the temporary file. Returns a negative errno on failure; do not close the file then. */
int atomic_file_create(struct atomic_file *file, const char *path);
/* Writes all of data. */
int atomic_file_write(struct atomic_file *file, const void *data, size_t size);
/*
 * Call once for each created file. r is the result of writing. If r is 0, renames the file to its
 * final name; otherwise, or if that fails, removes it. Returns r or the error.
 */
int atomic_file_close(struct atomic_file *file, int r);

/*
 * Checks whether a file could be renamed to path now. Call it before a long computation. -EISDIR if
 * path is a folder; -EPERM if path is another user's file in a folder where only the owner may
 * remove it.
 */
int atomic_file_check(const char *path);

/* Creates, writes and closes a file in one call. */
int atomic_file_put(const char *path, const char *text, size_t size);

/*
 * Returns the length of the final name if name is a temporary file's, which a killed writer may
 * have left behind; otherwise 0.
 */
size_t atomic_file_leftover(const char *name);
