/*
 * What is left to the fetcher once it is set up. It holds credentials and parses what stores send:
 * a store that takes it over gets the cache and connections, but no program, no other process, no
 * other file and no other service of the user.
 *
 * Landlock leaves the cache, certificates, the resolver's files and the files of credentials, each
 * by the inode that has its path now. A file that replaces one of them is for the next fetcher.
 * Main thread.
 */
#pragma once

#include "tools/fetch/cache.h"
#include "tools/store/store.h"

#include <sys/types.h>

enum { FETCH_SANDBOX_PATHS_MAX = 32 };

struct fetch_sandbox {
	/* what is accessible by its path, [count], and what had that path; 0: nothing */
	const char *paths[FETCH_SANDBOX_PATHS_MAX];
	dev_t devices[FETCH_SANDBOX_PATHS_MAX];
	ino_t inodes[FETCH_SANDBOX_PATHS_MAX];
	unsigned count;
	char socket_folder[4096];
	char text[128]; /* what it consists of, for people */
};

/*
 * Gives up everything else, in all threads that start from now on. The cache's and the store's
 * texts stay valid as long as *ret_sandbox. socket: removed at the end. Negative errno if the
 * kernel refuses the system call filter. A kernel without Landlock is said in `text`.
 */
int fetch_sandbox_enter(const struct cache *cache, const struct store *store, const char *socket,
			struct fetch_sandbox *ret_sandbox, struct packimg_error *error);
/* Whether another file or folder has one of the paths: what has failed may be had by another
 * fetcher. */
bool fetch_sandbox_outdated(const struct fetch_sandbox *sandbox);
