/*
 * A memory cgroup with a limit, version 1 or 2, for tests of what the kernel charges to the
 * service. Needs root and a memory controller with a writable hierarchy.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct memcg {
	unsigned version;
	char path[PATH_MAX];
	char outside[PATH_MAX]; /* cgroup in which the test was started */
};

/* Returns false if there is no memory controller or the cgroup cannot be created. */
bool memcg_new(struct memcg *group, const char *name, uint64_t limit_bytes);
/* Move the calling process into the cgroup, and back to `outside`. */
void memcg_enter(const struct memcg *group);
void memcg_leave(const struct memcg *group);
/* Bytes charged to the cgroup: the total, and the part for tmpfs, memfds and shared mappings. */
uint64_t memcg_usage(const struct memcg *group);
uint64_t memcg_shared(const struct memcg *group);
/* Number of OOM kills in the cgroup. */
uint64_t memcg_kills(const struct memcg *group);
/* Removes the cgroup, which must be empty. */
void memcg_free(const struct memcg *group);
