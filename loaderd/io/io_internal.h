/* What io.c, io_copy.c and io_ring.c share. */
#pragma once

#include "loaderd/io/io.h"

#include <pthread.h>
#include <stdatomic.h>

struct io_ring;

struct io {
	struct io_options options;
	pthread_t thread;
	bool started;
	_Atomic bool stopping;
	/* Sleep of the thread: it sets asleep, looks again, and waits for wake_word to change. */
	_Alignas(64) _Atomic uint32_t wake_word;
	_Atomic bool asleep;
	_Atomic uint64_t wake_limit;         /* a limit of units begun that is worth waking for */
	_Atomic uint64_t wake_unit;          /* a unit done that is worth waking for */
	_Alignas(64) _Atomic uint64_t limit; /* units begun */
	uint64_t ahead_units;                /* to run ahead of that */
	struct io_ring *ring;                /* IO_URING */
};

void io_wake(struct io *io);
/*
 * Sleeps unless the condition that the caller has just announced in wake_limit or wake_unit has
 * come true: look(io) says so.
 */
void io_sleep(struct io *io, bool (*look)(struct io *io));
/* Looks up a sample's record, under the guard. */
int io_lookup(struct io *io, uint64_t index, struct packimg_sample *ret_sample);

/*
 * A sample of a dataset that is not mapped, into the worker's buffer: IO_READ. -EBADMSG, -E2BIG
 * beyond the buffer's limit, -ENOMEM; with a sentence.
 */
int io_copy(struct dataset *dataset, uint64_t index, struct io_buffer *buffer,
	    struct packimg_sample *ret_sample, struct packimg_error *error);

int io_ring_new(struct io *io);
void io_ring_free(struct io_ring *ring);
void *io_ring_main(void *argument);
int io_ring_get(struct io *io, uint64_t unit, uint64_t index, struct packimg_sample *ret_sample,
		struct packimg_error *error);
void io_ring_done(struct io *io, uint64_t unit);
void io_ring_stop(struct io *io);
