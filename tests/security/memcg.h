/*
 * A control group with a limit of memory, version 1 or 2, for a test that asks what the kernel
 * charges to the service. Needs root, and a memory controller with a writable hierarchy.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct memcg {
	unsigned version;
	char path[PATH_MAX];
	char outside[PATH_MAX]; /* the group that the test was in */
};

/* False: there is no memory controller here, or groups cannot be made. */
bool memcg_new(struct memcg *group, const char *name, uint64_t limit_bytes);
/* Moves the calling process into the group, or back to where it was. */
void memcg_enter(const struct memcg *group);
void memcg_leave(const struct memcg *group);
/* Bytes charged to the group: all; pages of tmpfs, memfds and shared mappings alone. */
uint64_t memcg_usage(const struct memcg *group);
uint64_t memcg_shared(const struct memcg *group);
/* How often the kernel has ended a process of the group for want of memory. */
uint64_t memcg_kills(const struct memcg *group);
/* No process is in it. */
void memcg_free(const struct memcg *group);
