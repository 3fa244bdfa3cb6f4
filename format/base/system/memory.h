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

enum { MEMORY_NODES_MAX = 64 };

/* The files that tell the machine's available memory. Owned by the caller, and closed once. */
struct memory_files {
	int meminfo_fd; /* /proc/meminfo; -1 if hidden, as by ProcSubset=pid of systemd */
	/* meminfo of NUMA nodes in /sys, opened only without /proc/meminfo; more are left out */
	int node_fds[MEMORY_NODES_MAX];
	unsigned node_count;
};

/* root is "" for this machine; a test passes a folder that contains proc/meminfo and sys. */
void memory_files_open(const char *root, struct memory_files *ret_files);
/*
 * Returns MemAvailable, or an estimate of it from the NUMA nodes; 0 if there is neither, as without
 * CONFIG_NUMA.
 */
uint64_t memory_files_available(const struct memory_files *files);
void memory_files_close(struct memory_files *files);
