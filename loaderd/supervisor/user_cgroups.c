#include "loaderd/supervisor/user_cgroups.h"

#include "loaderd/supervisor/delegated_cgroup.h"
#include "loaderd/worker_ipc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	NAME_MAX_BYTES = 64,
	/* cgroups kept after their users left; beyond this, empty ones are removed */
	KEPT_MAX = 1024,
};
/* Memory that may stay charged only to the ancestors when a cgroup is removed. */
#define REMOVED_BYTES_MAX (UINT64_C(1) << 20)
#define USER_PREFIX       "user-"

static int write_text(int folder, const char *name, const char *text)
{
	const size_t size = strlen(text);
	int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int r = write(fd, text, size) == (ssize_t)size ? 0 : -errno;
	close(fd);
	return r;
}

static int write_number(int folder, const char *name, int64_t number)
{
	char text[24];
	snprintf(text, sizeof(text), "%" PRId64 "\n", number);
	return write_text(folder, name, text);
}

/*
 * Enables controllers for child cgroups, one at a time: a missing one would fail the whole write.
 * Failures are ignored, since a controller may be enabled already.
 */
static void enable_controllers(int folder)
{
	static const char *const words[] = {"+cpu", "+memory", "+pids"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		(void)write_text(folder, "cgroup.subtree_control", words[i]);
}

/* Creates and removes a trial cgroup to find out which controllers are available in it. */
static int try_out(struct user_cgroups *cgroups, int folder)
{
	static const char name[] = "trial";
	if (mkdirat(folder, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	cgroups->weights = faccessat(folder, "trial/cpu.weight.nice", W_OK, AT_EACCESS) == 0;
	cgroups->memory = faccessat(folder, "trial/memory.max", W_OK, AT_EACCESS) == 0;
	cgroups->threads = faccessat(folder, "trial/pids.max", W_OK, AT_EACCESS) == 0;
	unlinkat(folder, name, AT_REMOVEDIR);
	return cgroups->weights || cgroups->memory || cgroups->threads ? 0 : -ENOENT;
}

static int groups_use(struct user_cgroups *cgroups, const char *path, struct config_error *error)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
	if (r == 0) {
		enable_controllers(fd);
		r = try_out(cgroups, fd);
	}
	if (r == 0) {
		cgroups->fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return config_fail(
		error, r, "[users] control_group = %.500s: %s: %s", path,
		fd < 0 ? "cannot be opened"
		: r == -ENOENT
			? "groups in it have no cpu.weight.nice, memory.max or pids.max; it must "
			  "be a cgroup v2, have one of the controllers cpu, memory and pids "
			  "(Delegate=cpu memory pids in the service's unit), and contain no process"
			: "the service may not create groups in it",
		strerror(-r));
}

int user_cgroups_open(struct user_cgroups *cgroups, const char *path,
		      const struct user_cgroup_limits *limits, struct config_error *error)
{
	char own[PATH_MAX];
	*cgroups = (struct user_cgroups){.fd = -1, .limits = *limits};
	if (path[0] == '\0')
		return 0;
	if (strcmp(path, "auto") != 0)
		return groups_use(cgroups, path, error);
	cgroups->own = true;
	if (delegated_cgroup_find("", own, error) == 0)
		(void)groups_use(cgroups, own, error);
	return 0;
}

bool user_cgroups_enabled(const struct user_cgroups *cgroups)
{
	return cgroups->fd >= 0;
}

static void groups_name_of(uid_t uid, char name[NAME_MAX_BYTES])
{
	snprintf(name, NAME_MAX_BYTES, USER_PREFIX "%u", (unsigned)uid);
}

/*
 * Leaves memory.oom.group at 0: at most one of a user's workers serves, others are exiting, and the
 * kernel kills the largest first, which is the one at fault.
 */
static int groups_limit(const struct user_cgroups *cgroups, int folder, const int *nice)
{
	int r = 0;
	if (cgroups->weights)
		r = write_number(folder, "cpu.weight.nice", nice ? *nice : 0);
	if (r == 0 && cgroups->memory)
		r = write_number(folder, "memory.max", (int64_t)cgroups->limits.memory);
	if (r == 0 && cgroups->threads)
		r = write_number(folder, "pids.max", (int64_t)cgroups->limits.threads);
	if (r < 0 || !cgroups->memory)
		return r;
	/*
	 * Swap belongs to the machine and would come on top of memory.max. Kernels without swap
	 * have no such file.
	 */
	r = write_number(folder, "memory.swap.max", 0);
	return r == -ENOENT ? 0 : r;
}

/* Returns whether so little is charged to the cgroup that it may be removed. */
static bool is_light(int folder, const char *name)
{
	char path[2 * NAME_MAX_BYTES], text[32];
	snprintf(path, sizeof(path), "%.64s/memory.current", name);
	int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return true;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return strtoull(text, NULL, 10) <= REMOVED_BYTES_MAX;
}

/* Removes all users' cgroups without processes; rmdir() fails on others. */
static void groups_sweep(struct user_cgroups *cgroups)
{
	int fd = openat(cgroups->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (!folder) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(folder));)
		if (strncmp(entry->d_name, USER_PREFIX, strlen(USER_PREFIX)) == 0)
			unlinkat(cgroups->fd, entry->d_name, AT_REMOVEDIR);
	closedir(folder);
	cgroups->kept = 0;
}

int user_cgroups_create(struct user_cgroups *cgroups, uid_t uid, const int *nice)
{
	char name[NAME_MAX_BYTES];
	groups_name_of(uid, name);
	int r = mkdirat(cgroups->fd, name, 0755) < 0 ? -errno : 0;
	if (r == -EAGAIN) { /* cgroup.max.descendants */
		groups_sweep(cgroups);
		r = mkdirat(cgroups->fd, name, 0755) < 0 ? -errno : 0;
	}
	if (r < 0 && r != -EEXIST)
		return r;
	int folder = openat(cgroups->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder < 0)
		return -errno;
	r = groups_limit(cgroups, folder, nice);
	int fd = r < 0 ? -1 : openat(folder, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (r == 0 && fd < 0)
		r = -errno;
	close(folder);
	if (r < 0)
		return r;
	/* Move it above the fd numbers that the worker gets. */
	r = fcntl(fd, F_DUPFD_CLOEXEC, IPC_GROUP_FD + 1);
	r = r < 0 ? -errno : r;
	close(fd);
	return r;
}

int user_cgroups_set_weight(const struct user_cgroups *cgroups, uid_t uid, const int *nice)
{
	char name[NAME_MAX_BYTES];
	if (!cgroups->weights)
		return 0;
	groups_name_of(uid, name);
	int folder = openat(cgroups->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder < 0)
		return errno == ENOENT ? 0 : -errno;
	int r = write_number(folder, "cpu.weight.nice", nice ? *nice : 0);
	close(folder);
	return r;
}

void user_cgroups_remove(struct user_cgroups *cgroups, uid_t uid)
{
	char name[NAME_MAX_BYTES];
	groups_name_of(uid, name);
	/*
	 * Memory charged to a removed cgroup counts only for its ancestors. Page cache that the
	 * user keeps from being reclaimed must go on counting for that user, or the user could take
	 * a whole limit each time by leaving and returning.
	 */
	if (is_light(cgroups->fd, name))
		unlinkat(cgroups->fd, name, AT_REMOVEDIR);
	else if (++cgroups->kept > KEPT_MAX)
		groups_sweep(cgroups);
}

void user_cgroups_close(struct user_cgroups *cgroups)
{
	static const char *const words[] = {"-cpu", "-memory", "-pids"};
	if (cgroups->fd < 0)
		return;
	groups_sweep(cgroups);
	/*
	 * A worker that hangs in storage may keep a cgroup alive. systemd then starts the next
	 * service in the parent itself, which the kernel only allows with no controllers enabled
	 * for children.
	 */
	for (size_t i = 0; cgroups->own && i < sizeof(words) / sizeof(words[0]); i++)
		(void)write_text(cgroups->fd, "cgroup.subtree_control", words[i]);
	close(cgroups->fd);
	cgroups->fd = -1;
}
