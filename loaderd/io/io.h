/*
 * How one feed's stored bytes come from the file: read-ahead of exactly the samples that come next.
 * Two ways, fixed when the feed opens.
 *
 * IO_MMAP: workers read the dataset's mapping; a thread asks the kernel for the ranges of coming
 * samples. While probes find them in the page cache it does nothing but probe now and then. Of a
 * dataset that is not mapped workers copy each sample to a buffer of their own; without read-ahead.
 * IO_URING: a thread keeps reads of coming samples under way, past the page cache (O_DIRECT), into
 * a buffer of bounded size; workers wait for what they need. For datasets larger than memory, where
 * the page cache would only be churned. What cannot be read so is left to the first way.
 *
 * Made and freed with the batcher; io_get, io_done and io_begun are for its workers. loaderd(1),
 * READING.
 */
#pragma once

#include "loaderd/io/dataset.h"
#include "loaderd/io/order.h"

#include <stdbool.h>
#include <stdint.h>

enum io_mode { IO_AUTO = 0, IO_MMAP = 1, IO_URING = 2 };
enum io_place {
	IO_MAPPED = 0, /* read it from the mapping */
	IO_READ = 1,   /* the sample's bytes are in the buffer */
};

struct io;

/*
 * Memory of one worker for the stored bytes of one sample of a dataset that is not mapped. Starts
 * zeroed but for its limit. It grows to what samples need, and shrinks again at the next sample of
 * ordinary size.
 */
struct io_buffer {
	uint8_t *bytes;
	uint64_t size;
	uint64_t limit; /* of size for a sample; 0: none */
};

struct io_options {
	struct dataset *dataset;
	struct order_walk walk; /* of the feed */
	enum io_mode mode;      /* not IO_AUTO */
	uint64_t bytes;         /* to run ahead of the workers; the size of the buffer */
	unsigned queue_depth;   /* reads under way at most */
	/*
	 * [direct_count] descriptors of the first files, opened with O_DIRECT; the owner keeps them
	 * open
	 */
	const int *direct;
	uint32_t direct_count;
};

enum { IO_DIRECT_MAX = 512 }; /* files beyond are read through the page cache */

/* What AUTO means for a dataset of this size: IO_URING when it does not fit the memory there is. */
enum io_mode io_choose(uint64_t dataset_bytes, uint64_t memory_bytes);
/*
 * True when this build and this kernel can do IO_URING, and there is a ring left if they were
 * reserved.
 */
bool io_can_uring(void);
/*
 * Makes rings before a sandbox forbids it: so many feeds at a time can be read by IO_URING
 * afterwards, with reads of queue_depth at once. They can do nothing but read, whatever is asked of
 * them. Fewer where the system has no more; an error, which says why, where it has none at all.
 * Once, before feeds.
 */
int io_reserve(unsigned rings, unsigned queue_depth);
/* -ENOMEM, or what thread and ring creation answer. */
int io_new(const struct io_options *options, struct io **ret_io);
/* No worker uses it any more. Waits for reads under way. Accepts NULL. */
void io_free(struct io *io);
enum io_mode io_mode_of(const struct io *io);

/*
 * Units below `limit` will be asked for soon. Cheap: wakes the thread only when it waits for that.
 */
void io_begun(struct io *io, uint64_t limit);
/*
 * The stored bytes of a unit that this worker has claimed, which is sample `index`. IO_READ:
 * *ret_sample is complete, its data and side lead into the buffer until io_done(), or into the
 * worker's until its next use. IO_MAPPED: only where the dataset is mapped. May wait for the file.
 * Negative errno: it cannot be read, with a sentence in error; -ECANCELED after io_stop().
 */
int io_get(struct io *io, uint64_t unit, uint64_t index, struct io_buffer *buffer,
	   struct packimg_sample *ret_sample, struct packimg_error *error);
/* The same for any other sample; without io_done() afterwards. */
int io_get_other(struct io *io, uint64_t index, struct io_buffer *buffer,
		 struct packimg_sample *ret_sample, struct packimg_error *error);
/*
 * The unit's bytes are not needed any more. After every io_get() that was not cancelled, whatever
 * else it returned.
 */
void io_done(struct io *io, uint64_t unit);
/* Ends all waiting. */
void io_stop(struct io *io);

/* At least size bytes of it, whatever its limit, aligned to 64; NULL: out of memory. */
uint8_t *io_buffer_take(struct io_buffer *buffer, uint64_t size);
void io_buffer_deinit(struct io_buffer *buffer);
