/*
 * However often workers give cause to sweep the quota, it takes the supervisor a small part of its
 * time: a sweep asks the kernel about each ring of all users. ring_quota_sweep() is the test's, and
 * takes long.
 */
#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TAKES_NS  (5 * MS_NS)
#define WATCH_NS  (SECOND_NS / 2)
#define CPU_SHARE 10 /* no more than one part in so many; the supervisor allows one in 20 */

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

static void test_sweeps_take_a_small_part_of_the_time(void **state)
{
	static struct worker_manager manager;
	static struct user user; /* somebody is there */
	const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	uint64_t now_ns = start_ns;
	manager.users = &user;
	user.ring_usage.rings = 1;
	manager.renewal_due_ns = manager.retry_pending_ns = UINT64_MAX;
	for (; now_ns < start_ns + WATCH_NS; now_ns = clock_ns(CLOCK_MONOTONIC)) {
		(void)manager_sweep(&manager, NULL); /* a ring that is refused */
		manager.sweep_due_ns = 0;            /* one that is given back */
		manager_on_time(&manager, now_ns);
		assert_true(manager_due_ns(&manager) > now_ns);
	}
	assert_in_range(sweeps, 1, (now_ns - start_ns) / (CPU_SHARE * TAKES_NS) + 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sweeps_take_a_small_part_of_the_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
