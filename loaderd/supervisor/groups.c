#include "loaderd/supervisor/groups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 64 };

static int write_number(int folder, const char *name, long number)
{
	char text[24];
	int size = snprintf(text, sizeof(text), "%ld\n", number);
	int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int r = write(fd, text, (size_t)size) == size ? 0 : -errno;
	close(fd);
	return r;
}

/*
 * Groups below get weights once their parent says so. It may have said it before, and what it then
 * refuses does not matter.
 */
static void enable_weights(int folder)
{
	int fd = openat(folder, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	ssize_t n = write(fd, "+cpu", 4);
	(void)n;
	close(fd);
}

/* Made and removed, to see whether there are weights. */
static int try_out(int folder)
{
	static const char name[] = "trial";
	char file[NAME_MAX_BYTES];
	snprintf(file, sizeof(file), "%s/cpu.weight.nice", name);
	if (mkdirat(folder, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	int r = faccessat(folder, file, W_OK, 0) < 0 ? -errno : 0;
	unlinkat(folder, name, AT_REMOVEDIR);
	return r;
}

int groups_open(struct groups *groups, const char *path, struct config_error *error)
{
	groups->fd = -1;
	if (path[0] == '\0')
		return 0;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
	if (r == 0) {
		enable_weights(fd);
		r = try_out(fd);
	}
	if (r == 0) {
		groups->fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return config_fail(
		error, r, "[users] control_group = %.500s: %s: %s", path,
		fd < 0         ? "cannot be opened"
		: r == -ENOENT ? "groups in it have no cpu.weight.nice; it must be of version 2, "
				 "have the controller cpu "
				 "(Delegate=cpu in the service's unit), and no process in itself"
			       : "the service may make no group in it",
		strerror(-r));
}

void groups_close(struct groups *groups)
{
	if (groups->fd >= 0)
		close(groups->fd);
	groups->fd = -1;
}

bool groups_given(const struct groups *groups)
{
	return groups->fd >= 0;
}

static void groups_name_of(uid_t uid, char name[NAME_MAX_BYTES])
{
	snprintf(name, NAME_MAX_BYTES, "user-%u", (unsigned)uid);
}

int groups_enter(const struct groups *groups, uid_t uid, const int *nice, pid_t worker)
{
	char name[NAME_MAX_BYTES];
	groups_name_of(uid, name);
	if (mkdirat(groups->fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	int folder = openat(groups->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder < 0)
		return -errno;
	int r = write_number(folder, "cpu.weight.nice", nice ? *nice : 0);
	if (r == 0)
		r = write_number(folder, "cgroup.procs", worker);
	close(folder);
	return r;
}

void groups_remove(const struct groups *groups, uid_t uid)
{
	char name[NAME_MAX_BYTES];
	groups_name_of(uid, name);
	unlinkat(groups->fd, name, AT_REMOVEDIR);
}
