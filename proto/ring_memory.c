/* Memory of rings: memfds, and whether others still have them open. ring.h has the contracts. */
#include "proto/ring.h"

#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Missing in the oldest headers that we support; kernels without it return EINVAL. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

static int memfd_new(uint64_t size)
{
	static const char name[] = "loaderd-ring";
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* The default mode lets every user reopen it for writing through /proc. */
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		io_close(fd);
		return -errno;
	}
	return fd;
}

/* Leases ignore the file description made by memfd_create() but count those made by open(). */
static int open_anew(int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int anew = open(path, flags | O_CLOEXEC);
	return anew < 0 ? -errno : anew;
}

int ring_memory_new(uint64_t bytes, bool client_writes, struct ring_memory *ret_memory)
{
	const int client_flags = client_writes ? O_RDWR : O_RDONLY;
	struct ring_memory memory = {-1, -1, -1};
	int made = memfd_new(bytes);
	if (made < 0)
		return made;
	int r = memory.fd = open_anew(made, O_RDWR);
	if (r >= 0)
		r = memory.client_fd = open_anew(made, client_flags);
	if (r >= 0)
		r = memory.watch_fd = open_anew(made, O_RDONLY);
	close(made);
	if (r < 0) {
		io_close(memory.fd);
		io_close(memory.client_fd);
		return r;
	}
	*ret_memory = memory;
	return 0;
}

bool ring_memory_open(int watch_fd)
{
	if (fcntl(watch_fd, F_SETLEASE, F_WRLCK) < 0)
		return true;
	fcntl(watch_fd, F_SETLEASE, F_UNLCK);
	return false;
}

int ring_memory_watch(int watch_fd, int inotify_fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", watch_fd);
	int watch = inotify_add_watch(inotify_fd, path, IN_DELETE_SELF);
	return watch < 0 ? -errno : watch;
}

/*
 * The kernel refuses F_SEAL_WRITE with EBUSY while a page has references beyond those of the file
 * and of mappings (Linux, mm/memfd.c, memfd_wait_for_pins): a socket or pipe that it was spliced
 * into, direct I/O, a registered buffer. The seal disturbs no process: any other use of the memory
 * needs it open, which the caller has excluded.
 */
int ring_memory_free(int watch_fd)
{
	int fd = open_anew(watch_fd, O_RDWR);
	if (fd < 0)
		return fd;
	int r = fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 ? -errno : 0;
	close(fd);
	return r;
}
