/*
 * A guard against files that shrink or fail underneath their mapping. Reading such a page raises
 * SIGBUS; inside a guarded section the handler puts a page of zeroes there and notes the fault, so
 * that the reader finishes with garbage that it knows to be garbage. A SIGBUS anywhere else stays
 * fatal.
 *
 * sigbus_guard_install() once per process, before threads. A sigbus_guard_map describes one
 * dataset's mappings, is immutable but for its counter, and must outlive all sections entered with
 * it. Sections belong to a thread and do not nest.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sigbus_guard_region {
	uintptr_t begin, end; /* end exclusive, rounded up to a page */
};

struct sigbus_guard_map {
	const struct sigbus_guard_region *regions;
	size_t count;
	/* Pages replaced so far by any thread: whoever reads a page after its replacement gets
	 * zeroes and no signal, so a reader compares this before and after. */
	_Atomic uint64_t faults;
};

int sigbus_guard_install(void);
/*
 * Faults inside the map's regions are caught until sigbus_guard_leave(); map NULL catches them at
 * any address.
 */
void sigbus_guard_enter(struct sigbus_guard_map *map);
/* True when this thread met a fault since sigbus_guard_enter(). */
bool sigbus_guard_leave(void);
