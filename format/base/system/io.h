/*
 * Files, whatever the kernel takes or gives at a time and whatever interrupts it. Negative errno;
 * functions without state, any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* All of it, at the descriptor's place or at the offset. */
int io_write(int fd, const void *data, size_t size);
int io_write_at(int fd, const void *data, size_t size, uint64_t offset);
/* How many bytes were read: fewer than size only at the file's end. */
int64_t io_read_at(int fd, void *data, uint64_t size, uint64_t offset);

/*
 * Opens a regular file for reading. -EBADF: it is something else, such as a FIFO that nobody writes
 * to, and is not waited for.
 */
int io_open_regular(const char *path);
/* Closes a descriptor, unless it is negative: there is none. errno stays as it was. */
void io_close(int fd);
/*
 * Closes a file whose writing came to r: with all of it on the disk, if r is 0. Returns r, or what
 * failed.
 */
int io_finish(int fd, int r);
/*
 * A rename is on the disk only once its folder is. Some file systems cannot sync one, and say
 * EINVAL; there is nothing more to be done there.
 */
int io_sync_folder(const char *folder);
