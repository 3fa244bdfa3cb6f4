/* Shared by io.c, io_copy.c and io_ring.c. */
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
	/*
	 * Futex word. To sleep, the thread sets `asleep`, checks for work again, and waits for
	 * wake_word to change.
	 */
	_Alignas(64) _Atomic uint32_t wake_word;
	_Atomic bool asleep;
	_Atomic uint64_t wake_limit; /* wake the thread once `limit` reaches this */
	_Atomic uint64_t wake_unit;  /* wake the thread once this unit or a later one is done */
	_Alignas(64) _Atomic uint64_t limit; /* end of the units begun */
	_Atomic uint64_t known;              /* end of the units whose samples are known */
	uint64_t known_seen;  /* `known` when the thread last looked; the thread's own */
	uint64_t ahead_units; /* read-ahead distance beyond `limit` */
	struct io_ring *ring; /* NULL unless IO_URING */
};

void io_wake(struct io *io);
/* Returns the end of the units that the thread may read ahead now. Thread only. */
uint64_t io_target(struct io *io);
/* Returns true if more units are known than io_target() saw. Thread only. */
bool io_more_known(const struct io *io);
/*
 * Sleeps until io_wake(), unless look(io) shows that the condition just stored in wake_limit or
 * wake_unit already holds.
 */
void io_sleep(struct io *io, bool (*look)(struct io *io));
/* Number of images that are read of each sample: the first, and io_options.images. */
uint32_t io_part_count(const struct io *io);
/*
 * Looks up the record of one of these images inside the guard. Returns 0, or the errors of
 * packimg_image(), such as -ENODATA.
 */
int io_lookup(struct io *io, uint64_t index, uint32_t part, struct packimg_sample *ret_image);

/*
 * Copies the stored bytes of a sample, or of a further image of one, to `buffer`, to which the
 * pointers of *sample then lead. Returns IO_READ, or a negative errno with error->text set.
 */
int io_copy_sample(struct dataset *dataset, struct packimg_sample *sample, struct io_buffer *buffer,
		   struct packimg_error *error);
/*
 * Copies a sample of an unmapped dataset to the worker's buffer. Returns IO_READ, -EBADMSG, -E2BIG
 * if the sample exceeds the buffer's limit, or -ENOMEM. Errors set error->text.
 */
int io_copy(struct dataset *dataset, uint64_t index, struct io_buffer *buffer,
	    struct packimg_sample *ret_sample, struct packimg_error *error);

int io_ring_new(struct io *io);
void io_ring_free(struct io_ring *ring);
void *io_ring_main(void *argument);
int io_ring_get(struct io *io, uint64_t unit, uint64_t index, struct packimg_sample *ret_sample,
		struct packimg_error *error);
/*
 * Provides a further image of the unit that io_get() has returned. Returns IO_READ, or IO_MAPPED if
 * its bytes are not in the ring's buffer.
 */
int io_ring_image(struct io *io, uint64_t unit, uint32_t image, struct packimg_sample *ret_image);
void io_ring_done(struct io *io, uint64_t unit);
void io_ring_stop(struct io *io);
