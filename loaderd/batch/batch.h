/*
 * A batcher makes the batches of one feed and writes them directly into the feed's ring. It is
 * passive: pool threads call batcher_work(), and each call makes a few samples of the earliest
 * batch that still has unclaimed samples.
 *
 * Samples are numbered in "units": unit u is sample u % batch_size of batch u / batch_size + 1. In
 * a short batch, the last units have no sample. `claim` is the next unclaimed unit. A claim is one
 * compare-and-swap, without a lock or a system call. The thread that finishes the last unit of a
 * batch completes it; batches are published in order. Only publishing and beginning a batch take
 * the mutex. Of files that are still being filled, a thread postpones units whose samples are not
 * there, and claims go to units that are ready again first (loaderd/io/filling.h).
 *
 * The server creates and frees batchers; pool threads use them between pool_add() and pool_reap().
 * The caller owns the dataset; the batcher owns the pipeline and the ring. See loaderd(1), ORDER
 * AND RESUME and BAD SAMPLES.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/system/cpu.h"
#include "loaderd/batch/thread_clock.h"
#include "loaderd/batch/values.h"
#include "loaderd/io/dataset.h"
#include "loaderd/io/filling.h"
#include "loaderd/io/io.h"
#include "loaderd/order/order.h"
#include "loaderd/order/wants.h"
#include "proto/ring.h"
#include "proto/stage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum batcher_bad { BATCHER_SUBSTITUTE = 0, BATCHER_SKIP = 1, BATCHER_FAIL = 2 };

enum {
	BATCHER_SUBSTITUTES_MAX = 16, /* replacement draws per bad sample */
	BATCHER_CACHE_LINE = 64,
};

struct batcher;

struct batcher_options {
	struct dataset *dataset;
	struct pipeline *pipeline; /* its output size is known; owned by the batcher on success */
	/*
	 * Initialised; batches > 0. Of a wanted feed, samples, seed and batch_size are used.
	 */
	struct order order;
	bool wanted;           /* the client asks for each batch, see batcher_want() */
	uint64_t epoch, batch; /* position of the first batch; batch < order.batches */
	uint64_t epoch_end;    /* exclusive; 0 if the feed never ends */
	enum batcher_bad bad;
	uint32_t slots;

	/*
	 * fds of the ring's memory and ack page, for ring_producer_init(). batcher_new() takes them
	 * over, even on failure.
	 */
	int ring_fd, ack_fd;
	struct value_table values;
	unsigned threads;        /* pool threads that use this batcher at the same time */
	unsigned thread_indices; /* one more than the highest thread index */
	/*
	 * Read options. batcher_new() sets io.dataset and io.walk from the members above and falls
	 * back from IO_URING to IO_MMAP if IO_URING is unavailable.
	 */
	struct io_options io;
	/* Callbacks. Pool threads call them without holding the batcher's mutex. */
	void (*doorbell)(void *user);
	void *doorbell_user;
	void (*report)(void *user, struct dataset *dataset, uint64_t index, const char *text);
	void *report_user;
	/*
	 * For files that are being filled, io.filling: so many units can be made that were
	 * postponed. Called by the watcher, with doorbell_user.
	 */
	void (*ready)(void *user, struct batcher *batcher, uint64_t units);
};

/* Counters of one thread. Only that thread writes them. */
struct batcher_counters {
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t images;
	_Atomic uint64_t bad;
	_Atomic uint64_t stage_ns[STAGE_COUNT];
};

/* State of a pool thread. Zero-initialise the buffers; batcher_forget_buffers() frees them. */
struct batcher_thread {
	unsigned index;
	struct pipeline_scratch *scratch;
	/*
	 * For unmapped datasets: stored bytes of the current sample, bytes of one field value, and
	 * stored bytes of one further image.
	 */
	struct io_buffer sample_bytes, value_bytes, image_bytes;
	struct io_buffer box_bytes;  /* the sample's boxes, of which the pipeline may drop some */
	struct io_buffer crop_bytes; /* the sample's boxes by which the pipeline chooses a crop */
	/* pictures of a mosaic: joining.h; or both samples, if one is pasted: pasting.h */
	struct io_buffer joined_bytes;
	struct io_buffer paste_bytes; /* what is computed of pasted objects */
	/* Samples copied by sample_batched_decode(): kept_count units from kept_unit on. */
	struct io_buffer kept_bytes[PACKIMG_AHEAD_MAX];
	struct packimg_sample kept[PACKIMG_AHEAD_MAX];
	uint64_t kept_unit;
	uint32_t kept_count;
	uint32_t copy; /* of the sample being made (struct order_item) */
	/*
	 * Of files that are being filled: the units being made; samples decoded ahead or copied,
	 * and the turns that they had before.
	 */
	struct filling_units units;
	uint64_t early_samples[PACKIMG_AHEAD_MAX];
	uint8_t early_turns[PACKIMG_AHEAD_MAX];
	uint32_t early_count;
	struct thread_clock clock;
	int32_t label;         /* of the sample made last */
	bool alone;            /* no other feed is in the pool */
	bool ahead;            /* the scratch holds samples decoded ahead (sample.h) */
	uint64_t ahead_faults; /* dataset->guard.faults before they were decoded */
};

/*
 * One batch under construction. The thread that begins it fills in the members up to `flags`, which
 * other threads only read. Threads share the atomics, `complete`, `count` and `failure`.
 */
struct batcher_work {
	uint64_t epoch, batch;
	struct order_slice slice;
	struct pipeline_size bucket; /* of the samples; 0 x 0 without buckets */
	struct pipeline_shape shapes[PIPELINE_VIEWS_MAX]; /* of the views' finished images */
	struct ring_slot *slot;
	uint8_t *flags; /* of the slot's section */
	/*
	 * [batch_size + 1] if the pipeline makes patches, else NULL: how many patches the batch has
	 * room for before each sample. Owned by the batcher.
	 */
	uint32_t *starts;
	struct mix_blend blend; /* if the pipeline mixes: of each sample with its neighbour */
	float weight;           /* of a blended sample's own label */
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint32_t done; /* units finished */
	_Atomic uint32_t bad;
	_Atomic bool failed; /* set by the first thread that fails, which then writes `failure` */
	bool complete;       /* protected by the mutex */
	uint32_t count;      /* without skipped samples; set when all units are done */
	char failure[RING_REASON_MAX];
};

struct batcher {
	struct batcher_options options;
	struct ring_geometry geometry;
	struct io *io;
	struct filling *filling;     /* of files that are being filled, else NULL; not owned */
	struct wants *wants;         /* of a wanted feed, else NULL */
	uint64_t unit_span;          /* units per batch, equal to order.batch_size */
	enum cpu_isa isa;            /* for mix_images() */
	struct ring_geometry single; /* layout of a slot of one sample, if objects are pasted */
	bool packed;                 /* each batch is a pack: packs.h */
	bool mixes;                  /* samples are blended in pairs, or get targets: mixing.h */

	/* the next unclaimed unit */
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t claim;
	/* one past the last unit of the batches begun */
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t limit;
	/* no free slot, or nothing is wanted; the client's doorbell or Want will unblock it */
	_Atomic bool blocked;
	_Atomic bool ended;       /* no further batch will begin */
	_Atomic bool stopped;     /* the client is gone: drop all work */
	_Atomic uint64_t cost_ns; /* moving average of CPU time per sample */
	/* replaced threads still blocked on this feed's storage (pool_replace_blocked()) */
	_Atomic int stuck_threads;
	_Atomic bool together; /* last result of claim_together() (claim.h) */
	/* CPU time consumed; the pool schedules by it */
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t virtual_ns;

	_Alignas(BATCHER_CACHE_LINE) pthread_mutex_t mutex;
	struct ring_producer ring;
	bool finished; /* ring_end() has been called */
	bool draining; /* end the feed once all begun batches are published */
	const char *drain_reason;
	uint64_t blocked_since_ns;         /* 0 if not blocked */
	uint64_t blocked_ns;               /* total of completed waits */
	uint32_t *starts;                  /* of all work, if the pipeline makes patches */
	struct batcher_work *work;         /* [slots]; batch n is at (n - 1) % slots */
	struct batcher_counters *counters; /* [thread_indices] */
};

struct batcher_status {
	uint64_t epoch, batch; /* position of the next batch to publish */
	uint64_t images, bad;
	uint64_t stage_ns[STAGE_COUNT]; /* summed over threads */
	uint64_t stall_client_ns, stall_daemon_ns;
	uint32_t slots_ready, slots_held;
	bool finished;
};

/*
 * Computes the ring geometry for these options. -EINVAL if a value cannot be delivered. To check
 * limits, use ring_size() of the result.
 */
int batcher_geometry(const struct batcher_options *options, struct ring_geometry *ret_geometry);
/*
 * Allocates everything and maps the ring. Call ring_producer_start() on batcher->ring before the
 * first batcher_work(). Returns -ENOMEM, or the errors of ring_producer_init() and io_new(); the
 * caller then still owns the pipeline.
 */
int batcher_new(const struct batcher_options *options, struct batcher **ret_batcher);
void batcher_free(struct batcher *batcher);

/* Frees a thread's buffers: copies of boxes, and of stored bytes of unmapped datasets. */
void batcher_forget_buffers(struct batcher_thread *thread);

/* Returns true if batcher_work() may find work. */
bool batcher_runnable(const struct batcher *batcher);
/*
 * Makes a few samples. Returns the number of units claimed, 0 if there was nothing to claim. Sets
 * *ret_begun to the number of units that this call made available to other threads.
 */
uint32_t batcher_work(struct batcher *batcher, struct batcher_thread *thread, uint64_t *ret_begun);
/*
 * Handles the client's doorbell or Want: slots may be free, or batches wanted. Returns true if
 * threads should be woken.
 */
bool batcher_kick(struct batcher *batcher);
/*
 * Adds a batch to those that a wanted feed makes; call batcher_kick() afterwards. Errors as for
 * wants_add(). Control thread only.
 */
int batcher_want(struct batcher *batcher, uint64_t epoch, const uint64_t *samples, size_t count,
		 size_t *ret_position);
/*
 * Makes no samples for the wanted batches that have not begun: they are published empty. With
 * IO_URING it does nothing, because their bytes are being read: the client discards them instead.
 */
void batcher_forget(struct batcher *batcher);
/*
 * Ends the feed once all begun batches are published. `reason` must be a string literal. Returns
 * true if the client wants a doorbell.
 */
bool batcher_drain(struct batcher *batcher, const char *reason);
/*
 * Makes threads drop this feed's samples. Afterwards, only remove the batcher from its pool and
 * free it.
 */
void batcher_stop(struct batcher *batcher);
void batcher_status(struct batcher *batcher, struct batcher_status *ret_status);
