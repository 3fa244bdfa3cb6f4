/*
 * Memory that this process can use, in bytes: the available memory of the machine, or the limit of
 * its cgroups (read once) if that is lower. Any thread.
 */
#pragma once

#include <stdint.h>

/*
 * Opens the files that memory_available() needs, so that it works in a sandbox that denies open().
 * Idempotent.
 */
void memory_init(void);
uint64_t memory_available(void);
