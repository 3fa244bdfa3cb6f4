/*
 * A slow disk for one program, by LD_PRELOAD: files mapped whose name ends in .pimg come page by page, each block after a delay, as from a device
 * with nothing in the page cache. In place of the file stands memory without pages (userfaultfd(2)): a thread that touches a block sleeps in the
 * kernel until another one here has waited SLOW_PAGES_US microseconds and copied it from the file. One block at a time, as a disk's head would. As a program
 * (PROBE) it tells whether that is possible here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 16 << 10, MAPS_MAX = 16 };

static struct {
	uintptr_t begin;
	size_t size;
	int fd;
} maps[MAPS_MAX];
static unsigned map_count;
static int fault_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what)
{
	fprintf(stderr, "slow_pages: %s: %s\n", what, strerror(errno));
	_exit(77);
}

static void fetch(uintptr_t address)
{
	static uint8_t block[BLOCK] __attribute__((aligned(4096)));
	const char *delay = getenv("SLOW_PAGES_US");
	struct timespec pause = {.tv_nsec = (delay ? atol(delay) : 1000) * 1000};
	unsigned i = 0;

	pthread_mutex_lock(&mutex);
	while (i < map_count && address - maps[i].begin >= maps[i].size)
		i++;
	pthread_mutex_unlock(&mutex);
	if (i == map_count)
		die("a fault in no map");
	size_t offset = (address - maps[i].begin) / BLOCK * BLOCK, left = maps[i].size - offset;
	struct uffdio_copy copy = {.dst = maps[i].begin + offset,
				   .src = (uintptr_t)block,
				   .len = left < BLOCK ? left : BLOCK};

	nanosleep(&pause, NULL);
	memset(block, 0, sizeof(block));
	if (pread(maps[i].fd, block, copy.len, (off_t)offset) < 0)
		die("pread");
	if (ioctl(fault_fd, UFFDIO_COPY, &copy) && errno != EEXIST)
		die("UFFDIO_COPY");
	struct uffdio_range all = {.start = copy.dst, .len = copy.len};

	ioctl(fault_fd, UFFDIO_WAKE, &all);
}

static void *serve(void *argument)
{
	struct uffd_msg message;

	while (read(fault_fd, &message, sizeof(message)) == sizeof(message))
		if (message.event == UFFD_EVENT_PAGEFAULT)
			fetch((uintptr_t)message.arg.pagefault.address);
	return NULL;
}

static void start(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	pthread_t thread;

	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api))
		die("userfaultfd");
	if (pthread_create(&thread, NULL, serve, NULL))
		die("pthread_create");
}

#ifdef PROBE

/* Ends with 77 where the kernel does not let us. */
int main(void)
{
	start();
	return 0;
}

#else

static int is_dataset(int fd)
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof(path) - 1);

	return length > 5 && !memcmp(path + length - 5, ".pimg", 5);
}

static void *map_slowly(size_t length, int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (length + page - 1) / page * page;
	void *memory = (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct uffdio_register range = {.range = {(uintptr_t)memory, size},
					.mode = UFFDIO_REGISTER_MODE_MISSING};

	pthread_mutex_lock(&mutex);
	if (fault_fd < 0)
		start();
	if (memory == MAP_FAILED || map_count == MAPS_MAX ||
	    ioctl(fault_fd, UFFDIO_REGISTER, &range))
		die("UFFDIO_REGISTER");
	maps[map_count].begin = (uintptr_t)memory;
	maps[map_count].size = size;
	maps[map_count].fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	map_count++;
	pthread_mutex_unlock(&mutex);
	return memory;
}

/* With 64-bit offsets, as everything here is compiled, the name that programs call is mmap64. */
__attribute__((visibility("default"))) void *mmap(void *address, size_t length, int protection,
						  int flags, int fd, off_t offset)
{
	if (fd >= 0 && !address && !offset && is_dataset(fd))
		return map_slowly(length, fd);
	long result = syscall(SYS_mmap, address, length, protection, flags, fd, offset);

	return (void *)result;
}

#endif
