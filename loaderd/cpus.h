/*
 * The CPUs that the daemon may use, in the order in which to pin workers: one CPU of each core
 * before the SMT siblings, spread evenly over NUMA nodes. Plain value, filled in once at start.
 */
#pragma once

#include <sched.h>

enum { CPUS_MAX = 1024 };

struct cpus {
	unsigned count;
	int number[CPUS_MAX]; /* logical CPU numbers */
	/* CPU quota of the cgroup, rounded up to whole CPUs; `count` if unlimited */
	unsigned quota;
};

/*
 * Uses the CPUs of `list` that the affinity mask allows, or all allowed CPUs if it is "" or NULL.
 * Returns -EINVAL if it is not a list such as "0-3,8", -ENODEV if it contains no allowed CPU.
 */
int cpus_init(struct cpus *cpus, const char *list);
