#include "trainer/device/cpu/team.h"

#include "format/base/system/cgroup.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* The libgomp entry point that compilers emit calls to, and two OpenMP functions. */
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
void omp_set_num_threads(int threads);

struct team_job {
	struct team *team;
	team_function function;
	void *context;
	uint32_t tasks;
	_Atomic uint32_t next;
};

static _Thread_local bool placed; /* this worker is pinned */

int team_init(struct team *team, unsigned threads, unsigned sharers)
{
	struct cgroup_limits limits;
	unsigned allowed, granted;

	memset(team, 0, sizeof(*team));
	if (sched_getaffinity(0, sizeof(team->allowed), &team->allowed) < 0) {
		team->threads = threads ? threads : 1;
		return 0;
	}
	allowed = (unsigned)CPU_COUNT(&team->allowed);
	cgroup_read("", &limits);
	granted = limits.cpus < allowed ? limits.cpus : allowed;
	team->cpus = granted > sharers ? granted / sharers : 1;
	team->threads = threads ? threads : team->cpus;
	if (team->threads > 4096)
		return -EINVAL;
	/*
	 * Pin only if all CPUs are used: with fewer threads, another process may choose the same
	 * CPUs, and sharers certainly do.
	 */
	team->pin = team->threads > 1 && team->threads == allowed && sharers == 1;
	return 0;
}

/* The number'th allowed CPU, as a set. */
static cpu_set_t team_nth_cpu(const struct team *team, unsigned number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &team->allowed))
			continue;
		if (number-- == 0) {
			CPU_SET(cpu, &set);
			break;
		}
	}
	return set;
}

static void team_work(void *data)
{
	struct team_job *job = data;
	unsigned thread = (unsigned)omp_get_thread_num();
	uint32_t task;

	if (job->team->pin && thread && !placed) {
		cpu_set_t set = team_nth_cpu(job->team, thread);

		sched_setaffinity(0, sizeof(set), &set);
		placed = true;
	}
	while ((task = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->tasks)
		job->function(job->context, task, thread);
}

void team_enter(struct team *team)
{
	omp_set_num_threads((int)team->threads);
	/*
	 * With more than two threads, libgomp may replace threads, and new ones inherit the
	 * caller's affinity until they reach team_work() above; so pin the caller only with two.
	 */
	if (!team->pin || team->threads != 2 || team->entered)
		return;
	if (sched_getaffinity(0, sizeof(team->caller), &team->caller) == 0) {
		cpu_set_t set = team_nth_cpu(team, 0);

		team->entered = sched_setaffinity(0, sizeof(set), &set) == 0;
	}
}

void team_leave(struct team *team)
{
	if (team->entered)
		sched_setaffinity(0, sizeof(team->caller), &team->caller);
	team->entered = false;
}

void team_run(struct team *team, uint32_t tasks, team_function function, void *context)
{
	struct team_job job = {
		.team = team, .function = function, .context = context, .tasks = tasks};

	if (team->threads == 1 || tasks == 1) {
		for (uint32_t task = 0; task < tasks; task++)
			function(context, task, 0);
		return;
	}
	/* Start and end of the team order the tasks' memory accesses with the caller's. */
	GOMP_parallel(team_work, &job, team->threads, 0);
}
