#include "tests/fuzz/support/guard_page_map.h"

#include "format/base/poison.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Size of the guard regions. A single access with a wrong width or count cannot skip them. */
#define FENCE_SIZE ((size_t)1 << 30)

enum { MAPS_MAX = 256 };

struct map {
	uint8_t *bytes;
	size_t size;
};

static struct map maps[MAPS_MAX];
static volatile unsigned
	map_count; /* volatile: compilers assume that mmap() calls no function of this file */

/* mmap() under both names: with 64-bit offsets, calls of mmap() compile to mmap64(). */
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__real_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t size);
int __real_munmap(void *address, size_t size);

static size_t page_size(void)
{
	static size_t size;
	if (size == 0)
		size = (size_t)sysconf(_SC_PAGESIZE);
	return size;
}

static size_t whole_pages(size_t size)
{
	return (size + page_size() - 1) / page_size() * page_size();
}

/*
 * Uses raw system calls, because sanitizers that track mappings would keep shadow state for the
 * whole fence.
 */
static void *new_fence(size_t size)
{
	return (void *)syscall(SYS_mmap, NULL, size, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Unmaps the fence and everything mapped inside it. */
static void remove_fence(void *fence, size_t size)
{
	int saved = errno;
	if (syscall(SYS_munmap, fence, size) < 0)
		abort();
	errno = saved;
}

void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	if (fd < 0 || address || size == 0)
		return __real_mmap64(address, size, protection, flags, fd, offset);
	if (map_count == MAPS_MAX)
		abort();
	size_t pages = whole_pages(size);
	uint8_t *fence = new_fence(pages + 2 * FENCE_SIZE);
	if (fence == MAP_FAILED)
		return MAP_FAILED;
	uint8_t *bytes = fence + FENCE_SIZE;
	if (__real_mmap64(bytes, size, protection, flags | MAP_FIXED, fd, offset) == MAP_FAILED) {
		remove_fence(fence, pages + 2 * FENCE_SIZE);
		return MAP_FAILED;
	}
	poison(bytes + size, pages - size);
	maps[map_count] = (struct map){bytes, size};
	map_count++;
	return bytes;
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	return __wrap_mmap64(address, size, protection, flags, fd, offset);
}

int __wrap_munmap(void *address, size_t size)
{
	for (unsigned i = 0; i < map_count; i++) {
		if (maps[i].bytes != address)
			continue;
		if (maps[i].size != size)
			abort();
		map_count--;
		maps[i] = maps[map_count];
		size_t pages = whole_pages(size);
		unpoison((uint8_t *)address + size, pages - size);
		int r = __real_munmap(address, size);
		remove_fence((uint8_t *)address - FENCE_SIZE, pages + 2 * FENCE_SIZE);
		return r;
	}
	return __real_munmap(address, size);
}

void guard_page_map_expect(const void *bytes, size_t size)
{
	const volatile uint8_t *data = bytes;
	if (size == 0)
		return;
	(void)data[0];
	(void)data[size - 1];
}

/*
 * Checks at start-up that mmap() and munmap() are wrapped: without the wrappers the tests would
 * detect nothing.
 */
__attribute__((constructor)) static void check_that_calls_come_here(void)
{
	int fd = memfd_create("guarded", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 1) < 0)
		abort();
	void *bytes = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED || map_count != 1 || munmap(bytes, 1) < 0 || map_count != 0)
		abort();
	close(fd);
}
