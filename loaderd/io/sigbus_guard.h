/*
 * Survives SIGBUS from mapped files that shrink or fail. In a guarded section the handler maps a
 * zero page over the faulting one and records the fault; the caller then discards its result.
 * SIGBUS anywhere else stays fatal.
 *
 * Call sigbus_guard_install() once per process, before threads start. A sigbus_guard_map describes
 * the mappings of one dataset; it is immutable but for its counter, and must outlive all sections
 * entered with it. A section belongs to a thread; sections do not nest.
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
	/* Pages replaced so far by any thread. A replaced page reads as zeroes without a signal, so
	 * a reader compares this count before and after. */
	_Atomic uint64_t faults;
};

int sigbus_guard_install(void);
/*
 * Faults inside the map's regions are caught until sigbus_guard_leave(); map NULL catches them at
 * any address.
 */
void sigbus_guard_enter(struct sigbus_guard_map *map);
/* True if this thread had a fault since sigbus_guard_enter(). */
bool sigbus_guard_leave(void);
