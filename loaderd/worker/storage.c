#include "loaderd/worker/storage.h"

#include <errno.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static struct {
	bool private;
	pthread_mutex_t mutex; /* protects `mounts`, whose file position is shared */
	FILE *mounts; /* mountinfo of the daemon's mount namespace; NULL if /proc is not mounted */
} storage = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void storage_init(bool shared)
{
	storage.private = !shared;
	if (shared && !storage.mounts)
		storage.mounts = fopen("/proc/self/mountinfo", "re");
}

/* Parses a line such as "36 35 0:31 / /mnt rw shared:1 - overlay overlay rw,lowerdir=..." */
static bool is_overlay(const char *line, dev_t device)
{
	unsigned major, minor;
	const char *type = strstr(line, " - ");
	return type && strncmp(type, " - overlay ", 11) == 0 &&
	       sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
	       makedev(major, minor) == device;
}

/*
 * Returns whether the fd's overlayfs is mounted in our mount namespace. One that another user has
 * mounted has a different device number, which mountinfo does not list.
 */
static bool overlay_is_ours(int fd)
{
	struct stat status;
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	/*
	 * Calls the system call directly: glibc's fstat() uses newfstatat(), which the sandbox
	 * forbids.
	 */
	if (syscall(SYS_fstat, fd, &status) < 0)
		return false;
	pthread_mutex_lock(&storage.mutex);
	if (storage.mounts) {
		rewind(storage.mounts);
		while (!found && getline(&line, &capacity, storage.mounts) > 0)
			found = is_overlay(line, status.st_dev);
	}
	pthread_mutex_unlock(&storage.mutex);
	free(line);
	return found;
}

static int choose_one(const char *path, int fd, bool *mapped, struct packimg_error *error)
{
	struct statfs system;
	if (fstatfs(fd, &system) < 0) {
		int r = -errno;
		snprintf(error->text, sizeof(error->text),
			 "%.300s: the daemon may not access its file system: %s; a private daemon "
			 "of the file's owner may",
			 path, strerror(-r));
		return r;
	}
	const uint32_t type = (uint32_t)system.f_type;
	if (type == TMPFS_MAGIC || type == OVERLAYFS_SUPER_MAGIC)
		*mapped = false;
	if (type == RAMFS_MAGIC) {
		snprintf(error->text, sizeof(error->text),
			 "%.300s: is on ramfs, whose memory is never reclaimed; put the dataset on "
			 "another file system, or use a private daemon",
			 path);
		return -EINVAL;
	}
	if (type == OVERLAYFS_SUPER_MAGIC && !overlay_is_ours(fd)) {
		snprintf(error->text, sizeof(error->text),
			 "%.300s: is on an overlay file system, such as a container's root, that "
			 "is not mounted where the daemon runs, so it cannot tell what is below; "
			 "put the dataset on a volume or a bind mount, or use a private daemon",
			 path);
		return -EINVAL;
	}
	return 0;
}

int storage_choose(const char *path, const int *fds, uint32_t count, bool *ret_mapped,
		   struct packimg_error *error)
{
	bool mapped = true;
	for (uint32_t i = 0; !storage.private && i < count; i++) {
		int r = choose_one(path, fds[i], &mapped, error);
		if (r < 0)
			return r;
	}
	*ret_mapped = mapped;
	return 0;
}
