/*
 * Threads that close fds, and threads that do other blocking work: neither kind delays unrelated
 * work.
 */
#include "loaderd/supervisor/blocking_pool.h"
#include "tests/test.h"

#include <semaphore.h>
#include <sys/socket.h>

enum { KEYS = 16, OTHERS = 12 /* one less than the number of threads for slow work */ };

struct work {
	sem_t begun, may_end, done;
};

static struct work slow, quick;

static void begin(struct blocking_pool **ret_pool)
{
	struct work *works[] = {&slow, &quick};
	for (unsigned i = 0; i < 2; i++) {
		sem_init(&works[i]->begun, 0, 0);
		sem_init(&works[i]->may_end, 0, 0);
		sem_init(&works[i]->done, 0, 0);
	}
	assert_int_equal(blocking_pool_new(ret_pool), 0);
}

static void end_slow(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		sem_post(&slow.may_end);
	for (unsigned i = 0; i < count; i++)
		sem_wait(&slow.done);
}

static void wait_to_end(void *context)
{
	struct work *work = context;
	sem_post(&work->begun);
	sem_wait(&work->may_end);
	sem_post(&work->done);
}

static void assert_closes(struct blocking_pool *pool, uint32_t key)
{
	int pair[2];
	char byte;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	blocking_pool_close(pool, key, pair[0]);
	assert_int_equal(read(pair[1], &byte, 1), 0);
	close(pair[1]);
}

TEST(slow_work_does_not_delay_closing)
{
	struct blocking_pool *pool;
	begin(&pool);
	for (unsigned i = 0; i < OTHERS; i++)
		assert_true(blocking_pool_run(pool, 0, true, wait_to_end, &slow));
	for (unsigned i = 0; i < OTHERS; i++)
		sem_wait(&slow.begun);
	for (uint32_t key = 0; key < KEYS; key++) {
		assert_closes(pool, key);
		sem_post(&quick.may_end);
		assert_true(blocking_pool_run(pool, 0, true, wait_to_end, &quick));
		sem_wait(&quick.done);
	}
	end_slow(OTHERS);
	blocking_pool_free(pool);
}

/* Submits more slow work than there are threads, until the pool considers every submitter slow. */
TEST(slow_work_does_not_block_quick_work)
{
	enum { SLOW = 40 };
	struct blocking_pool *pool;
	begin(&pool);
	for (unsigned i = 0; i < SLOW; i++)
		assert_true(blocking_pool_run(pool, i, true, wait_to_end, &slow));
	sem_post(&quick.may_end);
	assert_true(blocking_pool_run(pool, 0, false, wait_to_end, &quick));
	sem_wait(&quick.done);
	end_slow(SLOW);
	blocking_pool_free(pool);
}
