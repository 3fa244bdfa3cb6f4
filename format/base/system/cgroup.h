/*
 * Limits of the control groups that this process is in: version 2, version 1, and both beside one
 * another. What is found is the least on the way from the process's own group to the highest that
 * is mounted, at the moment of the call. Without state, any thread.
 */
#pragma once

#include <stdint.h>

struct cgroup_limits {
	uint64_t memory; /* bytes; UINT64_MAX: none */
	unsigned cpus;   /* CPUs' worth of time, rounded up; UINT_MAX: none */
};

/*
 * root "" is this machine; a test names a folder that has proc/self/cgroup, proc/self/mountinfo and
 * what these lead to.
 */
void cgroup_read(const char *root, struct cgroup_limits *ret_limits);
