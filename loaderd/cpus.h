/*
 * The CPUs that the daemon may use, in the order in which workers should be put on them: one per
 * core before their siblings, spread over NUMA nodes as evenly as the machine is. Plain value;
 * filled in once at start.
 */
#pragma once

#include <sched.h>

enum { CPUS_MAX = 1024 };

struct cpus {
	unsigned count;
	int number[CPUS_MAX]; /* logical CPU numbers */
	/* CPUs' worth of time that the cgroup grants, rounded up; count when unlimited */
	unsigned quota;
};

/*
 * list "" or NULL: all that the affinity mask allows. -EINVAL: not a list such as "0-3,8"; -ENODEV:
 * none of them is allowed.
 */
int cpus_init(struct cpus *cpus, const char *list);
