/*
 * Futex wait and wake: within one process, and on memory shared between processes. Waits may return
 * spuriously; callers check the word again.
 */
#pragma once

#include <stdint.h>

void futex_wait(_Atomic uint32_t *word, uint32_t value);
/* Wakes up to `count` waiters. */
void futex_wake(_Atomic uint32_t *word, uint64_t count);

void futex_wait_shared(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void futex_wake_shared(_Atomic uint32_t *word, uint64_t count);
