/*
 * Chores of one worker: how many use a CPU at a time, what happens while they sleep, and their
 * priority. The test is the control thread.
 */
#include "format/base/system/clock.h"
#include "loaderd/worker/chores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 2, MANY = 24, PATIENCE_MS = 60000, BURST_US = 2000, NICE_MAX = 19, NICER = 3 };

struct job {
	struct chore chore; /* first */
	sem_t *begun, *go;
	int nice;
};

static _Atomic unsigned running, most, done;

static void enter(void)
{
	unsigned now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
	while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
		;
}

static void run_busy(struct chore *chore)
{
	enter();
	uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < start_ns + BURST_US * UINT64_C(1000))
		;
	atomic_fetch_sub(&running, 1);
}

static void run_asleep(struct chore *chore)
{
	struct job *job = (struct job *)chore;
	job->nice = getpriority(PRIO_PROCESS, 0);
	sem_post(job->begun);
	while (sem_wait(job->go) < 0)
		;
}

static void run_suspended(struct chore *chore)
{
	chores_suspend();
	run_asleep(chore);
	chores_resume();
	run_busy(chore);
}

static void on_done(struct chore *chore)
{
	atomic_fetch_add(&done, 1);
}

static void begin(struct chores **ret_chores)
{
	atomic_store(&running, 0);
	atomic_store(&most, 0);
	atomic_store(&done, 0);
	assert_int_equal(chores_new(AT_ONCE, ret_chores), 0);
}

static void add(struct chores *chores, struct job *job, void (*run)(struct chore *))
{
	job->chore = (struct chore){.run = run, .done = on_done};
	chores_add(chores, &job->chore);
}

/* Takes one turn of the control thread. */
static void turn(struct chores *chores, bool relieve)
{
	struct pollfd p = {.fd = chores_fd(chores), .events = POLLIN};
	(void)poll(&p, 1, 5);
	chores_finish(chores);
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (relieve && now_ns >= chores_due_ns(chores))
		chores_relieve(chores, now_ns);
}

static void wait_until_done(struct chores *chores, unsigned count, bool relieve)
{
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PATIENCE_MS * UINT64_C(1000000);
	while (atomic_load(&done) < count) {
		turn(chores, relieve);
		assert_true(clock_ns(CLOCK_MONOTONIC) < until_ns);
	}
}

static void wait_until_begun(struct chores *chores, sem_t *begun, unsigned count)
{
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PATIENCE_MS * UINT64_C(1000000);
	while (count > 0) {
		if (sem_trywait(begun) == 0)
			count--;
		else
			turn(chores, true);
		assert_true(clock_ns(CLOCK_MONOTONIC) < until_ns);
	}
}

static void test_few_chores_use_cpus_at_a_time(void **state)
{
	struct chores *chores;
	struct job jobs[MANY];
	begin(&chores);
	for (unsigned i = 0; i < MANY; i++)
		add(chores, &jobs[i], run_busy);
	wait_until_done(chores, MANY, false);
	assert_in_range(atomic_load(&most), 1, AT_ONCE);
	chores_free(chores);
}

/* All that hang begin, and one that does not hang is done meanwhile. */
static void test_chores_that_sleep_hold_up_no_others(void **state)
{
	struct chores *chores;
	struct job jobs[3 * AT_ONCE], last;
	sem_t begun, go;
	const unsigned count = sizeof(jobs) / sizeof(*jobs);
	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	begin(&chores);
	for (unsigned i = 0; i < count; i++) {
		jobs[i].begun = &begun;
		jobs[i].go = &go;
		add(chores, &jobs[i], run_asleep);
	}
	add(chores, &last, run_busy);
	wait_until_begun(chores, &begun, count);
	wait_until_done(chores, 1, true);
	for (unsigned i = 0; i < count; i++)
		sem_post(&go);
	wait_until_done(chores, count + 1, true);
	chores_free(chores);
}

/* Whatever thread runs them: those that are started later, too. */
static void test_chores_are_nicer(void **state)
{
	struct chores *chores;
	struct job jobs[3 * AT_ONCE];
	sem_t begun, go;
	int nice = getpriority(PRIO_PROCESS, 0) + NICER;
	const unsigned count = sizeof(jobs) / sizeof(*jobs);
	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	begin(&chores);
	for (unsigned i = 0; i < count; i++) {
		jobs[i].begun = &begun;
		jobs[i].go = &go;
		add(chores, &jobs[i], run_asleep);
	}
	wait_until_begun(chores, &begun, count);
	for (unsigned i = 0; i < count; i++)
		sem_post(&go);
	wait_until_done(chores, count, true);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(jobs[i].nice, nice > NICE_MAX ? NICE_MAX : nice);
	assert_int_equal(getpriority(PRIO_PROCESS, 0) + NICER, nice);
	chores_free(chores);
}

/* Others run at once, and those that go on are as few at a time as any. */
static void test_suspended_chores_wait_for_their_turn(void **state)
{
	struct chores *chores;
	struct job jobs[MANY], other;
	sem_t begun, go;
	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	begin(&chores);
	for (unsigned i = 0; i < MANY; i++) {
		jobs[i].begun = &begun;
		jobs[i].go = &go;
		add(chores, &jobs[i], run_suspended);
	}
	add(chores, &other, run_busy);
	wait_until_done(chores, 1, false);
	for (unsigned i = 0; i < MANY; i++)
		sem_post(&go);
	wait_until_done(chores, MANY + 1, false);
	assert_in_range(atomic_load(&most), 1, AT_ONCE);
	chores_free(chores);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_chores_use_cpus_at_a_time),
		cmocka_unit_test(test_chores_that_sleep_hold_up_no_others),
		cmocka_unit_test(test_chores_are_nicer),
		cmocka_unit_test(test_suspended_chores_wait_for_their_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
