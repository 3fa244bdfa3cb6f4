#include "proto/ring_leases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int ring_leases_work(void)
{
	char path[64];
	int made = memfd_create("loaderd-lease", MFD_CLOEXEC);
	if (made < 0)
		return -errno;
	/*
	 * A lease ignores the file description made by memfd_create(), so test one made by open().
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", made);
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
	close(made);
	if (fd < 0)
		return r;
	r = fcntl(fd, F_SETLEASE, F_WRLCK) < 0 ? 0 : 1;
	close(fd);
	return r;
}
