/*
 * Memory available to this process, in bytes: the available memory of the machine or, if lower, the
 * limit of its cgroups (read once). Any thread.
 */
#pragma once

#include <stdint.h>

/*
 * Opens the files that memory_available() needs, so that it works in a sandbox that denies open().
 * Idempotent.
 */
void memory_init(void);
uint64_t memory_available(void);
