/*
 * The list of batches that a client wants: limits, copy numbers, forgetting, and reuse of entries.
 */
#include "loaderd/order/wants.h"
#include "tests/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SLOTS = 3, BATCH = 8, SAMPLES = 100 };

static struct wants *make_wants(void)
{
	struct wants *wants = wants_new(SLOTS, BATCH, SAMPLES);
	assert_non_null(wants);
	return wants;
}

static void add(struct wants *wants, uint64_t epoch, uint64_t first, size_t count)
{
	uint64_t samples[BATCH];
	size_t position;
	for (size_t i = 0; i < count; i++)
		samples[i] = (first + i) % SAMPLES;
	assert_int_equal(wants_add(wants, epoch, samples, count, &position), 0);
}

TEST(bounds)
{
	struct wants *wants = make_wants();
	uint64_t samples[BATCH + 1] = {0};
	size_t position;
	assert_int_equal(wants_add(wants, 0, samples, 0, &position), -EINVAL);
	assert_int_equal(wants_add(wants, 0, samples, BATCH + 1, &position), -EINVAL);
	samples[5] = SAMPLES;
	assert_int_equal(wants_add(wants, 0, samples, BATCH, &position), -ERANGE);
	assert_int_equal(position, 5);
	samples[5] = UINT64_MAX;
	assert_int_equal(wants_add(wants, 0, samples, BATCH, &position), -ERANGE);
	assert_int_equal(wants_added(wants), 0);
	assert_false(wants_waiting(wants));
	assert_int_equal(wants_epoch(wants, 0), 0);
	samples[5] = SAMPLES - 1;
	for (unsigned i = 0; i < SLOTS + WANTS_AHEAD; i++)
		assert_int_equal(wants_add(wants, UINT64_MAX, samples, BATCH, &position), 0);
	assert_int_equal(wants_add(wants, 0, samples, 1, &position), -ENOBUFS);
	struct order_slice slice;
	assert_int_equal(wants_take(wants, &slice), UINT64_MAX);
	assert_int_equal(wants_add(wants, 0, samples, 1, &position), 0);
	assert_int_equal(wants_add(wants, 0, samples, 1, &position), -ENOBUFS);
	wants_free(wants);
}

TEST(copies_are_numbered_in_the_order_of_the_list)
{
	static const uint64_t samples[BATCH] = {7, 99, 7, 0, 99, 7, 7, 1};
	static const uint32_t copies[BATCH] = {0, 0, 1, 0, 1, 2, 3, 0};
	struct wants *wants = make_wants();
	struct order_slice slice;
	size_t position;
	assert_int_equal(wants_add(wants, 4, samples, BATCH, &position), 0);
	assert_int_equal(wants_take(wants, &slice), 4);
	assert_int_equal(slice.count, BATCH);
	assert_false(slice.last);
	for (uint32_t i = 0; i < BATCH; i++) {
		struct order_item item = order_slice_at(&slice, i);
		assert_int_equal(item.sample, samples[i]);
		assert_int_equal(item.copy, copies[i]);
	}
	wants_free(wants);
}

/* A batch's list does not change while `slots` batches are in work and the maximum number waits. */
TEST(lists_in_work_are_not_overwritten)
{
	struct wants *wants = make_wants();
	struct order_slice work[SLOTS];
	uint64_t added = 0, sample;
	for (uint64_t taken = 0; taken < 500; taken++) {
		while (added < taken + SLOTS + WANTS_AHEAD) {
			add(wants, added, added * 3, 1 + added % BATCH);
			added++;
		}
		/* Read-ahead may still need the oldest batch in work. */
		for (uint64_t n = taken < SLOTS ? 0 : taken - SLOTS; n < added; n++) {
			assert_int_equal(wants_sample(wants, n, 0, &sample), 1);
			assert_int_equal(sample, n * 3 % SAMPLES);
		}
		assert_int_equal(wants_take(wants, &work[taken % SLOTS]), taken);
		for (uint64_t n = taken < SLOTS ? 0 : taken - SLOTS + 1; n <= taken; n++) {
			const struct order_slice *slice = &work[n % SLOTS];
			assert_int_equal(slice->count, 1 + n % BATCH);
			for (uint32_t i = 0; i < slice->count; i++)
				assert_int_equal(order_slice_at(slice, i).sample,
						 (n * 3 + i) % SAMPLES);
		}
	}
	wants_free(wants);
}

TEST(read_ahead_finds_what_is_known)
{
	struct wants *wants = make_wants();
	struct order_walk walk = {.wants = wants, .order = {.batch_size = BATCH}};
	struct order_slice slice;
	uint64_t sample;
	add(wants, 0, 10, 2);
	add(wants, 1, 20, BATCH);
	assert_int_equal(order_walk_at(&walk, 1, &sample), 1);
	assert_int_equal(sample, 11);
	assert_int_equal(order_walk_at(&walk, 2, &sample), 0);
	assert_int_equal(order_walk_at(&walk, BATCH + 7, &sample), 1);
	assert_int_equal(sample, 27);
	for (unsigned i = 0; i < 2 * SLOTS + WANTS_AHEAD; i++) {
		wants_take(wants, &slice);
		add(wants, 2, 30, 1);
	}
	/* A later batch uses the entry now. */
	assert_int_equal(order_walk_at(&walk, 1, &sample), 0);
	wants_free(wants);
}

TEST(forgotten_batches_are_taken_empty)
{
	struct wants *wants = make_wants();
	struct order_slice slice;
	add(wants, 1, 0, 4);
	add(wants, 2, 0, 4);
	add(wants, 3, 0, 4);
	wants_take(wants, &slice);
	wants_forget(wants);
	add(wants, 4, 50, 4);
	assert_int_equal(slice.count, 4);
	assert_int_equal(wants_take(wants, &slice), 2);
	assert_int_equal(slice.count, 0);
	assert_int_equal(wants_take(wants, &slice), 3);
	assert_int_equal(slice.count, 0);
	assert_int_equal(wants_take(wants, &slice), 4);
	assert_int_equal(slice.count, 4);
	assert_int_equal(order_slice_at(&slice, 0).sample, 50);
	assert_false(wants_waiting(wants));
	assert_int_equal(wants_epoch(wants, 1), 2);
	assert_int_equal(wants_epoch(wants, 9), 4);
	wants_free(wants);
}

/*
 * Three threads, as in a worker: one adds and forgets batches, one takes them and reads the lists
 * in work, one looks samples up. Every entry of batch n's list is the sample n % SAMPLES.
 */
enum { THREADED_BATCHES = 20000 };

struct thread_state {
	struct wants *wants;
	_Atomic uint64_t added, taken;
	_Atomic unsigned wrong;
};

static bool is_batch(const struct order_slice *slice, uint64_t n)
{
	for (uint32_t i = 0; i < slice->count; i++)
		if (order_slice_at(slice, i).sample != n % SAMPLES ||
		    order_slice_at(slice, i).copy != i)
			return false;
	return true;
}

static void *take_all(void *argument)
{
	struct thread_state *t = argument;
	struct order_slice work[SLOTS] = {0};
	for (uint64_t n = 0; n < THREADED_BATCHES; n++) {
		while (!wants_waiting(t->wants))
			sched_yield();
		t->wrong += wants_take(t->wants, &work[n % SLOTS]) != n;
		for (uint64_t m = n < SLOTS ? 0 : n - SLOTS + 1; m <= n; m++)
			t->wrong += !is_batch(&work[m % SLOTS], m);
		t->taken = n + 1;
	}
	return NULL;
}

static void *look_up(void *argument)
{
	struct thread_state *t = argument;
	uint64_t sample;
	for (uint64_t n = 0; t->taken < THREADED_BATCHES; n++) {
		uint64_t added = t->added, back = n % (2 * SLOTS + WANTS_AHEAD + 3);
		if (back >= added)
			continue;
		uint64_t number = added - 1 - back;
		if (wants_sample(t->wants, number, (uint32_t)n % BATCH, &sample) == 1)
			t->wrong += sample != number % SAMPLES;
	}
	return NULL;
}

TEST(threads_read_what_was_added)
{
	struct thread_state t = {.wants = make_wants()};
	pthread_t taker, reader;
	assert_int_equal(pthread_create(&taker, NULL, take_all, &t), 0);
	assert_int_equal(pthread_create(&reader, NULL, look_up, &t), 0);
	for (uint64_t n = 0; n < THREADED_BATCHES; n++) {
		uint64_t samples[BATCH];
		size_t position;
		for (unsigned i = 0; i < BATCH; i++)
			samples[i] = n % SAMPLES;
		while (wants_add(t.wants, n, samples, 1 + n % BATCH, &position) == -ENOBUFS)
			sched_yield();
		t.added = n + 1;
		if (n % 64 == 0)
			wants_forget(t.wants);
	}
	pthread_join(taker, NULL);
	pthread_join(reader, NULL);
	assert_int_equal(t.wrong, 0);
	wants_free(t.wants);
}
