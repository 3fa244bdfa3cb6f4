/*
 * Memory that others write, seen through pages which become this process's own when it writes
 * there: what is changed here stays here, and is forgotten when the next state is shown. Where
 * pages cannot be mapped or forgotten by parts that small (pages above 4 KiB), each state is copied
 * instead, with the same outcome. One thread at a time shows a range; the bytes of one that is
 * shown are the caller's. Internal.
 */
#pragma once

#include <stddef.h>

struct own_pages {
	char *memory; /* NULL: there is none */
	size_t size;
	int copies; /* each state is copied */
};

/* Maps `size` bytes of fd. granularity: what offset and size of ranges are multiples of. */
int own_pages_init(struct own_pages *own, int fd, size_t size, size_t granularity);
void own_pages_deinit(struct own_pages *own);
/*
 * The range as it is in `shared` now, a mapping of the same memory, wherever this process has
 * written before. Bytes that it does not write until the next call follow the shared ones.
 */
char *own_pages_show(const struct own_pages *own, const char *shared, size_t offset, size_t size);
/*
 * Makes a range that is shown this process's own, as if all of it had been written to: a fork made
 * after it has the same bytes, whatever becomes of the shared ones.
 */
void own_pages_keep(const struct own_pages *own, size_t offset, size_t size);
