#include "loaderd/cpus.h"

#include "format/base/system/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

/* Parses a list such as "0-3,8" into `wanted`. */
static int parse_list(const char *list, bool wanted[CPUS_MAX])
{
	const char *p = list;
	while (*p != '\0') {
		char *end;
		errno = 0;
		unsigned long first = strtoul(p, &end, 10);
		if (end == p || *p == '-' || errno != 0 || first >= CPUS_MAX)
			return -EINVAL;
		unsigned long last = first;
		p = end;
		if (*p == '-') {
			last = strtoul(p + 1, &end, 10);
			if (end == p + 1 || p[1] == '-' || last >= CPUS_MAX || last < first)
				return -EINVAL;
			p = end;
		}
		for (unsigned long i = first; i <= last; i++)
			wanted[i] = true;
		if (*p == ',' && p[1] != '\0')
			p++;
		else if (*p != '\0')
			return -EINVAL;
	}
	return 0;
}

static int allowed_by_affinity(bool allowed[CPUS_MAX])
{
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
	if (!set)
		return -ENOMEM;
	int r = sched_getaffinity(0, size, set) < 0 ? -errno : 0;
	for (int i = 0; r == 0 && i < CPUS_MAX; i++)
		allowed[i] = CPU_ISSET_S(i, size, set);
	CPU_FREE(set);
	return r;
}

#ifdef HAVE_HWLOC
static hwloc_cpuset_t to_hwloc(const struct cpus *cpus)
{
	hwloc_cpuset_t set = hwloc_bitmap_alloc();
	for (unsigned i = 0; set && i < cpus->count; i++)
		hwloc_bitmap_set(set, (unsigned)cpus->number[i]);
	return set;
}

/* Reorders by hwloc_distrib(), so that CPUs of different cores come first. */
static void cpus_spread(struct cpus *cpus)
{
	hwloc_topology_t topology;
	if (hwloc_topology_init(&topology) < 0)
		return;
	hwloc_cpuset_t all = to_hwloc(cpus);
	hwloc_cpuset_t *places = calloc(cpus->count, sizeof(*places));
	if (!all || !places || hwloc_topology_load(topology) < 0 ||
	    hwloc_topology_restrict(topology, all, 0) < 0)
		goto out;
	hwloc_obj_t root = hwloc_get_root_obj(topology);
	if (hwloc_distrib(topology, &root, 1, places, cpus->count, INT_MAX, 0) < 0)
		goto out;
	bool used[CPUS_MAX] = {0};
	struct cpus ordered = {.quota = cpus->quota};
	/*
	 * hwloc_distrib() returns one CPU set per CPU in tree order, SMT siblings adjacent. The
	 * first pass takes one CPU per core, the second the siblings.
	 */
	for (unsigned stride = 0; stride < 2; stride++) {
		int core_last = -1;
		for (unsigned i = 0; i < cpus->count; i++) {
			int cpu = places[i] ? hwloc_bitmap_first(places[i]) : -1;
			if (cpu < 0 || cpu >= CPUS_MAX || used[cpu])
				continue;
			hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)cpu);
			hwloc_obj_t core =
				pu ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu)
				   : NULL;
			int core_index = core ? (int)core->logical_index : -2;
			if (stride == 0 && core_index == core_last)
				continue;
			core_last = core_index;
			used[cpu] = true;
			ordered.number[ordered.count++] = cpu;
		}
	}
	if (ordered.count == cpus->count)
		*cpus = ordered;
out:
	for (unsigned i = 0; places && i < cpus->count; i++)
		hwloc_bitmap_free(places[i]);
	free(places);
	if (all)
		hwloc_bitmap_free(all);
	hwloc_topology_destroy(topology);
}
#else
static void cpus_spread(struct cpus *cpus)
{
}
#endif

int cpus_init(struct cpus *cpus, const char *list)
{
	bool allowed[CPUS_MAX] = {0}, wanted[CPUS_MAX] = {0};
	int r = allowed_by_affinity(allowed);
	if (r < 0)
		return r;
	bool all = !list || list[0] == '\0';
	if (!all && (r = parse_list(list, wanted)) < 0)
		return r;
	struct cpus result = {0};
	for (int i = 0; i < CPUS_MAX; i++)
		if (allowed[i] && (all || wanted[i]))
			result.number[result.count++] = i;
	if (result.count == 0)
		return -ENODEV;
	struct cgroup_limits limits;
	cgroup_read("", &limits);
	result.quota = limits.cpus < result.count ? limits.cpus : result.count;
	cpus_spread(&result);
	*cpus = result;
	return 0;
}
