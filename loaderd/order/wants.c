#include "loaderd/order/wants.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct want {
	uint64_t epoch;
	uint32_t count;
};

struct wants {
	pthread_mutex_t mutex;
	uint64_t samples; /* in the dataset */
	uint32_t batch_size;
	uint32_t waiting_max; /* batches that may wait to be taken */
	uint32_t capacity;    /* entries: those that may wait, one for each slot, one to write */
	uint64_t added, taken;
	struct want *list;        /* [capacity]; batch n is at n % capacity */
	uint64_t *sample_lists;   /* [capacity][batch_size] */
	uint32_t *copy_lists;     /* [capacity][batch_size] */
	struct order_item *items; /* [batch_size], scratch of wants_add() */
};

static uint32_t capacity_of(uint32_t slots)
{
	return 2 * slots + WANTS_AHEAD + 1;
}

uint64_t wants_bytes(uint32_t slots, uint32_t batch_size)
{
	uint64_t lists = sizeof(uint64_t) + sizeof(uint32_t);
	return sizeof(struct wants) + batch_size * sizeof(struct order_item) +
	       (uint64_t)capacity_of(slots) * (sizeof(struct want) + batch_size * lists);
}

struct wants *wants_new(uint32_t slots, uint32_t batch_size, uint64_t samples)
{
	struct wants *wants = calloc(1, sizeof(*wants));
	if (!wants)
		return NULL;
	size_t entries = (size_t)capacity_of(slots) * batch_size;
	*wants = (struct wants){
		.samples = samples,
		.batch_size = batch_size,
		.waiting_max = slots + WANTS_AHEAD,
		.capacity = capacity_of(slots),
		.list = calloc(capacity_of(slots), sizeof(*wants->list)),
		.sample_lists = calloc(entries, sizeof(*wants->sample_lists)),
		.copy_lists = calloc(entries, sizeof(*wants->copy_lists)),
		.items = calloc(batch_size, sizeof(*wants->items)),
	};
	pthread_mutex_init(&wants->mutex, NULL);
	if (!wants->list || !wants->sample_lists || !wants->copy_lists || !wants->items) {
		wants_free(wants);
		return NULL;
	}
	return wants;
}

void wants_free(struct wants *wants)
{
	if (!wants)
		return;
	pthread_mutex_destroy(&wants->mutex);
	free(wants->list);
	free(wants->sample_lists);
	free(wants->copy_lists);
	free(wants->items);
	free(wants);
}

/* Here `copy` is the position in the list: equal samples are in the list's order. */
static int compare_items(const void *a, const void *b)
{
	const struct order_item *x = a, *y = b;
	if (x->sample != y->sample)
		return x->sample < y->sample ? -1 : 1;
	return x->copy < y->copy ? -1 : 1;
}

/* Numbers the occurrences of each sample, 0, 1, 2 ... in the list's order. */
static void number_copies(struct wants *wants, const uint64_t *samples, uint32_t count,
			  uint32_t *ret_copies)
{
	struct order_item *items = wants->items;
	for (uint32_t i = 0; i < count; i++)
		items[i] = (struct order_item){samples[i], i};
	qsort(items, count, sizeof(*items), compare_items);
	for (uint32_t i = 0, copy = 0; i < count; i++) {
		copy = i > 0 && items[i].sample == items[i - 1].sample ? copy + 1 : 0;
		ret_copies[items[i].copy] = copy;
	}
}

int wants_add(struct wants *wants, uint64_t epoch, const uint64_t *samples, size_t count,
	      size_t *ret_position)
{
	if (count == 0 || count > wants->batch_size)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		*ret_position = i;
		if (samples[i] >= wants->samples)
			return -ERANGE;
	}
	pthread_mutex_lock(&wants->mutex);
	bool full = wants->added - wants->taken >= wants->waiting_max;
	pthread_mutex_unlock(&wants->mutex);
	if (full)
		return -ENOBUFS;
	/* Pool threads need the lock, and sorting takes milliseconds: nobody reads this entry. */
	size_t entry = wants->added % wants->capacity;
	size_t first = entry * wants->batch_size;
	wants->list[entry] = (struct want){epoch, (uint32_t)count};
	memcpy(wants->sample_lists + first, samples, count * sizeof(*samples));
	number_copies(wants, samples, (uint32_t)count, wants->copy_lists + first);
	pthread_mutex_lock(&wants->mutex);
	wants->added++;
	pthread_mutex_unlock(&wants->mutex);
	return 0;
}

void wants_forget(struct wants *wants)
{
	pthread_mutex_lock(&wants->mutex);
	for (uint64_t number = wants->taken; number < wants->added; number++)
		wants->list[number % wants->capacity].count = 0;
	pthread_mutex_unlock(&wants->mutex);
}

uint64_t wants_added(struct wants *wants)
{
	pthread_mutex_lock(&wants->mutex);
	uint64_t added = wants->added;
	pthread_mutex_unlock(&wants->mutex);
	return added;
}

bool wants_waiting(struct wants *wants)
{
	pthread_mutex_lock(&wants->mutex);
	bool waiting = wants->taken < wants->added;
	pthread_mutex_unlock(&wants->mutex);
	return waiting;
}

uint64_t wants_take(struct wants *wants, struct order_slice *ret_slice)
{
	pthread_mutex_lock(&wants->mutex);
	assert(wants->taken < wants->added);
	size_t entry = wants->taken++ % wants->capacity;
	size_t first = entry * wants->batch_size;
	struct want want = wants->list[entry];
	*ret_slice = (struct order_slice){
		.count = want.count,
		.samples = wants->sample_lists + first,
		.copies = wants->copy_lists + first,
	};
	pthread_mutex_unlock(&wants->mutex);
	return want.epoch;
}

uint64_t wants_epoch(struct wants *wants, uint64_t number)
{
	pthread_mutex_lock(&wants->mutex);
	if (number >= wants->added)
		number = wants->added - 1;
	uint64_t epoch = wants->added == 0 ? 0 : wants->list[number % wants->capacity].epoch;
	pthread_mutex_unlock(&wants->mutex);
	return epoch;
}

int wants_sample(struct wants *wants, uint64_t number, uint32_t position, uint64_t *ret_sample)
{
	size_t entry = number % wants->capacity;
	pthread_mutex_lock(&wants->mutex);
	assert(number < wants->added);
	/* wants_add() may be writing the entry of batch added - capacity. */
	bool there = number + wants->capacity > wants->added && position < wants->list[entry].count;
	if (there)
		*ret_sample = wants->sample_lists[entry * wants->batch_size + position];
	pthread_mutex_unlock(&wants->mutex);
	return there;
}
