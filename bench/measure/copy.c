#include "bench/measure/copy.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure/client.h"
#include "format/base/system/clock.h"

enum {
	BUFFER_SIZE = 96 << 20,
	CHUNK_SIZE = 8 << 20, /* the clock is read after each chunk */
};

enum copy_order { COPY_WAIT, COPY_GO, COPY_LEAVE };

struct copy_thread {
	pthread_t thread;
	uint8_t *source, *target;
	_Atomic uint32_t *order; /* enum copy_order, shared by all threads */
	uint64_t window_ns;
	double bytes_per_s;
};

static void *copier_run(void *argument)
{
	struct copy_thread *copier = argument;
	uint32_t order;
	size_t offset = 0;
	uint64_t bytes = 0, now;

	while ((order = atomic_load(copier->order)) == COPY_WAIT)
		sched_yield();
	if (order == COPY_LEAVE)
		return NULL;
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	do {
		memcpy(copier->target + offset, copier->source + offset, CHUNK_SIZE);
		offset = (offset + CHUNK_SIZE) % BUFFER_SIZE;
		bytes += CHUNK_SIZE;
		now = clock_ns(CLOCK_MONOTONIC);
	} while (now - start < copier->window_ns);
	copier->bytes_per_s = (double)bytes / ((double)(now - start) * 1e-9);
	return NULL;
}

/* Allocates the buffers and touches every page. */
static int copier_init(struct copy_thread *copier)
{
	copier->source = malloc(BUFFER_SIZE);
	copier->target = malloc(BUFFER_SIZE);
	if (!copier->source || !copier->target)
		return -ENOMEM;
	memset(copier->source, 1, BUFFER_SIZE);
	memset(copier->target, 2, BUFFER_SIZE);
	return 0;
}

double copy_measure(unsigned threads, double seconds)
{
	struct copy_thread *copiers = calloc(threads, sizeof(*copiers));
	_Atomic uint32_t order = COPY_WAIT;
	unsigned started = 0;
	double sum = 0;
	int r = copiers && threads ? 0 : -ENOMEM;

	for (unsigned i = 0; i < threads && !r; i++) {
		copiers[i].order = &order;
		copiers[i].window_ns = (uint64_t)(seconds * 1e9);
		r = copier_init(&copiers[i]);
	}
	while (!r && started < threads) {
		r = -pthread_create(&copiers[started].thread, NULL, copier_run, &copiers[started]);
		started += !r;
	}
	atomic_store(&order, r ? COPY_LEAVE : COPY_GO);
	for (unsigned i = 0; i < started; i++) {
		pthread_join(copiers[i].thread, NULL);
		sum += copiers[i].bytes_per_s;
	}
	for (unsigned i = 0; copiers && i < threads; i++) {
		free(copiers[i].source);
		free(copiers[i].target);
	}
	free(copiers);
	return r ? r : sum;
}
