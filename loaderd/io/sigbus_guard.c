#include "loaderd/io/sigbus_guard.h"

#include "loaderd/crash_marker.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct section {
	struct sigbus_guard_map *map;
	volatile bool active;
	volatile bool any;
	volatile bool faulted;
};

/* Initial-exec, because the handler must not be the first to touch a lazily allocated TLS block. */
static _Thread_local struct section section __attribute__((tls_model("initial-exec")));
static uintptr_t page_size;

static bool guard_covers(const struct sigbus_guard_map *map, uintptr_t address)
{
	for (size_t i = 0; i < map->count; i++)
		if (address >= map->regions[i].begin && address < map->regions[i].end)
			return true;
	return false;
}

/*
 * Uses the raw system call: it is async-signal-safe, and mmap() is not guaranteed to be. The thread
 * sanitizer would also treat an intercepted mmap() as a write to memory that other threads read;
 * the kernel replaces the page atomically.
 */
static bool replace_page(uintptr_t address)
{
	uintptr_t page = address & ~(page_size - 1);
	return syscall(SYS_mmap, page, page_size, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)page;
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
	int saved = errno;
	uintptr_t address = (uintptr_t)info->si_addr;
	/*
	 * si_code > 0 means that the kernel raised it for an access. A SIGBUS from kill() is fatal.
	 */
	if (info->si_code > 0 && section.active &&
	    (section.any || guard_covers(section.map, address)) && replace_page(address)) {
		section.faulted = true;
		if (section.map)
			atomic_fetch_add(&section.map->faults, 1);
		errno = saved;
		return;
	}
	crash_marker_note(signal_number);
	/*
	 * After the return, the access is repeated and kills the process; the core file then shows
	 * the faulting address.
	 */
	signal(SIGBUS, SIG_DFL);
	if (info->si_code <= 0)
		raise(SIGBUS);
	errno = saved;
}

int sigbus_guard_install(void)
{
	page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigemptyset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}

void sigbus_guard_enter(struct sigbus_guard_map *map)
{
	assert(!section.active);
	section.map = map;
	section.any = !map;
	section.faulted = false;
	atomic_signal_fence(memory_order_seq_cst);
	section.active = true;
	atomic_signal_fence(memory_order_seq_cst);
}

bool sigbus_guard_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	section.active = false;
	atomic_signal_fence(memory_order_seq_cst);
	return section.faulted;
}
