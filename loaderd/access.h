/*
 * May this client have this file read for it? A daemon must not show anyone what he could not open himself. A client may use
 * paths under a configured prefix, and files that its own credentials can read: directories on the way are searchable and the files
 * readable for it by owner, group or others. A file with an access list is judged by its mode bits as the kernel shows them, minus the
 * group's bits, which are the list's mask then. And may it write into its ring? Any thread. loaderd(1), ACCESS.
 */
#pragma once

#include "config.h"
#include "packimg.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { ACCESS_GROUPS_MAX = 256, ACCESS_ERROR_MAX = 512 };

struct access_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	unsigned group_count;
	gid_t groups[ACCESS_GROUPS_MAX]; /* supplementary; those beyond the maximum are not considered */
};

/* Credentials that a connected Unix socket had when it connected. */
int access_peer_init(struct access_peer *peer, int socket);
/*
 * Canonical path in *ret_path (the caller frees it), after checking the way to it. A path that does not exist may still name a set of
 * shards, whose directory is checked then. -EACCES, -ENOENT, -EINVAL (not absolute) with a sentence in error.
 */
int access_resolve(const struct config *config, const struct access_peer *peer, const char *path,
		   char **ret_path, char error[ACCESS_ERROR_MAX]);
/* Root, and the user that the daemon runs as: they may do anything to it in other ways. */
bool access_is_own(const struct access_peer *peer);
/* -EPERM with a sentence in error, where [access] writable_rings says so. */
int access_check_writable(const struct config *config, const struct access_peer *peer, char error[ACCESS_ERROR_MAX]);
/* The files that were opened in the end are readable for the client: what the path led to meanwhile does not matter then. */
int access_check_opened(const struct config *config, const struct access_peer *peer,
			const struct packimg *dataset, char error[ACCESS_ERROR_MAX]);
