#include "format/base/system/memory.h"

#include "format/base/system/cgroup.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int meminfo_fd = -1;
static struct cgroup_limits limits;

static void open_all(void)
{
	meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	cgroup_read("", &limits);
}

static uint64_t machine_available(void)
{
	char text[4096];
	unsigned long long kib;
	ssize_t n = meminfo_fd < 0 ? -1 : pread(meminfo_fd, text, sizeof(text) - 1, 0);
	text[n < 0 ? 0 : n] = '\0';
	const char *line = strstr(text, "MemAvailable:");
	if (line && sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
		return kib << 10;
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void memory_init(void)
{
	pthread_once(&once, open_all);
}

uint64_t memory_available(void)
{
	memory_init();
	uint64_t machine = machine_available();
	return machine < limits.memory ? machine : limits.memory;
}
