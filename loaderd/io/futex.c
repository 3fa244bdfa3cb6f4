#include "loaderd/io/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word, uint64_t count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count > INT_MAX ? INT_MAX : (int)count, NULL,
		NULL, 0);
}

void futex_wait_shared(_Atomic uint32_t *word, uint32_t value, int timeout_ms)
{
	struct timespec timeout = {.tv_sec = timeout_ms / 1000,
				   .tv_nsec = timeout_ms % 1000 * 1000000L};
	syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

void futex_wake_shared(_Atomic uint32_t *word, uint64_t count)
{
	syscall(SYS_futex, word, FUTEX_WAKE, count > INT_MAX ? INT_MAX : (int)count, NULL, NULL, 0);
}
