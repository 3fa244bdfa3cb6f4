#include "loaderd/supervisor/delegated_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MOUNT    "/sys/fs/cgroup"
#define SUBGROUP "supervisor"

/*
 * Reads the cgroup v2 path of this process, from the line "0::PATH". Returns false if there is
 * none.
 */
static bool read_own_path(const char *root, char path[PATH_MAX])
{
	char file_path[PATH_MAX], *line = NULL;
	size_t capacity = 0;
	bool found = false;
	snprintf(file_path, sizeof(file_path), "%s/proc/self/cgroup", root);
	FILE *file = fopen(file_path, "re");
	while (file && !found && getline(&line, &capacity, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		/* "/.." names a cgroup outside the container's view. */
		found = strncmp(line, "0::/", 4) == 0 && !strstr(line, "/..") &&
			strlen(line + 3) < PATH_MAX;
		if (found)
			strcpy(path, line + 3);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

static bool has_attribute(const char *path, const char *name)
{
	char value[2] = "";
	return getxattr(path, name, value, sizeof(value)) == 1 && value[0] == '1';
}

/*
 * Returns whether the service may manage this cgroup. systemd marks delegated cgroups (Delegate=)
 * and chowns them to the service's user, who does not own the parent. In a container, the topmost
 * visible cgroup is its own.
 */
static bool is_delegated(const char *path, bool topmost)
{
	char above[PATH_MAX + 4];
	struct stat own, parent;
	if (topmost || has_attribute(path, "user.delegate") ||
	    has_attribute(path, "trusted.delegate"))
		return true;
	snprintf(above, sizeof(above), "%s/..", path);
	return geteuid() != 0 && stat(path, &own) == 0 && stat(above, &parent) == 0 &&
	       own.st_uid == geteuid() && parent.st_uid != geteuid();
}

/* Returns whether the cgroup holds no process except this one. */
static bool is_ours_alone(int folder)
{
	char text[64];
	int fd = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	char *end;
	return n == 0 || (strtol(text, &end, 10) == (long)getpid() && strcmp(end, "\n") == 0);
}

/* Returns whether the cgroup has at least one controller that is useful for users' cgroups. */
static bool has_controllers(int folder)
{
	char text[256];
	int fd = openat(folder, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
		if (strcmp(word, "cpu") == 0 || strcmp(word, "memory") == 0 ||
		    strcmp(word, "pids") == 0)
			return true;
	return false;
}

static int move_below(int folder)
{
	char text[24];
	const int size = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (mkdirat(folder, SUBGROUP, 0755) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(folder, SUBGROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = write(fd, text, (size_t)size) == size ? 0 : -errno;
	close(fd);
	return r;
}

/* Checks that users' cgroups can be created in this one; if `move`, moves this process below it. */
static int check_group(const char *path, bool topmost, bool move, struct config_error *error)
{
	if (!is_delegated(path, topmost))
		return config_fail(error, -EPERM,
				   "the service's control group, %.400s, is not delegated to it "
				   "(Delegate=cpu memory pids in its unit)",
				   path);
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	if (folder < 0)
		return config_fail(error, -errno, "%.400s: %s", path, strerror(errno));
	if (faccessat(folder, "cgroup.subtree_control", W_OK, AT_EACCESS) < 0 ||
	    faccessat(folder, "cgroup.procs", W_OK, AT_EACCESS) < 0)
		r = config_fail(error, -EACCES, "the service may not write to %.400s: %s", path,
				strerror(errno));
	else if (!has_controllers(folder))
		r = config_fail(error, -ENOENT,
				"%.400s has none of the controllers cpu, memory and pids", path);
	else if (!is_ours_alone(folder))
		r = config_fail(error, -EBUSY, "%.400s contains other processes", path);
	else if (move)
		r = move_below(folder);
	if (r < 0 && error->text[0] == '\0')
		config_say(error, "%.400s: the service cannot move into a group below it: %s", path,
			   strerror(-r));
	close(folder);
	return r;
}

int delegated_cgroup_find(const char *root, char path[PATH_MAX], struct config_error *error)
{
	char own[PATH_MAX], full[PATH_MAX], version[PATH_MAX];
	error->text[0] = '\0';
	snprintf(version, sizeof(version), "%s" MOUNT "/cgroup.controllers", root);
	if (access(version, F_OK) < 0 || !read_own_path(root, own))
		return config_fail(error, -ENOENT, "there is no cgroup v2 hierarchy at " MOUNT);
	char *name = strrchr(own, '/');
	const bool below = strcmp(name, "/" SUBGROUP) == 0;
	if (below)
		*name = '\0';
	int n = snprintf(full, sizeof(full), "%s" MOUNT "%s", root, own);
	if (n < 0 || n >= PATH_MAX)
		return -ENAMETOOLONG;
	int r = check_group(full, strcmp(own, "/") == 0 || own[0] == '\0', !below, error);
	if (r == 0)
		strcpy(path, full);
	return r;
}
