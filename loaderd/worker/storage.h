/*
 * Chooses how a worker reads files that clients pass, by file system. Page cache that a worker's
 * reads create, and that the kernel cannot reclaim while the client keeps the file, is charged to
 * the service, and no limit of loaderd counts it. proto/SPEC.md, "Files".
 *
 * - tmpfs, including memfds: reading a hole through a mapping allocates a page, pread() does not.
 *   Holes can be punched at any time, so checking for them first does not help. Read with pread().
 * - ramfs: even pread() leaves pages that are never reclaimed. Refused.
 * - overlayfs: any user may mount one over either of these in a user namespace, and the layers
 *   below are not visible. Accepted only if it is mounted below the daemon's root directory, in its
 *   own mount namespace, as a container's root is, and then read like tmpfs. Otherwise refused.
 *
 * A daemon that serves a single user uses that user's memory anyway, and maps all files.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Call it once per process, before threads start and before the sandbox forbids opening files.
 * shared: the daemon serves several users; this is the default until the call.
 */
void storage_init(bool shared);
/*
 * Checks the files of one dataset. *ret_mapped: whether they may be mapped. Returns -EINVAL if they
 * are refused, or the -errno of fstatfs(), with a sentence that begins with path. Any thread.
 */
int storage_choose(const char *path, const int *fds, uint32_t count, bool *ret_mapped,
		   struct packimg_error *error);
