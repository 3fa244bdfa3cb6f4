/*
 * Reads one feed's stored bytes, with read-ahead of exactly the samples that come next: of their
 * first image, and of those further images that the feed delivers. There are two modes; a feed's
 * mode is fixed when it opens.
 *
 * IO_MMAP: workers read the dataset's mapping; a thread calls madvise(MADV_WILLNEED) for the ranges
 * of coming samples. While the data are in the page cache, it only probes now and then. If the
 * dataset is not mapped, each worker copies its sample to its own buffer, without read-ahead.
 *
 * IO_URING: a thread keeps reads of coming samples in flight, with O_DIRECT past the page cache,
 * into a buffer of bounded size; workers wait for their samples. Use it for datasets larger than
 * memory, which would only thrash the page cache. Samples that cannot be read this way fall back to
 * IO_MMAP.
 *
 * Created and freed with the batcher. Its workers call io_get, io_done and io_begun. See
 * loaderd(1), READING.
 */
#pragma once

#include "format/base/schema.h"
#include "loaderd/io/dataset.h"
#include "loaderd/order/order.h"

#include <stdbool.h>
#include <stdint.h>

enum io_mode { IO_AUTO = 0, IO_MMAP = 1, IO_URING = 2 };
enum io_place {
	IO_MAPPED = 0, /* read the sample from the mapping */
	IO_READ = 1,   /* the sample's bytes are in a buffer */
};

struct filling;
struct io;

/*
 * A worker's memory for the stored bytes of one sample of an unmapped dataset. Zero-initialise all
 * but `limit`. It grows as needed and shrinks again at the next sample of ordinary size.
 */
struct io_buffer {
	uint8_t *bytes;
	uint64_t size;
	uint64_t limit; /* largest size for a sample; 0 if unlimited */
};

struct io_options {
	struct dataset *dataset;
	struct order_walk walk; /* the feed's units */
	enum io_mode mode;      /* not IO_AUTO */
	uint64_t bytes;         /* read-ahead distance; in IO_URING mode also the buffer size */
	unsigned queue_depth;   /* maximum number of reads in flight */
	/* The further images that the feed delivers, each once. */
	uint8_t images[SCHEMA_IMAGES_MAX];
	uint32_t image_count;
	/*
	 * [direct_count] fds of the first files, opened with O_DIRECT. The owner keeps them open.
	 */
	const int *direct;
	uint32_t direct_count;
	struct filling *filling; /* of files that are being filled, else NULL; not owned */
};

enum { IO_DIRECT_MAX = 512 }; /* further files are read through the page cache */
#define IO_NO_UNIT UINT64_MAX

/*
 * Resolves IO_AUTO for a dataset of this size: IO_URING if the dataset exceeds three quarters of
 * memory and io_can_uring(), else IO_MMAP.
 */
enum io_mode io_choose(uint64_t dataset_bytes, uint64_t memory_bytes);
/*
 * Returns true if build and kernel support IO_URING and a ring is available. After io_reserve(),
 * only reserved rings count.
 */
bool io_can_uring(void);
/*
 * Creates rings before a sandbox forbids it. Afterwards at most `rings` feeds at a time can use
 * IO_URING, with up to queue_depth reads in flight each. The rings accept only reads. Creates fewer
 * rings if the system has no more; returns an error only if it cannot create any. Call it once,
 * before the first feed.
 */
int io_reserve(unsigned rings, unsigned queue_depth);
/* Returns -ENOMEM, or the error of creating the thread or the ring. */
int io_new(const struct io_options *options, struct io **ret_io);
/* Waits for reads in flight. Call it when no worker uses io any more. Accepts NULL. */
void io_free(struct io *io);
enum io_mode io_mode_of(const struct io *io);

/*
 * Announces that workers will soon ask for units below `limit`. Cheap: wakes the thread only if it
 * is waiting for this limit.
 */
void io_begun(struct io *io, uint64_t limit);
/*
 * For wanted feeds: announces that the samples of units below `limit` are known, so that they can
 * be read ahead.
 */
void io_known(struct io *io, uint64_t limit);
/*
 * Provides the stored bytes of a unit that this worker has claimed; `index` is its sample. May wait
 * for the file. Returns:
 *
 * - IO_READ: *ret_sample is complete. Its data and side point into io's memory until io_done(), or
 *   into `buffer` until the next use of `buffer`.
 * - IO_MAPPED: the sample is in the mapping. Only if the dataset is mapped.
 * - -ECANCELED: io_stop() has ended the wait. error->text is not set.
 * - another negative errno, with error->text set.
 */
int io_get(struct io *io, uint64_t unit, uint64_t index, struct io_buffer *buffer,
	   struct packimg_sample *ret_sample, struct packimg_error *error);
/* Like io_get() for any sample, without a unit. Never waits for the ring; do not call io_done(). */
int io_get_other(struct io *io, uint64_t index, struct io_buffer *buffer,
		 struct packimg_sample *ret_sample, struct packimg_error *error);
/*
 * Provides a further image of a sample. unit: whose io_get() has returned to this worker, without
 * an io_done() since; IO_NO_UNIT for any other sample. The image is in io's memory until
 * io_done(), or copied to `buffer`, or in the mapping if the dataset is mapped. Never waits for the
 * ring. Returns 0, or the errors of dataset_image() and io_get().
 */
int io_get_image(struct io *io, uint64_t unit, uint64_t index, uint32_t image,
		 struct io_buffer *buffer, struct packimg_sample *ret_image,
		 struct packimg_error *error);
/*
 * Releases the unit's bytes. Call it after every io_get() that did not return -ECANCELED, even if
 * it failed.
 */
void io_done(struct io *io, uint64_t unit);
/* Ends all waits: from then on, an io_get() that would wait returns -ECANCELED. */
void io_stop(struct io *io);

/*
 * Returns at least `size` bytes aligned to 64, regardless of buffer->limit, or NULL if out of
 * memory. The contents are undefined.
 */
uint8_t *io_buffer_take(struct io_buffer *buffer, uint64_t size);
void io_buffer_deinit(struct io_buffer *buffer);
