/*
 * Limits of the cgroups of this process, for cgroup version 2, version 1 and hybrid. Returns the
 * lowest limit between the process's own cgroup and the topmost mounted one, at the time of the
 * call. Stateless, any thread.
 */
#pragma once

#include <stdint.h>

struct cgroup_limits {
	uint64_t memory; /* bytes, UINT64_MAX if unlimited */
	unsigned cpus;   /* CPU time per second in CPUs, rounded up; UINT_MAX if unlimited */
};

/*
 * root is "" for this machine; a test passes a folder that contains proc/self/cgroup,
 * proc/self/mountinfo and the files that they refer to.
 */
void cgroup_read(const char *root, struct cgroup_limits *ret_limits);
