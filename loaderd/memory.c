#include "memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t machine_available(void)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (file != NULL)
		fclose(file);
	if (kib == 0)
		return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return kib << 10;
}

static uint64_t limit_in(const char *directory)
{
	char path[PATH_MAX + 16];
	unsigned long long bytes;
	snprintf(path, sizeof path, "%s/memory.max", directory);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return UINT64_MAX;
	int n = fscanf(file, "%llu", &bytes); /* "max" does not match */
	fclose(file);
	return n == 1 ? bytes : UINT64_MAX;
}

/* The smallest limit on the way from our cgroup (version 2) to the root. */
static uint64_t cgroup_limit(void)
{
	char line[PATH_MAX - 64], path[PATH_MAX];
	uint64_t least = UINT64_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof path, "/sys/fs/cgroup%s", line + 3);
		while (strlen(path) > strlen("/sys/fs/cgroup")) {
			uint64_t limit = limit_in(path);
			least = limit < least ? limit : least;
			*strrchr(path, '/') = '\0';
		}
	}
	if (file != NULL)
		fclose(file);
	return least;
}

uint64_t memory_available(void)
{
	uint64_t machine = machine_available(), limit = cgroup_limit();
	return machine < limit ? machine : limit;
}
