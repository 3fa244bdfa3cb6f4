/*
 * LD_PRELOAD library that simulates a slow disk for a daemon's worker. When the worker maps the
 * file SLOW_PAGES_FILE, the pages arrive block by block, each after a delay, as from a device with
 * a cold page cache. The library replaces the mapping with memory without pages (userfaultfd(2)),
 * set up before the worker's sandbox forbids it. A thread that touches a block sleeps in the
 * kernel. A helper process outside the sandbox waits SLOW_PAGES_US microseconds, then copies the
 * block from the file; it handles one block at a time, like a disk head. Compiled with PROBE, it is
 * a program that tests whether this is possible on the system.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 16 << 10, MAPS = 8 };

static void die(const char *what)
{
	fprintf(stderr, "slow_pages: %s: %s\n", what, strerror(errno));
	_exit(77);
}

static int open_fault_fd(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		die("userfaultfd");
	return fd;
}

#ifdef PROBE

/* Exits with 77 if the kernel does not permit it. */
int main(void)
{
	open_fault_fd();
	return 0;
}

#else

static struct {
	uintptr_t begin[MAPS]; /* reserved addresses for mappings of the file; 0 once used */
	size_t size;           /* size of the file, in pages */
} places;

static void fetch(int fault_fd, int file, const uintptr_t begin[MAPS], uintptr_t address)
{
	static uint8_t block[BLOCK] __attribute__((aligned(4096)));
	const char *delay = getenv("SLOW_PAGES_US");
	struct timespec pause = {.tv_nsec = (delay ? atol(delay) : 1000) * 1000};
	unsigned i = 0;

	while (i < MAPS && address - begin[i] >= places.size)
		i++;
	if (i == MAPS)
		die("a fault in no map");
	size_t offset = (address - begin[i]) / BLOCK * BLOCK, left = places.size - offset;
	struct uffdio_copy copy = {.dst = begin[i] + offset,
				   .src = (uintptr_t)block,
				   .len = left < BLOCK ? left : BLOCK};

	nanosleep(&pause, NULL);
	memset(block, 0, sizeof(block));
	if (pread(file, block, copy.len, (off_t)offset) < 0)
		die("pread");
	if (ioctl(fault_fd, UFFDIO_COPY, &copy) && errno != EEXIST)
		die("UFFDIO_COPY");
	struct uffdio_range all = {.start = copy.dst, .len = copy.len};

	ioctl(fault_fd, UFFDIO_WAKE, &all);
}

/* Runs in a separate process, which accesses the worker's memory through fault_fd only. */
static void serve(int fault_fd, int file, pid_t worker)
{
	uintptr_t begin[MAPS];
	struct uffd_msg message;

	memcpy(begin, places.begin, sizeof(begin));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != worker) /* the worker ended before PR_SET_PDEATHSIG took effect */
		_exit(0);
	for (int fd = 3; fd < 1024; fd++)
		if (fd != fault_fd && fd != file)
			close(fd);
	while (read(fault_fd, &message, sizeof(message)) == sizeof(message))
		if (message.event == UFFD_EVENT_PAGEFAULT)
			fetch(fault_fd, file, begin, (uintptr_t)message.arg.pagefault.address);
	_exit(0);
}

static void register_places(int fault_fd)
{
	for (unsigned i = 0; i < MAPS; i++) {
		void *memory = (void *)syscall(SYS_mmap, NULL, places.size, PROT_READ | PROT_WRITE,
					       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		struct uffdio_register range = {.range = {(uintptr_t)memory, places.size},
						.mode = UFFDIO_REGISTER_MODE_MISSING};

		if (memory == MAP_FAILED || ioctl(fault_fd, UFFDIO_REGISTER, &range))
			die("UFFDIO_REGISTER");
		places.begin[i] = (uintptr_t)memory;
	}
}

static int is_worker(void)
{
	char line[256];
	int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t size = read(file, line, sizeof(line));

	close(file);
	return size > 0 && memmem(line, (size_t)size, "\0--worker", 10);
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("SLOW_PAGES_FILE");
	struct stat status;

	if (!path || !is_worker())
		return;
	/* Use numbers above the fds that the supervisor passes to the worker. */
	int file = fcntl(open(path, O_RDONLY), F_DUPFD, 64);
	int fault_fd = fcntl(open_fault_fd(), F_DUPFD, 64);

	if (file < 0 || fstat(file, &status))
		die(path);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	places.size = ((size_t)status.st_size + page - 1) / page * page;
	register_places(fault_fd);
	pid_t worker = getpid(), pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		serve(fault_fd, file, worker);
}

/*
 * Takes any shared read-only mapping of the file's length for a mapping of the file. With 64-bit
 * offsets, which all programs here use, the called symbol is mmap64.
 */
__attribute__((visibility("default"))) void *mmap(void *address, size_t length, int protection,
						  int flags, int fd, off_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (fd >= 0 && protection == PROT_READ && (flags & MAP_SHARED) && places.size > 0 &&
	    (length + page - 1) / page * page == places.size)
		for (unsigned i = 0; i < MAPS; i++) {
			uintptr_t begin = places.begin[i];
			if (begin == 0)
				continue;
			places.begin[i] = 0;
			return (void *)begin;
		}
	long result = syscall(SYS_mmap, address, length, protection, flags, fd, offset);

	return (void *)result;
}

#endif
