/*
 * How a worker reads the files that clients pass, by the file system that they lie on: pages that
 * exist because the worker has read, and that the kernel cannot take back while the client keeps
 * the file, are charged to the service and counted by nobody. proto/SPEC.md, "Files".
 *
 * - tmpfs, and memfds, which lie on one: reading a hole through a mapping allocates a page, pread()
 *   allocates nothing. Holes can be made at any time, so that looking for them first does not help.
 * - ramfs: pread(), too, leaves pages that are never given back. Refused.
 * - overlayfs: any user may mount one over any of these in a user namespace, and nothing shows what
 *   lies below. Taken from the administrator alone: one that is mounted where the daemon sees it,
 *   as the root of its own container is; it is read as a tmpfs.
 *
 * A daemon that serves one user pays with memory of that user, and maps all files.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Once per process, before threads and before the sandbox, which opens nothing. shared: this
 * daemon serves several users; so it is taken until this is called.
 */
void storage_init(bool shared);
/*
 * *ret_mapped: whether these files, of one dataset, may be mapped. -EINVAL: they are not read here;
 * or what fstatfs() says of one. With a sentence that begins with path. Any thread.
 */
int storage_choose(const char *path, const int *fds, uint32_t count, bool *ret_mapped,
		   struct packimg_error *error);
