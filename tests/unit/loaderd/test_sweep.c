/*
 * Sweeps of the ring quota take a small fraction of the supervisor's time, however often workers
 * trigger them: a sweep checks each ring of all users. The test replaces ring_quota_sweep() with a
 * slow function.
 */
#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager_internal.h"
#include "tests/test.h"

#define TAKES_NS  (5 * MS_NS)
#define WATCH_NS  (SECOND_NS / 2)
#define CPU_SHARE 10 /* at most 1/10 of the time; the supervisor allows 1/20 */

static unsigned sweeps;

bool __wrap_ring_quota_sweep(struct ring_quota *quota, bool all);

bool __wrap_ring_quota_sweep(struct ring_quota *quota, bool all)
{
	const uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	sweeps++;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < start_ns + TAKES_NS)
		;
	return true;
}

TEST(sweeps_take_a_small_fraction_of_the_time)
{
	static struct worker_manager manager;
	static struct user user; /* the manager has one user */
	const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	uint64_t now_ns = start_ns;
	manager.users = &user;
	user.ring_usage.rings = 1;
	manager.renewal_due_ns = manager.retry_pending_ns = UINT64_MAX;
	for (; now_ns < start_ns + WATCH_NS; now_ns = clock_ns(CLOCK_MONOTONIC)) {
		(void)manager_sweep(&manager, NULL); /* simulates a refused ring */
		manager.sweep_due_ns = 0;            /* simulates a released ring */
		manager_on_time(&manager, now_ns);
		assert_true(manager_due_ns(&manager) > now_ns);
	}
	assert_in_range(sweeps, 1, (now_ns - start_ns) / (CPU_SHARE * TAKES_NS) + 1);
}
