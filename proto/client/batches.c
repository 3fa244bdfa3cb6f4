#include "format/base/system/clock.h"
#include "proto/client/feed_state.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum {
	DRAIN_MAX = 64,     /* frames read from the socket between two checks of the ring */
	NOTICE_MAX = 16384, /* bytes of one notice: an Error's text may contain a path or two */
};

/* Size in the first release, for callers that leave size at 0. */
enum { BATCH_SIZE_0 = offsetof(struct feed_batch, reconnects) };

_Static_assert((int)FEED_U8 == (int)RING_U8 && (int)FEED_F16 == (int)RING_F16 &&
		       (int)FEED_BF16 == (int)RING_BF16 && (int)FEED_F32 == (int)RING_F32,
	       "elements pass through");
_Static_assert((int)FEED_NHWC == (int)RING_NHWC && (int)FEED_NCHW == (int)RING_NCHW,
	       "layouts pass through");
_Static_assert((int)FEED_SAMPLE_FIELD_CUT == (int)RING_SAMPLE_FIELD_CUT, "flags pass through");
_Static_assert((int)FEED_BYTES == (int)RING_RECORD_BYTES &&
		       (int)FEED_JSON == (int)RING_RECORD_JSON &&
		       (int)FEED_TEXT == (int)RING_RECORD_TEXT,
	       "types pass through");

/* Bytes of a batch's images; 0 if the slot's header is inconsistent or does not fit the ring's. */
static uint64_t image_bytes(const struct ring_geometry *layout, const struct ring_slot *slot)
{
	uint64_t bytes = slot->element == RING_OPAQUE || slot->element > RING_F32
				 ? 0
				 : ring_element_size(slot->element);
	if (slot->count > layout->batch_size_max || slot->channels < 3 || slot->channels > 4 ||
	    (slot->layout != RING_NHWC && slot->layout != RING_NCHW))
		return 0;
	if (__builtin_mul_overflow(bytes, (uint64_t)slot->count * slot->channels, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)slot->height, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)slot->width, &bytes) ||
	    bytes > layout->sections[RING_IMAGES].room)
		return 0;
	return bytes;
}

/*
 * Puts the images' shape into the copy of a slot's header of version 2, where version 1 has it.
 * Of patches it sets *ret_bytes, which others leave at 0. Returns false if an extent of the slot is
 * not sound.
 */
static bool read_extents(struct feed *feed, const struct ring_slot *published,
			 struct ring_slot *slot, uint64_t *ret_bytes)
{
	const struct ring_extent *extents = ring_check_extents(&feed->ring, published, slot->count);
	if (!extents)
		return false;
	slot->element = feed->ring.layout.sections[RING_IMAGES].element;
	if (feed->ring.layout.sections[RING_IMAGES].kind == RING_RAGGED) {
		slot->height = slot->width = slot->channels = 0;
		slot->layout = FEED_PATCHES;
		*ret_bytes = extents[RING_IMAGES].bytes;
		return true;
	}
	const uint32_t *shape = extents[RING_IMAGES].shape;
	bool interleaved = extents[RING_IMAGES].layout == RING_NHWC;
	slot->height = shape[interleaved ? 0 : 1];
	slot->width = shape[interleaved ? 1 : 2];
	slot->channels = shape[interleaved ? 2 : 0];
	slot->layout = extents[RING_IMAGES].layout;
	return true;
}

static int refuse_batch(struct feed *feed)
{
	feed->broken = -EPROTO;
	return daemon_error(&feed->connection, feed->error, -EPROTO,
			    "published batch %llu with a header that cannot be.",
			    (unsigned long long)feed->ring.taken);
}

/* Returns true if the batch has the samples that are wanted, less those that may be skipped. */
static bool is_wanted_count(const struct feed *feed, uint32_t count, uint32_t wanted)
{
	return feed->options.bad == FEED_BAD_SKIP ? count <= wanted : count == wanted;
}

/* Returns true if the slot holds the next batch, with `last` set exactly at the end of an epoch. */
static bool is_next(const struct feed *feed, const struct ring_slot *slot)
{
	uint64_t end = feed->options.epoch_end;
	const struct wanted_batch *due = wants_due(feed);
	if (due)
		return slot->number == feed->ring.taken && slot->epoch == due->epoch &&
		       slot->batch + 1 == slot->number &&
		       is_wanted_count(feed, slot->count, due->count) && slot->last == 0;
	return slot->number == feed->ring.taken && slot->epoch == feed->epoch &&
	       slot->batch == feed->batch && (end == 0 || slot->epoch < end) &&
	       (slot->last != 0) == (slot->batch + 1 == feed->info.batches_per_epoch);
}

/* A daemon older than whole_values truncates and flags values without being asked to. */
static int refuse_cut(struct feed *feed, const struct ring_slot *slot, uint64_t sample)
{
	feed->broken = -EBADMSG;
	return error_set(
		feed->error, -EBADMSG,
		"Epoch %llu, batch %llu: sample %llu has a value that is longer than field_bytes, "
		"%u, and the daemon on %s has cut it: ask for more, or for cut values.",
		(unsigned long long)slot->epoch, (unsigned long long)slot->batch,
		(unsigned long long)sample, feed->ring.layout.field_bytes, feed->connection.socket);
}

/* Index of the first sample with a truncated value; count if there is none. */
static uint32_t find_cut(const struct feed *feed, const uint8_t *flags, uint32_t count)
{
	uint32_t i = 0;
	if (feed->options.cut_values || feed->field_count == 0)
		return count;
	while (i < count && !(flags[i] & FEED_SAMPLE_FIELD_CUT))
		i++;
	return i;
}

static int hand_out_batch(struct feed *feed, const struct ring_slot *published,
			  struct feed_batch *batch)
{
	const struct ring_geometry *layout = &feed->ring.layout;
	const struct ring_section *sections = layout->sections;
	struct ring_slot slot;
	ring_copy_slot(published, &slot);
	uint64_t bytes = 0;
	if (layout->version == RING_VERSION_2 && !read_extents(feed, published, &slot, &bytes))
		return refuse_batch(feed);
	if (bytes == 0)
		bytes = image_bytes(layout, &slot);
	if (feed->ring.broken || bytes == 0 || !is_next(feed, &slot))
		return refuse_batch(feed);
	const char *base = ring_show(&feed->ring, published);
	uint32_t cut =
		find_cut(feed, (const uint8_t *)base + sections[RING_FLAGS].offset, slot.count);
	if (cut < slot.count)
		return refuse_cut(feed, &slot,
				  ((const uint64_t *)(base + sections[RING_SAMPLES].offset))[cut]);
	struct feed_batch full = {
		.size = batch->size,
		.number = feed->base + slot.number,
		.epoch = slot.epoch,
		.batch = feed->options.wanted ? feed->base + slot.batch : slot.batch,
		.count = slot.count,
		.height = slot.height,
		.width = slot.width,
		.channels = slot.channels,
		.element = slot.element,
		.layout = slot.layout,
		.bad = slot.bad,
		.last = slot.last != 0,
		.images = base + sections[RING_IMAGES].offset,
		.image_bytes = bytes,
		.labels = (const int32_t *)(base + sections[RING_LABELS].offset),
		.samples = (const uint64_t *)(base + sections[RING_SAMPLES].offset),
		.flags = (const uint8_t *)base + sections[RING_FLAGS].offset,
		.publish_ns = slot.publish_ns,
		.reconnects = feed->info.reconnects,
		.shared_images = (const char *)published + sections[RING_IMAGES].offset,
	};
	memcpy(batch, &full, feed_known_size(batch->size, BATCH_SIZE_0, sizeof(full)));
	feed_set_position(feed, full.epoch, full.batch + 1, full.last != 0);
	wants_pop(feed);
	feed->reopening.fruitless = 0;
	for (uint32_t p = 0; p < feed->fetched_count; p++)
		if (feed->fetched[p]) {
			feed->fetched[p]->fruitless = 0;
			feed->fetched[p]->delivered = true;
		}
	return 0;
}

static int lose_connection(struct feed *feed, int code)
{
	const char *how = feed->shutting_down ? "is shutting down" : "went away";
	if (feed->failed != 0)
		return feed->failed;
	if (code == -ECONNRESET)
		feed->failed = daemon_error(
			&feed->connection, feed->error, code,
			"%s; the feed can be opened again at epoch %llu, batch %llu.", how,
			(unsigned long long)feed->epoch, (unsigned long long)feed->batch);
	else
		feed->failed = error_set(feed->error, code,
					 "The connection to the daemon on %s failed: %s.",
					 feed->connection.socket, strerror(-code));
	return feed->failed;
}

/*
 * Checks the ring without waiting: returns 0, FEED_END, -EBADMSG, -ENOBUFS, or -EAGAIN if there is
 * no batch yet.
 */
static int check_ring(struct feed *feed, const struct ring_slot **ret_slot)
{
	/*
	 * Load state before head: if state is no longer RING_RUNNING, the head loaded afterwards is
	 * final.
	 */
	uint32_t state = atomic_load_explicit(&feed->ring.control->state, memory_order_seq_cst);
	const struct ring_slot *slot = ring_take(&feed->ring);
	if (slot) {
		*ret_slot = slot;
		return 0;
	}
	if (state == RING_END && feed->options.wanted)
		return daemon_error(&feed->connection, feed->error, -EPROTO,
				    "ended a feed whose batches are wanted.");
	if (state == RING_END)
		return FEED_END;
	if (state == RING_FAILED) {
		char reason[RING_REASON_MAX];
		ring_copy_reason(&feed->ring, reason);
		feed->shutting_down |= strcmp(reason, RING_REASON_STOPPING) == 0;
		if (feed->shutting_down)
			return lose_connection(feed, -ECONNRESET);
		text_make_printable(reason);
		return error_set(feed->error, -EBADMSG, "The feed failed: %s", reason);
	}
	if (state != RING_RUNNING)
		return daemon_error(&feed->connection, feed->error, -EPROTO,
				    "set the unknown state %u.", state);
	if (feed->failed == 0 &&
	    atomic_load_explicit(&feed->ring.held_count, memory_order_relaxed) >=
		    feed->ring.layout.slots)
		return error_set(feed->error, -ENOBUFS,
				 "All %u batches that this feed has room for are held: release "
				 "one, or open the feed with more slots.",
				 feed->ring.layout.slots);
	return -EAGAIN;
}

static int read_notice(struct feed *feed, const uint8_t *data, size_t size)
{
	static const uint8_t their_doorbell[] = {5 << 3 | 2, 0};
	if (size == sizeof(their_doorbell) && memcmp(data, their_doorbell, size) == 0)
		return 0;
	/*
	 * Unsolicited messages are short. A long frame could hold half a million messages, each of
	 * which costs memory and time.
	 */
	Loaderd__Reply *reply = size > NOTICE_MAX ? NULL : loaderd__reply__unpack(NULL, size, data);
	if (!reply)
		return lose_connection(feed, -EPROTO);
	switch (reply->kind_case) {
	case LOADERD__REPLY__KIND__NOT_SET: /* from a newer daemon */
	case LOADERD__REPLY__KIND_DOORBELL:
		break;
	case LOADERD__REPLY__KIND_SHUTTING_DOWN:
		feed->shutting_down = true;
		break;
	case LOADERD__REPLY__KIND_ERROR:
		if (reply->error->code == ESHUTDOWN)
			feed->shutting_down = true;
		else
			feed->failed = connection_error(reply->error, NULL, feed->error);
		/* -ETIMEDOUT would mean "not yet", and callers would wait forever */
		if (feed->failed == -ETIMEDOUT)
			feed->failed = -EPROTO;
		break;
	default:
		lose_connection(feed, -EPROTO);
	}
	loaderd__reply__free_unpacked(reply, NULL);
	return feed->failed;
}

/*
 * Reads all frames from the socket. Returns their number, or a negative errno if the connection is
 * lost.
 */
static int read_notices(struct feed *feed)
{
	int frames = 0;
	if (feed->failed != 0)
		return feed->failed;
	while (frames < DRAIN_MAX) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&feed->connection.reader, feed->connection.fd, &data, &size);
		if (r == 0)
			break;
		if (r < 0)
			return lose_connection(feed, r);
		r = read_notice(feed, data, size);
		if (r < 0)
			return r;
		frames++;
	}
	return frames;
}

static int attend_fetched(struct feed *feed, struct fetched *fetched)
{
	unsigned connects = fetched->connects;
	int r = fetch_attend(fetched, feed->error);
	if (r == 0 && fetched->connects != connects)
		r = reopen_watch_fetcher(feed, fetched);
	if (r == FETCH_STALE) {
		feed->fetched_stale = true;
		r = error_set(feed->error, -ECONNRESET,
			      "%.300s: its files have been removed from the cache; the feed can be "
			      "opened again at epoch %llu, batch %llu.",
			      fetched->url, (unsigned long long)feed->epoch,
			      (unsigned long long)feed->batch);
	}
	return r;
}

/*
 * Returns 0, or a negative errno if a dataset cannot be fetched any more, or the feed must be
 * reopened. All fetchers are heard, so that all whose files are gone are known by then.
 */
static int attend_fetchers(struct feed *feed)
{
	int failed = 0;
	for (uint32_t p = 0; p < feed->fetched_count && (failed == 0 || feed->fetched_stale); p++) {
		int r = feed->fetched[p] ? attend_fetched(feed, feed->fetched[p]) : 0;
		failed = r < 0 ? r : failed;
	}
	if (failed < 0)
		feed->failed = failed;
	return failed;
}

const char *feed_wait_text(struct feed *feed)
{
	const char *text = "";

	for (uint32_t p = 0; p < feed->fetched_count && !*text; p++)
		if (feed->fetched[p])
			text = fetch_wait_text(feed->fetched[p]);
	return text;
}

static void wait_for_socket(struct feed *feed, int timeout_ms)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	/* poll() ignores an fd of -1 */
	struct pollfd p[1 + FILLING_DATASETS] = {{.fd = feed->connection.fd, .events = POLLIN}};
	nfds_t count = 1;
	for (uint32_t i = 0; i < feed->fetched_count; i++)
		if (feed->fetched[i])
			p[count++] = (struct pollfd){.fd = feed->fetched[i]->fd, .events = POLLIN};
	poll(p, count,
	     timeout_ms); /* EINTR acts like a doorbell: the caller checks the ring again */
	struct ring_ack *ack = feed->ring.ack;
	uint64_t stall_ns = atomic_load_explicit(&ack->stall_ns, memory_order_relaxed);
	atomic_store_explicit(&ack->stall_ns, stall_ns + clock_ns(CLOCK_MONOTONIC) - start_ns,
			      memory_order_relaxed);
}

/*
 * Repeats: set the waiting word, check the ring, read the socket; if there was nothing to read,
 * poll. The daemon clears the waiting word with each doorbell, so after every frame the word must
 * be set and the ring checked again before polling. Returning -ETIMEDOUT leaves the word set, which
 * makes feed_fd() fire.
 */
static int wait_for_slot(struct feed *feed, int timeout_ms, const struct ring_slot **ret_slot)
{
	int64_t deadline_ms = timeout_ms <= 0 ? 0 : clock_ms() + timeout_ms;
	for (unsigned rounds = 1;; rounds++) {
		ring_consumer_arm(&feed->ring, 1);
		feed->armed = true;
		int r = check_ring(feed, ret_slot);
		if (r != -EAGAIN)
			return r;
		int drained = read_notices(feed);
		if (drained == 0) {
			int failed = attend_fetchers(feed);
			drained = failed < 0 ? failed : drained;
		}
		if (drained < 0) {
			/*
			 * Batches published before the loss are complete and are delivered first.
			 */
			r = check_ring(feed, ret_slot);
			return r != -EAGAIN ? r : drained;
		}
		int left_ms = timeout_ms < 0    ? -1
			      : timeout_ms == 0 ? 0
						: clock_left_ms(deadline_ms);
		if (left_ms == 0 && (drained == 0 || rounds > DRAIN_MAX))
			return error_set(feed->error, -ETIMEDOUT, "No batch within %d ms.",
					 timeout_ms);
		if (drained == 0)
			wait_for_socket(feed, left_ms);
	}
}

/*
 * The ring is shared with the parent: taking or releasing here would affect the parent's batches.
 */
int feed_refuse_in_fork(struct feed *feed)
{
	return error_set(feed->error, -ECHILD,
			 "This feed belongs to the process that this one was forked from; open "
			 "another here.");
}

/* Waits for a batch; if the daemon has gone, also for the next daemon. */
static int wait_for_batch(struct feed *feed, int timeout_ms, const struct ring_slot **ret_slot)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : clock_ms() + timeout_ms;
	for (;;) {
		int r = feed->failed;
		if (feed->ring.header)
			r = wait_for_slot(feed,
					  timeout_ms <= 0 ? timeout_ms : clock_left_ms(deadline_ms),
					  ret_slot);
		if (r != -ECONNRESET || !reopen_wanted(feed))
			return r;
		r = feed_reopen(feed, deadline_ms);
		if (r != 0)
			return r;
		wants_resend(feed);
	}
}

static int feed_take(struct feed *feed, int timeout_ms, const struct ring_slot **ret_slot)
{
	if (feed->broken != 0)
		return feed->broken;
	*ret_slot = feed->ring.header ? ring_take(&feed->ring) : NULL;
	if (!*ret_slot) {
		int r = wait_for_batch(feed, timeout_ms, ret_slot);
		if (r != 0)
			return r;
	}
	if (feed->armed) {
		ring_consumer_arm(&feed->ring, 0);
		feed->armed = false;
	}
	return 0;
}

static void feed_discard(struct feed *feed)
{
	pthread_mutex_lock(&feed->lock);
	int r = ring_ack(&feed->ring, feed->ring.taken);
	pthread_mutex_unlock(&feed->lock);
	if (r > 0)
		feed_doorbell(feed);
}

int feed_next(struct feed *feed, int timeout_ms, struct feed_batch *batch)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : clock_ms() + timeout_ms;
	for (;;) {
		const struct ring_slot *slot;
		if (feed->connection.fd < 0)
			return feed_refuse_in_fork(feed);
		if (feed->options.wanted && !wants_due(feed))
			return error_set(feed->error, -EINVAL,
					 "No batch is wanted: ask for one with feed_want().");
		int r = feed_take(feed, timeout_ms <= 0 ? timeout_ms : clock_left_ms(deadline_ms),
				  &slot);
		if (r != 0)
			return r;
		if (feed->wanted.forgotten == 0)
			return hand_out_batch(feed, slot, batch);
		feed_discard(feed);
		wants_pop(feed);
	}
}

int feed_release(struct feed *feed, const struct feed_batch *batch)
{
	if (feed->connection.fd < 0)
		return -ECHILD;
	int r;
	pthread_mutex_lock(&feed->lock);
	if (batch->number > feed->base)
		r = ring_ack(&feed->ring, batch->number - feed->base);
	else
		r = old_ring_release(feed, batch->number);
	pthread_mutex_unlock(&feed->lock);
	if (r > 0)
		feed_doorbell(feed);
	return r < 0 ? r : 0;
}

const struct ring_consumer *feed_ring_of(const struct feed *feed, uint64_t number,
					 uint64_t *ret_base)
{
	*ret_base = feed->base;
	if (number > feed->base)
		return &feed->ring;
	for (const struct old_ring *old = feed->old; old; old = old->next) {
		*ret_base = old->base;
		if (number > old->base)
			return &old->ring;
	}
	return NULL;
}

static const struct ring_section *section_of(const struct ring_geometry *layout, uint32_t field)
{
	return &layout->sections[RING_FIRST_FIELD + field];
}

static enum feed_field_type field_type(const struct ring_section *section)
{
	if (section->kind != RING_DENSE)
		return (enum feed_field_type)section->kind;
	return section->element == RING_I64 ? FEED_INT64 : FEED_FLOAT64;
}

int feed_field(const struct feed *feed, const struct feed_batch *batch, uint32_t field,
	       struct feed_field *ret_field)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&feed->lock;
	if (feed->connection.fd < 0)
		return -ECHILD;
	pthread_mutex_lock(lock);
	uint64_t base;
	const struct ring_consumer *ring = feed_ring_of(feed, batch->number, &base);
	const struct ring_geometry *layout = ring ? &ring->layout : NULL;
	bool known = layout && layout->version == RING_VERSION_1 &&
		     field < layout->section_count - RING_FIRST_FIELD;
	if (known)
		*ret_field = (struct feed_field){
			.name = feed->field_names[field],
			.type = field_type(section_of(layout, field)),
			.values = (const char *)batch->images -
				  layout->sections[RING_IMAGES].offset +
				  section_of(layout, field)->offset,
			.stride = section_of(layout, field)->stride,
		};
	pthread_mutex_unlock(lock);
	return known ? 0 : -EINVAL;
}
