/*
 * Survives SIGBUS from mapped files that shrink or fail. In a guarded section the handler maps a
 * zero page over the faulting one and records the fault; the caller then discards its result.
 * SIGBUS anywhere else stays fatal.
 *
 * Call sigbus_guard_install() once per process, before threads start. A sigbus_guard_map describes
 * the mappings of one dataset. It is immutable except for its counter and must outlive all sections
 * entered with it. A section belongs to one thread; sections do not nest.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sigbus_guard_region {
	uintptr_t begin, end; /* end is exclusive and rounded up to a page */
};

struct sigbus_guard_map {
	const struct sigbus_guard_region *regions;
	size_t count;
	/*
	 * Pages replaced so far by any thread. A replaced page reads as zeroes without a signal, so
	 * a reader compares this count before and after it reads.
	 */
	_Atomic uint64_t faults;
};

int sigbus_guard_install(void);
/*
 * Catches faults in the map's regions until sigbus_guard_leave(); if map is NULL, faults at any
 * address.
 */
void sigbus_guard_enter(struct sigbus_guard_map *map);
/* Returns true if this thread faulted since sigbus_guard_enter(). */
bool sigbus_guard_leave(void);
