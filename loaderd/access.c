#include "access.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13 */
#endif

enum { MAY_SEARCH = 1, MAY_READ = 4 };

int access_peer_init(struct access_peer *peer, int socket)
{
	struct ucred credentials;
	socklen_t size = sizeof credentials;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	*peer = (struct access_peer){credentials.pid, credentials.uid, credentials.gid, 0, {0}};
	size = sizeof peer->groups;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size) == 0)
		peer->group_count = size / sizeof(gid_t);
	return 0;
}

static bool in_group(const struct access_peer *peer, gid_t group)
{
	if (peer->gid == group)
		return true;
	for (unsigned i = 0; i < peer->group_count; i++)
		if (peer->groups[i] == group)
			return true;
	return false;
}

static bool permitted(const struct access_peer *peer, const struct stat *status, bool listed,
		      unsigned wanted)
{
	unsigned bits;
	if (peer->uid == 0)
		return true;
	if (peer->uid == status->st_uid)
		bits = status->st_mode >> 6;
	else if (!listed && in_group(peer, status->st_gid))
		bits = status->st_mode >> 3;
	else if (listed && in_group(peer, status->st_gid))
		return false;
	else
		bits = status->st_mode;
	return (bits & wanted) == wanted;
}

/* fd may be O_PATH, which the plain xattr calls refuse. */
static bool has_access_list(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return getxattr(path, "system.posix_acl_access", NULL, 0) > 0;
}

static bool under_allowed(const struct config *config, const char *path)
{
	for (uint64_t i = 0; i < config->allow_count; i++) {
		size_t length = strlen(config->allow[i]);
		if (strncmp(path, config->allow[i], length) == 0 &&
		    (path[length] == '/' || path[length] == '\0' || length == 1))
			return true;
	}
	return false;
}

/* Our own user: the kernel has judged, or will, when we open the file. */
static bool same_user(const struct access_peer *peer)
{
	return peer->uid == geteuid();
}

bool access_is_own(const struct access_peer *peer)
{
	return peer->uid == 0 || same_user(peer);
}

int access_check_writable(const struct config *config, const struct access_peer *peer,
			  char error[ACCESS_ERROR_MAX])
{
	if (config->writable_rings == CONFIG_WRITABLE_ALL ||
	    (config->writable_rings == CONFIG_WRITABLE_OWN && access_is_own(peer)))
		return 0;
	snprintf(error, ACCESS_ERROR_MAX,
		 "user %u may not map a ring writable; do without, or set writable_rings = %s in "
		 "the [access] section of loaderd.conf",
		 (unsigned)peer->uid, access_is_own(peer) ? "own" : "all");
	return -EPERM;
}

static int refuse(const char *path, const struct access_peer *peer, char error[ACCESS_ERROR_MAX])
{
	snprintf(error, ACCESS_ERROR_MAX,
		 "%.200s: user %u may not read it; change its permissions, or add an allow line to "
		 "the [access] section of loaderd.conf",
		 path, (unsigned)peer->uid);
	return -EACCES;
}

/* Walks a canonical path from the root without following links; every directory must be searchable, the last component is left to wanted_last. */
static int check_way(const struct access_peer *peer, const char *path, unsigned wanted_last,
		     char error[ACCESS_ERROR_MAX])
{
	char part[PATH_MAX];
	int directory = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return -errno;
	int r = 0;
	const char *at = path;
	for (;;) {
		struct stat status;
		while (*at == '/')
			at++;
		if (fstat(directory, &status) < 0) {
			r = -errno;
			break;
		}
		unsigned wanted = *at != '\0' ? MAY_SEARCH : wanted_last;
		if (S_ISDIR(status.st_mode))
			wanted |= MAY_SEARCH;
		if (!permitted(peer, &status, has_access_list(directory), wanted)) {
			r = refuse(path, peer, error);
			break;
		}
		if (*at == '\0')
			break;
		size_t length = strcspn(at, "/");
		if (length >= sizeof part) {
			r = -ENAMETOOLONG;
			break;
		}
		memcpy(part, at, length);
		part[length] = '\0';
		at += length;
		int next = openat(directory, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0) {
			r = -errno;
			snprintf(error, ACCESS_ERROR_MAX, "%.400s: %s", path, strerror(errno));
			break;
		}
		close(directory);
		directory = next;
	}
	close(directory);
	return r;
}

/* A set's own name does not exist as a file: its directory's canonical path and the name. */
static char *resolve_set(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	char *resolved = directory == NULL ? NULL : realpath(directory, NULL);
	free(directory);
	char *whole = NULL;
	if (resolved != NULL &&
	    asprintf(&whole, "%s%s", strcmp(resolved, "/") == 0 ? "" : resolved, slash) < 0)
		whole = NULL;
	free(resolved);
	return whole;
}

int access_resolve(const struct config *config, const struct access_peer *peer, const char *path,
		   char **ret_path, char error[ACCESS_ERROR_MAX])
{
	if (path[0] != '/') {
		snprintf(error, ACCESS_ERROR_MAX, "\"%.200s\" is not an absolute path", path);
		return -EINVAL;
	}
	bool is_set = false;
	char *resolved = realpath(path, NULL);
	if (resolved == NULL && errno == ENOENT) {
		resolved = resolve_set(path);
		is_set = true;
	}
	if (resolved == NULL) {
		/* Whether a file exists in a directory that the client cannot see is not told either. */
		int r = errno == ENOENT ? -ENOENT : errno == ENOMEM ? -ENOMEM : -EACCES;
		snprintf(error, ACCESS_ERROR_MAX, "%.300s: %s; the daemon must be able to reach it",
			 path, strerror(-r));
		return r;
	}
	int r = 0;
	if (!same_user(peer) && !under_allowed(config, resolved)) {
		if (is_set) {
			char *slash = strrchr(resolved, '/');
			*slash = '\0';
			r = check_way(peer, resolved[0] == '\0' ? "/" : resolved, MAY_SEARCH,
				      error);
			*slash = '/';
		} else {
			r = check_way(peer, resolved, MAY_READ, error);
		}
	}
	if (r < 0) {
		free(resolved);
		return r;
	}
	*ret_path = resolved;
	return 0;
}

int access_check_opened(const struct config *config, const struct access_peer *peer,
			const struct packimg *dataset, char error[ACCESS_ERROR_MAX])
{
	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++) {
		struct packimg_shard shard;
		struct stat status;
		if (packimg_shard(dataset, i, &shard) < 0 || fstat(shard.fd, &status) < 0)
			return -EIO;
		if (same_user(peer) || under_allowed(config, shard.path))
			continue;
		if (!permitted(peer, &status, has_access_list(shard.fd), MAY_READ))
			return refuse(shard.path, peer, error);
	}
	return 0;
}
