#include "trainer/device/cpu/thread_pool.h"

#include "format/base/system/cgroup.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* The libgomp entry point that compilers emit calls to, and two OpenMP functions. */
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
void omp_set_num_threads(int threads);

struct thread_pool_job {
	struct thread_pool *thread_pool;
	thread_pool_function function;
	void *context;
	uint32_t tasks;
	_Atomic uint32_t next;
};

static _Thread_local bool placed; /* this worker is pinned */

int thread_pool_init(struct thread_pool *thread_pool, unsigned threads, unsigned sharers)
{
	struct cgroup_limits limits;

	memset(thread_pool, 0, sizeof(*thread_pool));
	if (sched_getaffinity(0, sizeof(thread_pool->allowed), &thread_pool->allowed) < 0) {
		thread_pool->threads = threads ? threads : 1;
		return 0;
	}
	unsigned allowed = (unsigned)CPU_COUNT(&thread_pool->allowed);
	cgroup_read("", &limits);
	unsigned granted = limits.cpus < allowed ? limits.cpus : allowed;
	thread_pool->cpus = granted > sharers ? granted / sharers : 1;
	thread_pool->threads = threads ? threads : thread_pool->cpus;
	if (thread_pool->threads > 4096)
		return -EINVAL;
	/*
	 * Pin only if all CPUs are used: with fewer threads, another process may pin to the same
	 * CPUs, as sharers would.
	 */
	thread_pool->pin =
		thread_pool->threads > 1 && thread_pool->threads == allowed && sharers == 1;
	return 0;
}

/* Set of only the number-th allowed CPU. */
static cpu_set_t thread_pool_nth_cpu(const struct thread_pool *thread_pool, unsigned number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &thread_pool->allowed))
			continue;
		if (number-- == 0) {
			CPU_SET(cpu, &set);
			break;
		}
	}
	return set;
}

static void thread_pool_work(void *data)
{
	struct thread_pool_job *job = data;
	unsigned thread = (unsigned)omp_get_thread_num();
	uint32_t task;

	if (job->thread_pool->pin && thread && !placed) {
		cpu_set_t set = thread_pool_nth_cpu(job->thread_pool, thread);

		sched_setaffinity(0, sizeof(set), &set);
		placed = true;
	}
	while ((task = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->tasks)
		job->function(job->context, task, thread);
}

void thread_pool_enter(struct thread_pool *thread_pool)
{
	omp_set_num_threads((int)thread_pool->threads);
	/*
	 * With more than two threads, libgomp may replace threads, and new ones inherit the
	 * caller's affinity until they reach thread_pool_work() above; so pin the caller only with
	 * two.
	 */
	if (!thread_pool->pin || thread_pool->threads != 2 || thread_pool->entered)
		return;
	if (sched_getaffinity(0, sizeof(thread_pool->caller), &thread_pool->caller) == 0) {
		cpu_set_t set = thread_pool_nth_cpu(thread_pool, 0);

		thread_pool->entered = sched_setaffinity(0, sizeof(set), &set) == 0;
	}
}

void thread_pool_leave(struct thread_pool *thread_pool)
{
	if (thread_pool->entered)
		sched_setaffinity(0, sizeof(thread_pool->caller), &thread_pool->caller);
	thread_pool->entered = false;
}

void thread_pool_run(struct thread_pool *thread_pool, uint32_t tasks, thread_pool_function function,
		     void *context)
{
	struct thread_pool_job job = {.thread_pool = thread_pool,
				      .function = function,
				      .context = context,
				      .tasks = tasks};

	if (thread_pool->threads == 1 || tasks == 1) {
		for (uint32_t task = 0; task < tasks; task++)
			function(context, task, 0);
		return;
	}
	/* Start and end of the thread pool order the tasks' memory accesses with the caller's. */
	GOMP_parallel(thread_pool_work, &job, thread_pool->threads, 0);
}
