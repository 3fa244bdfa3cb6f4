/*
 * How a worker reads the files that clients pass, by their file system: pages that exist because
 * the worker has read them, and that the kernel cannot reclaim while the client keeps the file, are
 * charged to the service, and no limit of loaderd counts them. proto/SPEC.md, "Files".
 *
 * - tmpfs, and memfds, which lie on one: reading a hole through a mapping allocates a page, pread()
 *   allocates nothing. Holes can be made at any time, so that looking for them first does not help.
 * - ramfs: pread(), too, leaves pages that are never given back. Refused.
 * - overlayfs: any user may mount one over any of these in a user namespace, and nothing shows what
 *   lies below. Accepted only if it is mounted in the daemon's own mount namespace, as the root of
 *   its container is; then read as a tmpfs. Refused otherwise.
 *
 * A daemon that serves one user pays with memory of that user, and maps all files.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Once per process, before threads, and before the sandbox forbids opening files. shared: the
 * daemon serves several users, which is the default until this is called.
 */
void storage_init(bool shared);
/*
 * *ret_mapped: whether these files, of one dataset, may be mapped. -EINVAL: they are not read here;
 * or what fstatfs() says of one. With a sentence that begins with path. Any thread.
 */
int storage_choose(const char *path, const int *fds, uint32_t count, bool *ret_mapped,
		   struct packimg_error *error);
