#include "proto/own_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/*
 * A MAP_PRIVATE mapping shows the pages of the file. The first write to a page copies it, and
 * MADV_DONTNEED drops the copy. To drop all pages of a large batch each time would cost as much as
 * a copy, since each page has to be mapped again. So ask the page table first whether there is a
 * copy at all. That also covers copies that this code did not cause: mlockall(), a debugger, a
 * device that pins pages.
 */

enum { ENTRIES_AT_ONCE = 512 }; /* the kernel's own batch size */

/* Bits: Linux, Documentation/admin-guide/mm/pagemap.rst. */
static bool is_copy(uint64_t entry)
{
	const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62;
	const uint64_t of_the_file = UINT64_C(1) << 61;
	return (entry & (present | swapped)) != 0 && (entry & of_the_file) == 0;
}

/*
 * Returns whether any of these whole pages is a private copy; true if that cannot be determined.
 * Opens pagemap each time, because an fd kept open would be useless after a fork.
 */
static bool has_copies(const char *memory, size_t size)
{
	uint64_t entries[ENTRIES_AT_ONCE];
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t at = (uintptr_t)memory / page, end = at + size / page;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	bool found = fd < 0;
	while (!found && at < end) {
		size_t count = end - at < ENTRIES_AT_ONCE ? (size_t)(end - at) : ENTRIES_AT_ONCE;
		ssize_t bytes = count * sizeof(*entries);
		found = pread(fd, entries, (size_t)bytes, (off_t)(at * sizeof(*entries))) != bytes;
		for (size_t i = 0; !found && i < count; i++)
			found = is_copy(entries[i]);
		at += count;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool forget(char *memory, size_t size)
{
	return madvise(memory, size, MADV_DONTNEED) == 0 ||
	       madvise(memory, size, MADV_DONTNEED_LOCKED) == 0;
}

/* MAP_NORESERVE: few pages are ever copied. */
int own_pages_init(struct own_pages *own, int fd, size_t size, size_t granularity)
{
	const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_NORESERVE;
	const bool copies = granularity % (size_t)sysconf(_SC_PAGESIZE) != 0;
	void *memory = copies ? mmap(NULL, size, protection, flags | MAP_ANONYMOUS, -1, 0)
			      : mmap(NULL, size, protection, flags, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*own = (struct own_pages){memory, size, copies};
	return 0;
}

void own_pages_deinit(struct own_pages *own)
{
	if (own->memory)
		munmap(own->memory, own->size);
	*own = (struct own_pages){0};
}

char *own_pages_show(const struct own_pages *own, const char *shared, size_t offset, size_t size)
{
	char *memory = own->memory + offset;
	if (own->copies || (has_copies(memory, size) && !forget(memory, size)))
		memcpy(memory, shared + offset, size);
	return memory;
}

void own_pages_keep(const struct own_pages *own, size_t offset, size_t size)
{
	char *memory = own->memory + offset;
	if (own->copies || madvise(memory, size, MADV_POPULATE_WRITE) == 0)
		return;
	/*
	 * An atomic add of 0 writes to the page without losing a concurrent write of another
	 * thread.
	 */
	for (size_t at = 0; at < size; at += (size_t)sysconf(_SC_PAGESIZE))
		__atomic_fetch_add(&memory[at], 0, __ATOMIC_RELAXED);
}
