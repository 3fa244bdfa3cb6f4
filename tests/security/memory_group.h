/*
 * A control group with a limit of memory, version 1 or 2, for a test that asks what the kernel
 * charges to the service. Needs root, and a memory controller with a writable hierarchy.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct memory_group {
	unsigned version;
	char path[PATH_MAX];
	char outside[PATH_MAX]; /* the group that the test was in */
};

/* False: there is no memory controller here, or groups cannot be made. */
bool memory_group_new(struct memory_group *group, const char *name, uint64_t limit_bytes);
/* Moves the calling process into the group, or back to where it was. */
void memory_group_enter(const struct memory_group *group);
void memory_group_leave(const struct memory_group *group);
/* Bytes charged to the group: all; pages of tmpfs, memfds and shared mappings alone. */
uint64_t memory_group_usage(const struct memory_group *group);
uint64_t memory_group_shared(const struct memory_group *group);
/* How often the kernel has ended a process of the group for want of memory. */
uint64_t memory_group_kills(const struct memory_group *group);
/* No process is in it. */
void memory_group_free(const struct memory_group *group);
