/* How much memory this process may count on, in bytes: what the machine has available, or its cgroup's limit where that is less. */
#pragma once

#include <stdint.h>

uint64_t memory_available(void);
