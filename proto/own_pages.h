/*
 * Private copy-on-write view of memory that another process writes. Writes of this process stay
 * private and are discarded when own_pages_show() shows the range's next state. If pages cannot be
 * mapped or dropped at the given granularity (pages above 4 KiB), each state is copied instead,
 * with the same result. One thread at a time shows a range; a shown range belongs to the caller.
 * Internal.
 */
#pragma once

#include <stddef.h>

struct own_pages {
	char *memory; /* NULL if uninitialised */
	size_t size;
	int copies; /* nonzero if each state is copied instead of mapped */
};

/* Maps `size` bytes of fd. Offsets and sizes of ranges are multiples of `granularity`. */
int own_pages_init(struct own_pages *own, int fd, size_t size, size_t granularity);
void own_pages_deinit(struct own_pages *own);
/*
 * Shows the range's current state in `shared`, a mapping of the same memory, discarding earlier
 * writes of this process. Pages that the caller does not write keep following the shared memory.
 */
char *own_pages_show(const struct own_pages *own, const char *shared, size_t offset, size_t size);
/*
 * Makes a shown range private, as if the caller had written to every page: a later fork keeps these
 * bytes when the shared memory changes.
 */
void own_pages_keep(const struct own_pages *own, size_t offset, size_t size);
