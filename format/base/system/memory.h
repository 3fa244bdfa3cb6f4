/*
 * How much memory this process may count on, in bytes: what the machine has available, or its
 * control groups' limit (of when it was first asked) where that is less. Any thread.
 */
#pragma once

#include <stdint.h>

/*
 * Opens what memory_available() needs, so that it works where nothing can be opened any more. Doing
 * it again does nothing.
 */
void memory_init(void);
uint64_t memory_available(void);
