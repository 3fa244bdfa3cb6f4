#include "trainer/device/cpu/pool.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/*
 * libgomp's part of the ABI that compilers emit calls to, and two functions of the OpenMP
 * interface.
 */
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
void omp_set_num_threads(int threads);

struct pool_job {
	struct pool *pool;
	pool_function function;
	void *context;
	uint32_t tasks;
	_Atomic uint32_t next;
};

static _Thread_local bool placed; /* this worker has its CPU */

/*
 * CPUs' worth of time that a directory of the cgroup hierarchy grants, rounded up; UINT_MAX: no
 * limit.
 */
static unsigned cgroup_quota(const char *path)
{
	char name[PATH_MAX];
	unsigned long long quota, period;
	unsigned cpus = UINT_MAX;
	FILE *file;

	if (snprintf(name, sizeof(name), "/sys/fs/cgroup%s/cpu.max", path) >= (int)sizeof(name))
		return cpus;
	file = fopen(name, "re");
	if (!file)
		return cpus;
	/* "max 100000" where there is none */
	if (fscanf(file, "%llu %llu", &quota, &period) == 2 && quota && period)
		cpus = (unsigned)((quota + period - 1) / period);
	fclose(file);
	return cpus;
}

/* The least quota of this process's cgroup (version 2) and those above it. */
static unsigned quota_cpus(void)
{
	char line[PATH_MAX], *end;
	unsigned least = UINT_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");

	if (!file)
		return least;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::/", 4))
			continue;
		line[strcspn(line, "\n")] = 0;
		for (end = line + strlen(line); end; end = strrchr(line + 3, '/')) {
			unsigned cpus;

			*end = 0;
			cpus = cgroup_quota(line + 3);
			least = cpus < least ? cpus : least;
		}
	}
	fclose(file);
	return least;
}

int pool_init(struct pool *pool, unsigned threads, unsigned sharers)
{
	unsigned allowed, granted;

	memset(pool, 0, sizeof(*pool));
	if (sched_getaffinity(0, sizeof(pool->allowed), &pool->allowed) < 0) {
		pool->threads = threads ? threads : 1;
		return 0;
	}
	allowed = (unsigned)CPU_COUNT(&pool->allowed);
	granted = quota_cpus();
	granted = granted < allowed ? granted : allowed;
	pool->cpus = granted > sharers ? granted / sharers : 1;
	pool->threads = threads ? threads : pool->cpus;
	if (pool->threads > 4096)
		return -EINVAL;
	/*
	 * With fewer threads than CPUs another process may have the same idea of which ones to
	 * take; sharers have it for certain.
	 */
	pool->pin = pool->threads > 1 && pool->threads == allowed && sharers == 1;
	return 0;
}

/* The number'th allowed CPU as a set. */
static cpu_set_t nth_cpu(const struct pool *pool, unsigned number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &pool->allowed))
			continue;
		if (number-- == 0) {
			CPU_SET(cpu, &set);
			break;
		}
	}
	return set;
}

static void work(void *data)
{
	struct pool_job *job = data;
	unsigned thread = (unsigned)omp_get_thread_num();
	uint32_t task;

	if (job->pool->pin && thread && !placed) {
		cpu_set_t set = nth_cpu(job->pool, thread);

		sched_setaffinity(0, sizeof(set), &set);
		placed = true;
	}
	while ((task = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->tasks)
		job->function(job->context, task, thread);
}

void pool_enter(struct pool *pool)
{
	omp_set_num_threads((int)pool->threads);
	/*
	 * With more than two threads libgomp may end some and start others that inherit the
	 * caller's place, until they get to work() above; so only there the caller is left alone.
	 */
	if (!pool->pin || pool->threads != 2 || pool->entered)
		return;
	if (sched_getaffinity(0, sizeof(pool->caller), &pool->caller) == 0) {
		cpu_set_t set = nth_cpu(pool, 0);

		pool->entered = sched_setaffinity(0, sizeof(set), &set) == 0;
	}
}

void pool_leave(struct pool *pool)
{
	if (pool->entered)
		sched_setaffinity(0, sizeof(pool->caller), &pool->caller);
	pool->entered = false;
}

void pool_run(struct pool *pool, uint32_t tasks, pool_function function, void *context)
{
	struct pool_job job = {
		.pool = pool, .function = function, .context = context, .tasks = tasks};

	if (pool->threads == 1 || tasks == 1) {
		for (uint32_t task = 0; task < tasks; task++)
			function(context, task, 0);
		return;
	}
	/* The team's start and end order the tasks' memory accesses against the caller's. */
	GOMP_parallel(work, &job, pool->threads, 0);
}
