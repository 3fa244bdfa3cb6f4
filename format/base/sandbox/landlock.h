/*
 * Landlock: a process gives up all access to files but those that it names (Linux,
 * Documentation/userspace-api/landlock.rst). Rules hold for the file or folder that has the path
 * when they are made; another one of that name is not accessible. Open descriptors stay usable.
 *
 * Needs no_new_privs (PR_SET_NO_NEW_PRIVS). Before ABI 8 only the calling thread is restricted, and
 * those that it starts: call it before threads start.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum landlock_access {
	LANDLOCK_READ,   /* files, and lists of folders */
	LANDLOCK_WRITE,  /* and to make, change and remove them */
	LANDLOCK_REMOVE, /* only to remove files */
};

struct landlock_path {
	const char
		*path; /* a folder stands for all below it; a path that does not exist is skipped */
	enum landlock_access access;
};

/*
 * Denies everything but `paths`, [count]. connect: whether TCP connections are left; the process
 * can never listen. Returns the ABI, 0 if the kernel has no Landlock, or a negative errno.
 */
int landlock_restrict(const struct landlock_path *paths, size_t count, bool connect);
