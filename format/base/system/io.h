/*
 * File I/O that retries short transfers and interrupted calls. Returns a negative errno on failure;
 * stateless, any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Write all of data, at the file position or at the offset. */
int io_write(int fd, const void *data, size_t size);
int io_write_at(int fd, const void *data, size_t size, uint64_t offset);
/* Returns the number of bytes read, less than size only at end of file. */
int64_t io_read_at(int fd, void *data, uint64_t size, uint64_t offset);

/*
 * Opens a regular file for reading. Returns -EBADF for anything else, such as a FIFO, without
 * blocking.
 */
int io_open_regular(const char *path);
/*
 * Opens the file, which it makes if there is none, and locks it (flock) as long as the descriptor
 * is open. -EWOULDBLOCK while another description has the lock.
 */
int io_lock(const char *path);
/* Closes fd unless it is negative. Preserves errno. */
void io_close(int fd);
/*
 * Closes a file after writing. r is the result of writing; if it is 0, syncs the file first.
 * Returns r or the error.
 */
int io_finish(int fd, int r);
/*
 * Syncs a folder, which makes a rename in it durable. Ignores EINVAL, which file systems return
 * that cannot sync a folder.
 */
int io_sync_folder(const char *folder);
