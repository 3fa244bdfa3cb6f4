/*
 * Asynchronous jobs of one worker: concurrency limit, replacement of blocked jobs, and priority.
 * The test takes the role of the control thread.
 */
#include "format/base/system/clock.h"
#include "loaderd/worker/async_jobs.h"
#include "tests/test.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { AT_ONCE = 2, MANY = 24, PATIENCE_MS = 60000, BURST_US = 2000, NICE_MAX = 19, NICER = 3 };

struct job {
	struct async_job async_job; /* first member: pointers are cast */
	int nice;
};

static _Atomic unsigned running, most, done;
static sem_t begun, go; /* posted when a sleeping job begins; awaited by it */

static void enter(void)
{
	unsigned now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
	while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
		;
}

static void run_busy(struct async_job *async_job)
{
	enter();
	uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < start_ns + BURST_US * UINT64_C(1000))
		;
	atomic_fetch_sub(&running, 1);
}

static void run_asleep(struct async_job *async_job)
{
	struct job *job = (struct job *)async_job;
	job->nice = getpriority(PRIO_PROCESS, 0);
	sem_post(&begun);
	while (sem_wait(&go) < 0)
		;
}

static void run_suspended(struct async_job *async_job)
{
	async_jobs_suspend();
	run_asleep(async_job);
	async_jobs_resume();
	run_busy(async_job);
}

static void on_done(struct async_job *async_job)
{
	atomic_fetch_add(&done, 1);
}

static void begin(struct async_jobs **ret_jobs)
{
	atomic_store(&running, 0);
	atomic_store(&most, 0);
	atomic_store(&done, 0);
	assert_int_equal(async_jobs_new(AT_ONCE, ret_jobs), 0);
}

static void add(struct async_jobs *async_jobs, struct job *job, void (*run)(struct async_job *))
{
	job->async_job = (struct async_job){.run = run, .done = on_done};
	async_jobs_add(async_jobs, &job->async_job);
}

/* Runs one iteration of the control thread. */
static void run_once(struct async_jobs *async_jobs, bool relieve)
{
	struct pollfd p = {.fd = async_jobs_fd(async_jobs), .events = POLLIN};
	(void)poll(&p, 1, 5);
	async_jobs_finish(async_jobs);
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (relieve && now_ns >= async_jobs_due_ns(async_jobs))
		async_jobs_replace_blocked(async_jobs, now_ns);
}

/* Starts jobs that post `begun` and then wait for `go`. */
static void begin_sleepers(struct async_jobs **ret_jobs, struct job *jobs, unsigned count,
			   void (*run)(struct async_job *))
{
	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	begin(ret_jobs);
	for (unsigned i = 0; i < count; i++)
		add(*ret_jobs, &jobs[i], run);
}

/* Ends the jobs that wait for `go`. */
static void wake(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		sem_post(&go);
}

static void wait_until_done(struct async_jobs *async_jobs, unsigned count, bool relieve)
{
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PATIENCE_MS * UINT64_C(1000000);
	while (atomic_load(&done) < count) {
		run_once(async_jobs, relieve);
		assert_true(clock_ns(CLOCK_MONOTONIC) < until_ns);
	}
}

static void wait_until_begun(struct async_jobs *async_jobs, unsigned count)
{
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PATIENCE_MS * UINT64_C(1000000);
	while (count > 0) {
		if (sem_trywait(&begun) == 0)
			count--;
		else
			run_once(async_jobs, true);
		assert_true(clock_ns(CLOCK_MONOTONIC) < until_ns);
	}
}

TEST(busy_jobs_are_limited)
{
	struct async_jobs *async_jobs;
	struct job jobs[MANY];
	begin(&async_jobs);
	for (unsigned i = 0; i < MANY; i++)
		add(async_jobs, &jobs[i], run_busy);
	wait_until_done(async_jobs, MANY, false);
	assert_in_range(atomic_load(&most), 1, AT_ONCE);
	async_jobs_free(async_jobs);
}

/* All blocking jobs start, and a job that does not block finishes meanwhile. */
TEST(sleeping_jobs_do_not_delay_others)
{
	struct async_jobs *async_jobs;
	struct job jobs[3 * AT_ONCE], last;
	const unsigned count = sizeof(jobs) / sizeof(*jobs);
	begin_sleepers(&async_jobs, jobs, count, run_asleep);
	add(async_jobs, &last, run_busy);
	wait_until_begun(async_jobs, count);
	wait_until_done(async_jobs, 1, true);
	wake(count);
	wait_until_done(async_jobs, count + 1, true);
	async_jobs_free(async_jobs);
}

/* All threads run at the lower priority, including those started later. */
TEST(jobs_have_lower_priority)
{
	struct async_jobs *async_jobs;
	struct job jobs[3 * AT_ONCE];
	int nice = getpriority(PRIO_PROCESS, 0) + NICER;
	const unsigned count = sizeof(jobs) / sizeof(*jobs);
	begin_sleepers(&async_jobs, jobs, count, run_asleep);
	wait_until_begun(async_jobs, count);
	wake(count);
	wait_until_done(async_jobs, count, true);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(jobs[i].nice, nice > NICE_MAX ? NICE_MAX : nice);
	assert_int_equal(getpriority(PRIO_PROCESS, 0) + NICER, nice);
	async_jobs_free(async_jobs);
}

/* Other jobs start immediately, and resumed jobs respect the concurrency limit. */
TEST(suspended_jobs_wait_for_their_turn)
{
	struct async_jobs *async_jobs;
	struct job jobs[MANY], other;
	begin_sleepers(&async_jobs, jobs, MANY, run_suspended);
	add(async_jobs, &other, run_busy);
	wait_until_done(async_jobs, 1, false);
	wake(MANY);
	wait_until_done(async_jobs, MANY + 1, false);
	assert_in_range(atomic_load(&most), 1, AT_ONCE);
	async_jobs_free(async_jobs);
}
