#include "loaderd/batch/batch.h"

#include "format/augment/claim.h"
#include "format/base/system/clock.h"
#include "loaderd/batch/counters.h"
#include "loaderd/batch/mixing.h"
#include "loaderd/batch/sample.h"
#include "loaderd/order/sampler.h"
#include "proto/ring_layout.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert((int)PACKIMG_FED_MAX == (int)RING_FIELD_BYTES_MAX, "what packimg says of it holds");

static void *new_aligned(size_t count, size_t size)
{
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes))
		return NULL;
	void *memory = aligned_alloc(
		BATCHER_CACHE_LINE,
		bytes); /* size is a multiple of the alignment: the types are aligned */
	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

static struct order_walk walk_of(const struct batcher *batcher)
{
	const struct batcher_options *options = &batcher->options;
	return (struct order_walk){.wants = batcher->wants,
				   .order = options->order,
				   .epoch = options->epoch,
				   .batch = options->batch,
				   .epoch_end = options->epoch_end};
}

/* Allocates what tells where the patches of a batch's samples are. */
static int new_starts(struct batcher *batcher)
{
	const struct batcher_options *options = &batcher->options;
	size_t each = (size_t)options->order.batch_size + 1;
	if (pipeline_patches_max(options->pipeline) == 0)
		return 0;
	batcher->starts = calloc(options->slots, each * sizeof(*batcher->starts));
	for (uint32_t slot = 0; batcher->starts && slot < options->slots; slot++)
		batcher->work[slot].starts = batcher->starts + slot * each;
	return batcher->starts ? 0 : -ENOMEM;
}

static int start_io(struct batcher *batcher)
{
	const struct batcher_options *options = &batcher->options;
	struct io_options io = options->io;
	io.dataset = options->dataset;
	io.image_count = values_images(&options->values, io.images);
	io.walk = walk_of(batcher);
	int r = io_new(&io, &batcher->io);
	if (r < 0 && io.mode == IO_URING) {
		io.mode = IO_MMAP;
		r = io_new(&io, &batcher->io);
	}
	return r;
}

static void close_both(const struct batcher_options *options)
{
	close(options->ring_fd);
	close(options->ack_fd);
}

static int lay_out_single(struct batcher *batcher)
{
	struct batcher_options single = batcher->options;
	struct ring_geometry geometry;
	if (single.values.paste.boxes == 0)
		return 0;
	single.order.batch_size = 1;
	int r = batcher_geometry(&single, &geometry);
	return r ?: ring_lay_out(&geometry, &batcher->single);
}

static int batch_map_ring(struct batcher *batcher)
{
	const struct batcher_options *options = &batcher->options;
	int r = batcher_geometry(options, &batcher->geometry);
	r = r
		    ?: ring_producer_init(&batcher->ring, &batcher->geometry, options->ring_fd,
					  options->ack_fd);
	if (r < 0)
		close_both(options);
	return r;
}

static void batch_on_ready(void *user, uint64_t units)
{
	struct batcher *batcher = user;
	batcher->options.ready(batcher->options.doorbell_user, batcher, units);
}

int batcher_new(const struct batcher_options *options, struct batcher **ret_batcher)
{
	struct batcher *batcher = new_aligned(1, sizeof(*batcher));
	if (!batcher) {
		close_both(options);
		return -ENOMEM;
	}
	batcher->options = *options;
	batcher->filling = options->io.filling;
	batcher->unit_span = options->order.batch_size;
	batcher->isa = cpu_isa_chosen();
	batcher->mixes = options->values.target > 0;
	batcher->packed = options->order.sampler && sampler_packs(options->order.sampler);
	pthread_mutex_init(&batcher->mutex, NULL);
	batcher->work = new_aligned(options->slots, sizeof(*batcher->work));
	batcher->counters = new_aligned(options->thread_indices, sizeof(*batcher->counters));
	int r = batch_map_ring(batcher);
	r = r ?: lay_out_single(batcher);
	if (options->wanted)
		batcher->wants = wants_new(options->slots, options->order.batch_size,
					   options->order.samples);
	if (r == 0 &&
	    (!batcher->work || !batcher->counters || (options->wanted && !batcher->wants)))
		r = -ENOMEM;
	r = r ?: new_starts(batcher);
	if (r == 0)
		r = start_io(batcher);
	if (r == 0 && batcher->filling) {
		const struct order_walk walk = walk_of(batcher);
		r = filling_start(batcher->filling, &walk, batch_on_ready, batcher);
	}
	if (r < 0) {
		batcher->options.pipeline = NULL; /* the caller keeps it on failure */
		batcher_free(batcher);
		return r;
	}
	*ret_batcher = batcher;
	return 0;
}

void batcher_free(struct batcher *batcher)
{
	if (!batcher)
		return;
	if (batcher->filling)
		filling_join(batcher->filling);
	io_free(batcher->io);
	wants_free(batcher->wants);
	ring_producer_deinit(&batcher->ring);
	pipeline_free(batcher->options.pipeline);
	pthread_mutex_destroy(&batcher->mutex);
	free(batcher->work);
	free(batcher->starts);
	free(batcher->counters);
	free(batcher);
}

/* The position of a plain feed's batch. Returns false if the feed ends before it. */
static bool position_of(const struct batcher *batcher, uint64_t batch_ordinal, uint64_t *ret_epoch,
			uint64_t *ret_batch)
{
	const struct batcher_options *options = &batcher->options;
	uint64_t from_epoch = options->batch + batch_ordinal;
	uint64_t epoch = options->epoch + from_epoch / options->order.batches;
	if (options->epoch_end != 0 && epoch >= options->epoch_end)
		return false;
	*ret_epoch = epoch;
	*ret_batch = from_epoch % options->order.batches;
	return true;
}

static struct batcher_work *work_of(const struct batcher *batcher, uint64_t unit)
{
	return &batcher->work[unit / batcher->unit_span % batcher->options.slots];
}

/* Called under the mutex. Sets position and samples of the batch with this ordinal, which exists.
 */
static void set_samples(struct batcher *batcher, uint64_t ordinal, struct batcher_work *work)
{
	if (batcher->wants) {
		work->epoch = wants_take(batcher->wants, &work->slice);
		work->batch = ordinal;
		return;
	}
	position_of(batcher, ordinal, &work->epoch, &work->batch);
	order_slice_init(&work->slice, &batcher->options.order, work->epoch, work->batch);
}

/* Called under the mutex. Sets where the patches of the samples will be. */
static void set_starts(const struct batcher *batcher, struct batcher_work *work)
{
	uint32_t most = pipeline_patches_max(batcher->options.pipeline);
	for (uint32_t i = 0; work->starts && i < work->slice.count; i++)
		work->starts[i + 1] =
			work->starts[i] +
			(batcher->packed ? order_slice_pack(&work->slice, i).patches : most);
}

/* Called under the mutex. Starts the next batch in the slot that ring_begin() returned last. */
static void begin_in(struct batcher *batcher, struct ring_slot *slot)
{
	uint64_t ordinal = batcher->ring.begun - 1;
	struct batcher_work *work = &batcher->work[ordinal % batcher->options.slots];
	const struct ring_section *sections = batcher->ring.layout.sections;
	set_samples(batcher, ordinal, work);
	set_starts(batcher, work);
	const struct value_table *values = &batcher->options.values;
	const struct bucket_size *bucket = work->slice.bucket;
	work->bucket = bucket ? (struct pipeline_size){bucket->width, bucket->height}
			      : (struct pipeline_size){0, 0};
	for (uint32_t i = 0; i < values->view_count; i++)
		pipeline_shape_in(values->views[i].made.pipeline, work->epoch, work->bucket,
				  &work->shapes[i]);
	work->slot = slot;
	work->flags = (uint8_t *)slot + sections[RING_FLAGS].offset;
	atomic_store_explicit(&work->done, 0, memory_order_relaxed);
	atomic_store_explicit(&work->bad, 0, memory_order_relaxed);
	atomic_store_explicit(&work->failed, false, memory_order_relaxed);
	work->complete = false;
	mixing_begin(batcher, work);
}

/*
 * Called under the mutex. Ends the ring if every begun batch has been published. Returns whether
 * the client wants a doorbell.
 */
static int end_if_done(struct batcher *batcher, const char *reason)
{
	if (batcher->finished || batcher->ring.published != batcher->ring.begun)
		return 0;
	batcher->finished = true;
	return ring_end(&batcher->ring, reason);
}

/* Called under the mutex. No batch can begin until batcher_kick(). */
static int begin_blocked(struct batcher *batcher)
{
	if (batcher->blocked_since_ns == 0)
		batcher->blocked_since_ns = clock_ns(CLOCK_MONOTONIC);
	atomic_store_explicit(&batcher->blocked, true, memory_order_relaxed);
	return 0;
}

/*
 * Called under the mutex. Returns 1 if a batch was begun, 0 if there is no free slot, nothing is
 * wanted, or there is no further batch.
 */
static int begin_one(struct batcher *batcher, bool *doorbell)
{
	uint64_t epoch, batch;
	if (atomic_load_explicit(&batcher->ended, memory_order_relaxed))
		return 0;
	if (batcher->wants && !wants_waiting(batcher->wants))
		return begin_blocked(batcher);
	if (!batcher->wants && !position_of(batcher, batcher->ring.begun, &epoch, &batch)) {
		atomic_store_explicit(&batcher->ended, true, memory_order_relaxed);
		*doorbell |= end_if_done(batcher, NULL);
		return 0;
	}
	struct ring_slot *slot = ring_begin(&batcher->ring);
	if (!slot) {
		ring_producer_arm(&batcher->ring);
		slot = ring_begin(&batcher->ring);
	}
	if (!slot)
		return begin_blocked(batcher);
	begin_in(batcher, slot);
	/*
	 * Pairs with the acquire in batch_claim(): a thread that sees the new limit also sees the
	 * batch's description.
	 */
	uint64_t limit = atomic_fetch_add_explicit(&batcher->limit, batcher->unit_span,
						   memory_order_release);
	io_begun(batcher->io, limit + batcher->unit_span);
	if (batcher->filling)
		filling_begun(batcher->filling, limit + batcher->unit_span);
	return 1;
}

/*
 * Begins batches until units_wanted units are unclaimed or no further batch can begin. Returns the
 * units begun.
 */
static uint64_t begin_more(struct batcher *batcher, uint64_t units_wanted)
{
	bool doorbell = false;
	uint64_t begun = 0;
	pthread_mutex_lock(&batcher->mutex);
	for (;;) {
		uint64_t left = atomic_load_explicit(&batcher->limit, memory_order_relaxed) -
				atomic_load_explicit(&batcher->claim, memory_order_relaxed);
		if (left >= units_wanted || begin_one(batcher, &doorbell) == 0)
			break;
		begun += batcher->unit_span;
	}
	pthread_mutex_unlock(&batcher->mutex);
	if (doorbell)
		batcher->options.doorbell(batcher->options.doorbell_user);
	return begun;
}

static uint32_t size_of_claim(const struct batcher *batcher, const struct batcher_thread *thread)
{
	const struct claim_options claim = {
		.batch_size = batcher->unit_span,
		.workers = batcher->options.threads,
		.alone = thread->alone,
	};
	uint32_t size =
		claim_size(&claim, atomic_load_explicit(&batcher->cost_ns, memory_order_relaxed),
			   atomic_load_explicit(&batcher->together, memory_order_relaxed));
	if (batcher->filling && size > FILLING_CLAIM_MAX)
		return FILLING_CLAIM_MAX;
	/* Even if batches are mixed, so that one thread makes both samples of a pair. */
	return size + (batcher->mixes ? size % 2 : 0);
}

/* Claims up to `units` units, all of one batch. Returns 0 if all begun units are claimed. */
static uint32_t batch_claim(struct batcher *batcher, uint32_t units, uint64_t *ret_first)
{
	uint64_t span = batcher->unit_span;
	uint64_t first = atomic_load_explicit(&batcher->claim, memory_order_relaxed);
	uint64_t next;
	do {
		if (first >= atomic_load_explicit(&batcher->limit, memory_order_acquire))
			return 0;
		uint64_t batch_end = first - first % span + span;
		next = first + units < batch_end ? first + units : batch_end;
	} while (!atomic_compare_exchange_weak_explicit(
		&batcher->claim, &first, next, memory_order_acq_rel, memory_order_relaxed));
	*ret_first = first;
	units = (uint32_t)(next - first);
	/*
	 * The units of a short batch that have no sample need no work: claim them as well. The
	 * batch cannot be recycled while this reads it, because the units just claimed are not
	 * done.
	 */
	uint64_t batch_end = first - first % span + span;
	if (next < batch_end && next % span >= work_of(batcher, first)->slice.count &&
	    atomic_compare_exchange_strong(&batcher->claim, &next, batch_end))
		units = (uint32_t)(batch_end - first);
	return units;
}

/* Copies the values of sample `from` to the place of sample `to` of the same batch. */
static void batch_move(const struct batcher *batcher, const struct batcher_work *work, uint32_t to,
		       uint32_t from)
{
	const struct ring_geometry *layout = &batcher->ring.layout;
	for (uint32_t s = 0; s < layout->section_count; s++) {
		uint8_t *section = (uint8_t *)work->slot + layout->sections[s].offset;
		const struct value *value = &batcher->options.values.values[s];
		size_t size = layout->sections[s].stride;
		if (size == 0)
			size = values_picture_size(value, &work->shapes[value->view]);
		if (layout->sections[s].kind == RING_RAGGED) {
			/* The rows stay where they are. */
			uint32_t *starts = (uint32_t *)section;
			uint32_t *rows = starts + layout->batch_size_max;
			starts[to] = starts[from];
			rows[to] = rows[from];
		} else {
			memcpy(section + to * size, section + from * size, size);
		}
	}
}

/*
 * Removes skipped samples and keeps the order of the rest. Returns the number of samples that
 * remain. The flags are in memory that the client may be able to write: by changing them it gets
 * other samples of its own batch, or fewer.
 */
static uint32_t batch_compact(struct batcher *batcher, struct batcher_work *work)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < work->slice.count; i++) {
		if (work->flags[i] == SAMPLE_SKIPPED)
			continue;
		if (kept != i)
			batch_move(batcher, work, kept, i);
		kept++;
	}
	return kept;
}

static void fill_slot(const struct batcher *batcher, struct batcher_work *work)
{
	struct ring_slot *slot = work->slot;
	slot->epoch = work->epoch;
	slot->batch = work->batch;
	slot->count = work->count;
	if (batcher->ring.layout.version == RING_VERSION_2) {
		struct ring_slot_2 *header = (struct ring_slot_2 *)slot;
		values_extents(&batcher->options.values, &batcher->ring.layout, work->shapes,
			       work->slice.count, work->count,
			       work->starts ? work->starts[work->slice.count] : 0, header->extents);
	} else {
		slot->height = work->shapes[0].height;
		slot->width = work->shapes[0].width;
		slot->channels = work->shapes[0].channels;
		slot->element = work->shapes[0].element;
		slot->layout = work->shapes[0].layout;
	}
	slot->bad = atomic_load_explicit(&work->bad, memory_order_relaxed);
	slot->last = work->slice.last;
	slot->publish_ns = clock_ns(CLOCK_MONOTONIC);
}

static void fail_batch(struct batcher_work *work, const char *text)
{
	if (atomic_exchange(&work->failed, true))
		return;
	snprintf(work->failure, sizeof(work->failure), "%s", text);
}

/* Called under the mutex. Publishes completed batches in order, up to the first incomplete one. */
static bool publish_complete(struct batcher *batcher)
{
	int doorbell = 0;
	while (!batcher->finished && batcher->ring.published < batcher->ring.begun) {
		struct batcher_work *work =
			&batcher->work[batcher->ring.published % batcher->options.slots];
		if (!work->complete)
			break;
		if (atomic_load_explicit(&work->failed, memory_order_relaxed)) {
			batcher->finished = true;
			atomic_store_explicit(&batcher->ended, true, memory_order_relaxed);
			doorbell |= ring_end(&batcher->ring, work->failure);
			break;
		}
		fill_slot(batcher, work);
		doorbell |= ring_publish(&batcher->ring);
		if (batcher->filling)
			filling_done(batcher->filling,
				     batcher->ring.published * batcher->unit_span);
	}
	if (batcher->draining)
		doorbell |= end_if_done(batcher, batcher->drain_reason);
	else if (atomic_load_explicit(&batcher->ended, memory_order_relaxed))
		doorbell |= end_if_done(batcher, NULL);
	return doorbell != 0;
}

static void finish_batch(struct batcher *batcher, struct batcher_work *work)
{
	work->count = work->slice.count;
	if (batcher->options.bad == BATCHER_SKIP &&
	    atomic_load_explicit(&work->bad, memory_order_relaxed) > 0) {
		work->count = batch_compact(batcher, work);
		if (work->count == 0)
			fail_batch(work, "no sample of a batch could be decoded; run packimg "
					 "verify on the dataset");
	}
	pthread_mutex_lock(&batcher->mutex);
	work->complete = true;
	bool doorbell = publish_complete(batcher);
	pthread_mutex_unlock(&batcher->mutex);
	if (doorbell)
		batcher->options.doorbell(batcher->options.doorbell_user);
}

enum batch_made {
	BATCH_NOT_MADE, /* there is none, or the feed is stopped */
	BATCH_MADE,     /* the sample, or one in its place, is there */
	BATCH_POSTPONE, /* nothing has been counted; thread->units has the reason */
};

/* Reports a sample that cannot be made, and puts another in its place if the feed's policy says so.
 */
static enum batch_made batch_make_bad(struct batcher *batcher, struct batcher_thread *thread,
				      struct batcher_work *work, uint32_t i, uint64_t index,
				      struct sample_times *times, struct packimg_error *error)
{
	struct batcher_counters *counters = &batcher->counters[thread->index];
	struct packimg_error other;
	int r = 0;
	if (batcher->options.bad == BATCHER_SUBSTITUTE)
		r = sample_substitute(batcher, thread, work, i, index, times, &other);
	if (r == -EAGAIN)
		return BATCH_POSTPONE;
	batcher->options.report(batcher->options.report_user, batcher->options.dataset, index,
				error->text);
	counters_add(&counters->bad, 1);
	atomic_fetch_add_explicit(&work->bad, 1, memory_order_relaxed);
	switch (batcher->options.bad) {
	case BATCHER_SKIP:
		work->flags[i] = SAMPLE_SKIPPED;
		return BATCH_NOT_MADE;
	case BATCHER_FAIL:
		fail_batch(work, error->text);
		return BATCH_NOT_MADE;
	case BATCHER_SUBSTITUTE:
		break;
	}
	if (r == 0)
		counters_add(&counters->images, 1);
	else
		fail_batch(work, other.text);
	return r == 0 ? BATCH_MADE : BATCH_NOT_MADE;
}

/* Makes one sample of a batch and applies the feed's policy for bad samples. */
static enum batch_made batch_make(struct batcher *batcher, struct batcher_thread *thread,
				  struct batcher_work *work, uint64_t unit,
				  struct sample_times *times)
{
	uint32_t i = (uint32_t)(unit % batcher->unit_span);
	struct batcher_counters *counters = &batcher->counters[thread->index];
	struct packimg_error error;
	const struct order_item item = order_slice_at(&work->slice, i);
	const uint64_t index = item.sample;
	thread->copy = item.copy;
	int r = sample_make_unit(batcher, thread, work, unit, index, times, &error);
	if (r == -ECANCELED)
		return BATCH_NOT_MADE; /* the client has gone */
	if (r == -EAGAIN)
		return BATCH_POSTPONE;
	if (r == 0) {
		counters_add(&counters->images, 1);
		return BATCH_MADE;
	}
	/*
	 * The feed is at fault, not the sample: the pipeline fixes no size and stored sizes differ,
	 * or a field value exceeds its capacity. No policy for bad samples helps.
	 */
	if (r == -EINVAL) {
		fail_batch(work, error.text);
		return BATCH_NOT_MADE;
	}
	return batch_make_bad(batcher, thread, work, i, index, times, &error);
}

/*
 * Makes `count` samples from this unit on: a pair if batches are mixed, else one. Returns false if
 * they have to wait; then they have been postponed, and others may be making them already.
 */
static bool batch_make_group(struct batcher *batcher, struct batcher_thread *thread,
			     struct batcher_work *work, uint64_t unit, uint32_t count,
			     struct sample_times *times)
{
	struct filling_first *first = &thread->units.first;
	struct mixing_sample pair[2];
	for (uint32_t k = 0; k < count; k++) {
		if (batcher->filling && k == 0 && first->there) {
			pair[k] =
				(struct mixing_sample){.made = first->made, .label = first->label};
			continue;
		}
		enum batch_made made = batch_make(batcher, thread, work, unit + k, times);
		if (made == BATCH_POSTPONE) {
			filling_postpone(batcher->filling, &thread->units);
			return false;
		}
		pair[k].made = made == BATCH_MADE;
		pair[k].label = thread->label;
		if (batcher->filling && k == 0)
			*first = (struct filling_first){true, pair[k].made, pair[k].label};
	}
	if (batcher->mixes)
		mixing_finish(batcher, work, (uint32_t)(unit % batcher->unit_span), pair, count,
			      times);
	return true;
}

/*
 * Decodes the next units of a claim together where possible (sample_batched_decode()). Updates
 * batcher->together, which determines the size of later claims.
 */
static void batch_look_ahead(struct batcher *batcher, struct batcher_thread *thread,
			     struct batcher_work *work, uint64_t unit, uint32_t left,
			     struct sample_times *times)
{
	uint32_t count = left < PACKIMG_AHEAD_MAX ? left : PACKIMG_AHEAD_MAX;
	uint32_t gain = sample_batched_decode(batcher, thread, work, unit, count, times);
	bool together = claim_together(gain, count);

	if (together != atomic_load_explicit(&batcher->together, memory_order_relaxed))
		atomic_store_explicit(&batcher->together, together, memory_order_relaxed);
}

bool batcher_runnable(const struct batcher *batcher)
{
	if (atomic_load_explicit(&batcher->stopped, memory_order_relaxed))
		return false;
	if (batcher->filling && filling_has_ready(batcher->filling))
		return true;
	if (batcher->filling && filling_is_full(batcher->filling))
		return false;
	if (atomic_load_explicit(&batcher->claim, memory_order_relaxed) <
	    atomic_load_explicit(&batcher->limit, memory_order_relaxed))
		return true;
	return !atomic_load_explicit(&batcher->blocked, memory_order_relaxed) &&
	       !atomic_load_explicit(&batcher->ended, memory_order_relaxed);
}

/* Samples that are made together, from sample i of the batch on. */
static uint32_t group_at(const struct batcher *batcher, const struct batcher_work *work, uint32_t i)
{
	uint32_t left = work->slice.count - i;
	return batcher->mixes && left > 1 ? 2 : 1;
}

/* Claims units that had been postponed and can be made now. Returns 0 if there are none. */
static uint32_t batch_claim_ready(struct batcher *batcher, struct batcher_thread *thread,
				  uint64_t *ret_first)
{
	if (!filling_take(batcher->filling, &thread->units))
		return 0;
	*ret_first = thread->units.unit;
	return group_at(batcher, work_of(batcher, *ret_first),
			(uint32_t)(*ret_first % batcher->unit_span));
}

static void finish_units(struct batcher *batcher, struct batcher_work *work, uint32_t units)
{
	/* Orders this thread's writes before the last finisher publishes the batch. */
	uint32_t done = atomic_fetch_add_explicit(&work->done, units, memory_order_acq_rel) + units;
	assert(done <= batcher->unit_span);
	if (done == batcher->unit_span)
		finish_batch(batcher, work);
}

/*
 * Claims units of one batch, and begins batches if there are none to claim. Sets *ret_again if they
 * had been postponed.
 */
static uint32_t batch_claim_any(struct batcher *batcher, struct batcher_thread *thread,
				uint64_t *ret_first, uint64_t *begun, bool *ret_again)
{
	uint32_t size = size_of_claim(batcher, thread), units;
	*ret_again = false;
	for (;;) {
		units = batcher->filling ? batch_claim_ready(batcher, thread, ret_first) : 0;
		*ret_again = units > 0;
		if (units > 0 || (batcher->filling && filling_is_full(batcher->filling)))
			return units;
		units = batch_claim(batcher, size, ret_first);
		if (units > 0 || !batcher_runnable(batcher))
			return units;
		*begun += begin_more(batcher, (uint64_t)size * batcher->options.threads);
	}
}

uint32_t batcher_work(struct batcher *batcher, struct batcher_thread *thread, uint64_t *ret_begun)
{
	uint64_t first, begun = 0;
	bool again;
	uint32_t units = batch_claim_any(batcher, thread, &first, &begun, &again);
	*ret_begun = begun;
	if (units == 0)
		return 0;

	struct batcher_work *work = work_of(batcher, first);
	struct sample_times times = {0};
	uint32_t from = (uint32_t)(first % batcher->unit_span), made = 0, postponed = 0;
	uint32_t end = from + units < work->slice.count ? from + units : work->slice.count;
	for (uint32_t i = from, count; i < end; i += count) {
		if (atomic_load_explicit(&batcher->stopped, memory_order_relaxed))
			return units; /* the batch is never published: `done` stays short */
		if ((i - from) % PACKIMG_AHEAD_MAX == 0)
			batch_look_ahead(batcher, thread, work, first - from + i, end - i, &times);
		count = group_at(batcher, work, i);
		if (batcher->filling && !again)
			filling_units_init(&thread->units, first - from + i);
		if (batch_make_group(batcher, thread, work, first - from + i, count, &times))
			made += count;
		else
			postponed += count;
	}
	if (atomic_load_explicit(&batcher->stopped, memory_order_relaxed))
		return units;
	/* If all have been postponed, other threads may have finished the batch. */
	if (postponed < units)
		finish_units(batcher, work, units - postponed);
	counters_claim(batcher, thread, &times, made);
	return units;
}

bool batcher_kick(struct batcher *batcher)
{
	pthread_mutex_lock(&batcher->mutex);
	bool was = atomic_load_explicit(&batcher->blocked, memory_order_relaxed);
	if (was) {
		atomic_store_explicit(&batcher->blocked, false, memory_order_relaxed);
		batcher->blocked_ns += clock_ns(CLOCK_MONOTONIC) - batcher->blocked_since_ns;
		batcher->blocked_since_ns = 0;
	}
	pthread_mutex_unlock(&batcher->mutex);
	return was;
}

int batcher_want(struct batcher *batcher, uint64_t epoch, const uint64_t *samples, size_t count,
		 size_t *ret_position)
{
	int r = wants_add(batcher->wants, epoch, samples, count, ret_position);
	if (r == 0)
		io_known(batcher->io, wants_added(batcher->wants) * batcher->unit_span);
	if (r == 0 && batcher->filling)
		filling_wanted(batcher->filling);
	return r;
}

void batcher_forget(struct batcher *batcher)
{
	if (io_mode_of(batcher->io) != IO_URING)
		wants_forget(batcher->wants);
}

bool batcher_drain(struct batcher *batcher, const char *reason)
{
	pthread_mutex_lock(&batcher->mutex);
	batcher->draining = true;
	batcher->drain_reason = reason;
	atomic_store_explicit(&batcher->ended, true, memory_order_relaxed);
	int doorbell = end_if_done(batcher, reason);
	pthread_mutex_unlock(&batcher->mutex);
	return doorbell != 0;
}

void batcher_stop(struct batcher *batcher)
{
	atomic_store_explicit(&batcher->stopped, true, memory_order_relaxed);
	io_stop(batcher->io);
	if (batcher->filling)
		filling_stop(batcher->filling);
}

void batcher_status(struct batcher *batcher, struct batcher_status *ret_status)
{
	struct batcher_status status = {0};
	for (unsigned i = 0; i < batcher->options.thread_indices; i++) {
		const struct batcher_counters *c = &batcher->counters[i];
		status.images += atomic_load_explicit(&c->images, memory_order_relaxed);
		status.bad += atomic_load_explicit(&c->bad, memory_order_relaxed);
		for (enum stage s = 0; s < STAGE_COUNT; s++)
			status.stage_ns[s] +=
				atomic_load_explicit(&c->stage_ns[s], memory_order_relaxed);
	}
	if (batcher->filling)
		status.stage_ns[STAGE_WAIT] += filling_wait_ns(batcher->filling);
	pthread_mutex_lock(&batcher->mutex);
	if (batcher->wants) {
		status.epoch = wants_epoch(batcher->wants, batcher->ring.published);
		status.batch = batcher->ring.published;
	} else if (!position_of(batcher, batcher->ring.published, &status.epoch, &status.batch)) {
		status.epoch = batcher->options.epoch_end;
	}
	status.slots_ready = ring_ready(&batcher->ring);
	status.slots_held = ring_outstanding(&batcher->ring) - status.slots_ready;
	status.stall_client_ns =
		atomic_load_explicit(&batcher->ring.ack->stall_ns, memory_order_relaxed);
	status.stall_daemon_ns = batcher->blocked_ns;
	if (batcher->blocked_since_ns != 0)
		status.stall_daemon_ns += clock_ns(CLOCK_MONOTONIC) - batcher->blocked_since_ns;
	status.finished = batcher->finished;
	pthread_mutex_unlock(&batcher->mutex);
	*ret_status = status;
}
