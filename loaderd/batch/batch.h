/*
 * A batcher makes the batches of one feed, straight into its ring. It is passive: the pool's
 * workers call batcher_work() and each call makes a few samples of the earliest batch that still
 * has any to give out.
 *
 * Samples are numbered in "units": unit u is sample u % batch_size of batch u / batch_size + 1, and
 * `claim` is the next one to give out. Claiming is one compare-and-swap, without lock or system
 * call. The worker that finishes a batch's last unit publishes it, after all earlier ones; only
 * that, and beginning a batch, takes the mutex. A short batch has units without a sample.
 *
 * Lifetime: made and freed by the server; between pool_add() and the pool's giving it back, workers
 * use it. Owner of dataset: the caller; of transform and ring: the batcher. loaderd(1), ORDER AND
 * RESUME and BAD SAMPLES.
 */
#pragma once

#include "loaderd/augment/transform.h"
#include "loaderd/batch/field_values.h"
#include "loaderd/batch/thread_clock.h"
#include "loaderd/io/dataset.h"
#include "loaderd/io/io.h"
#include "loaderd/io/order.h"
#include "proto/ring.h"
#include "proto/stage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum batcher_bad { BATCHER_SUBSTITUTE = 0, BATCHER_SKIP = 1, BATCHER_FAIL = 2 };

enum {
	BATCHER_SUBSTITUTES_MAX = 16, /* tries for one sample before the feed is given up */
	BATCHER_CACHE_LINE = 64,
};

struct batcher_options {
	struct dataset *dataset;
	struct transform *transform; /* with a size; taken over on success */
	struct order order;          /* initialised; batches > 0 */
	uint64_t epoch, batch;       /* position of the first batch, batch < order.batches */
	uint64_t epoch_end;          /* 0: never */
	enum batcher_bad bad;
	uint32_t slots;

	/* the ring's memory, as ring_producer_init() wants it; taken over, also on failure */
	int ring_fd, ack_fd;
	struct field_columns fields;
	unsigned workers;        /* of the pool that will work for it at once, */
	unsigned worker_indices; /* and one more than the highest index of any */
	/*
	 * How it reads: what and in which order follows from the above. IO_URING falls back to
	 * IO_MMAP where it cannot be had.
	 */
	struct io_options io;
	/* Called by workers without any lock held. */
	void (*doorbell)(void *user);
	void *doorbell_user;
	void (*report)(void *user, struct dataset *dataset, uint64_t index, const char *text);
	void *report_user;
};

/* One worker's share of the accounts, written by that worker alone. */
struct batcher_counters {
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t images;
	_Atomic uint64_t bad;
	_Atomic uint64_t stage_ns[STAGE_COUNT];
};

/* What a worker brings along. Its buffers, zeroed at first, go with batcher_forget_buffers(). */
struct batcher_worker {
	unsigned index;
	struct transform_scratch *scratch;
	/* of a dataset that is not mapped: the sample's stored bytes, and those of one value, */
	struct io_buffer sample_bytes, value_bytes;
	/* and of the samples of units from kept_unit on, which sample_ahead() has copied */
	struct io_buffer kept_bytes[PACKIMG_AHEAD_MAX];
	struct packimg_sample kept[PACKIMG_AHEAD_MAX];
	uint64_t kept_unit;
	uint32_t kept_count;
	struct thread_clock watch;
	bool alone;            /* there is no other feed that waits for its share */
	bool ahead;            /* samples have been decoded ahead (sample.h), */
	uint64_t ahead_faults; /* when the dataset's guard had met so many faults */
};

/*
 * One batch in the making. Written by the one who begins it, then read by all; the words below are
 * shared.
 */
struct batcher_work {
	uint64_t epoch, batch;
	struct order_batch part;
	struct order_epoch order;
	struct transform_shape shape;
	struct ring_slot *slot;
	uint8_t *images;
	int32_t *labels;
	uint64_t *samples;
	uint8_t *flags;
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint32_t done; /* units finished */
	_Atomic uint32_t bad;
	_Atomic bool failed; /* the winner of the exchange wrote failure */
	bool complete;       /* under the mutex */
	uint32_t count;      /* samples delivered, after skipping; written by the last finisher */
	char failure[RING_REASON_MAX];
};

struct batcher {
	struct batcher_options options;
	struct ring_geometry geometry;
	struct io *io;
	uint64_t unit_span; /* units per batch: order.batch_size */

	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t claim;
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t limit; /* units of batches begun */
	_Atomic bool blocked;     /* no free slot, a doorbell will come */
	_Atomic bool ended;       /* nothing more to begin */
	_Atomic bool stopped;     /* the client has gone: drop everything */
	_Atomic uint64_t cost_ns; /* CPU time per sample, moving average */
	_Atomic int held_up; /* workers that its storage does not let go (pool_replace_blocked()) */
	_Atomic bool together; /* the last claims were worth decoding ahead (claim.h) */
	/* CPU time taken, the pool's measure of fairness */
	_Alignas(BATCHER_CACHE_LINE) _Atomic uint64_t virtual_ns;

	_Alignas(BATCHER_CACHE_LINE) pthread_mutex_t mutex;
	struct ring_producer ring;
	bool finished; /* the ring has been ended */
	bool draining; /* end as soon as what is begun is published */
	const char *drain_reason;
	uint64_t blocked_since_ns;         /* 0: not blocked */
	uint64_t blocked_ns;               /* in all, without the current one */
	struct batcher_work *work;         /* [slots]; batch n at (n - 1) % slots */
	struct batcher_counters *counters; /* [worker_indices] */
};

struct batcher_status {
	uint64_t epoch, batch; /* of the next batch to be published */
	uint64_t images, bad;
	uint64_t stage_ns[STAGE_COUNT]; /* summed over workers */
	uint64_t stall_client_ns, stall_daemon_ns;
	uint32_t slots_ready, slots_held;
	bool finished;
};

/* What the ring of these options needs; the size to weigh against limits is ring_size() of it. */
void batcher_geometry(const struct batcher_options *options, struct ring_geometry *ret_geometry);
/*
 * Allocates everything, and maps the ring; ring_producer_fill() comes before the first
 * batcher_work(). -ENOMEM, or errors of ring_producer_init.
 */
int batcher_new(const struct batcher_options *options, struct batcher **ret_batcher);
void batcher_free(struct batcher *batcher);

/* Frees what feeds of datasets that are not mapped have left with a worker. */
void batcher_forget_buffers(struct batcher_worker *worker);

/* May a call of batcher_work() find something to do? */
bool batcher_runnable(const struct batcher *batcher);
/*
 * Makes a few samples. Returns their number of units; 0 when there was nothing to give out. Sets
 * *ret_begun to the units that became available for other workers in this call.
 */
uint32_t batcher_work(struct batcher *batcher, struct batcher_worker *worker, uint64_t *ret_begun);
/* The client rang: slots may be free. True when workers should be woken. */
bool batcher_kick(struct batcher *batcher);
/*
 * Ends the feed once what is begun is published; reason is a literal. True when the client wants a
 * doorbell.
 */
bool batcher_drain(struct batcher *batcher, const char *reason);
/*
 * Workers drop this feed's samples; afterwards only removal from the pool and batcher_free() make
 * sense.
 */
void batcher_stop(struct batcher *batcher);
void batcher_status(struct batcher *batcher, struct batcher_status *ret_status);
