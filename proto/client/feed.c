#include "format/base/clock.h"
#include "proto/client/daemon.h"
#include "proto/client/feed_state.h"
#include "proto/client/files.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	BATCH_SIZE_DEFAULT = 256,
	DRAIN_MAX = 64,     /* frames taken from the socket between two looks at the ring */
	NOTICE_MAX = 16384, /* bytes of one: an Error's text has room for a path or two */
};

/*
 * Sizes of the structures in the first release: what a caller that left size at zero was built
 * with.
 */
enum {
	OPTIONS_SIZE_0 = offsetof(struct feed_options, reconnect),
	INFO_SIZE_0 = offsetof(struct feed_info, reconnects),
	OPTIONS_SIZE_1 =
		offsetof(struct feed_options, cut_values), /* then programs know text, too */
	BATCH_SIZE_0 = offsetof(struct feed_batch, reconnects),
};

_Static_assert((int)FEED_U8 == (int)RING_U8 && (int)FEED_F16 == (int)RING_F16 &&
		       (int)FEED_BF16 == (int)RING_BF16 && (int)FEED_F32 == (int)RING_F32,
	       "elements pass through");
_Static_assert((int)FEED_WRITABLE == (int)RING_MAP_WRITABLE && (int)FEED_OWN == (int)RING_MAP_OWN,
	       "mappings pass through");
_Static_assert((int)FEED_NHWC == (int)RING_NHWC && (int)FEED_NCHW == (int)RING_NCHW,
	       "layouts pass through");
_Static_assert((int)FEED_SAMPLE_FIELD_CUT == (int)RING_SAMPLE_FIELD_CUT, "flags pass through");
_Static_assert((int)FEED_TEXT == (int)RING_FIELD_TEXT, "types pass through");

/*
 * Request{doorbell{}} and Request{ring_mapped{}} in a frame's body: fields 4 and 6,
 * length-delimited, empty.
 */
static const uint8_t doorbell[] = {4 << 3 | 2, 0}, ring_mapped[] = {6 << 3 | 2, 0};

void feed_options_init(struct feed_options *options)
{
	*options = (struct feed_options){.size = sizeof(*options)};
}

/* Copies the part of a versioned structure that both sides know; the rest of `to` stays. */
static size_t known_size(size_t callers, size_t first, size_t ours)
{
	if (callers == 0)
		callers = first;
	return callers < ours ? callers : ours;
}

/* What only this side can check; everything else is the daemon's to judge. */
static int check_options(const struct feed_options *options, char *error)
{
	if (options->field_count > RING_FIELDS_MAX)
		return error_set(error, -EINVAL,
				 "fields: %u asked for, a feed delivers at most %d.",
				 options->field_count, RING_FIELDS_MAX);
	for (uint32_t i = 0; i < options->field_count; i++)
		if (!options->fields || !options->fields[i])
			return error_set(error, -EINVAL, "fields: number %u of %u has no name.", i,
					 options->field_count);
	if (options->world == 0 ? options->rank > 0 : options->rank >= options->world)
		return error_set(error, -EINVAL, "rank: %u is not below world, %u.", options->rank,
				 options->world == 0 ? 1 : options->world);
	if (options->last > FEED_LAST_SHORT)
		return error_set(error, -EINVAL,
				 "last: %u is neither FEED_LAST_DROP nor FEED_LAST_SHORT.",
				 options->last);
	if (options->bad > FEED_BAD_FAIL)
		return error_set(
			error, -EINVAL,
			"bad: %u is none of FEED_BAD_SUBSTITUTE, FEED_BAD_SKIP, FEED_BAD_FAIL.",
			options->bad);
	if (options->writable > FEED_OWN)
		return error_set(error, -EINVAL,
				 "writable: %u is none of FEED_READ_ONLY, FEED_WRITABLE, FEED_OWN.",
				 options->writable);
	if (options->cut_values > 1)
		return error_set(error, -EINVAL, "cut_values: %u is neither 0 nor 1.",
				 options->cut_values);
	if (options->reconnect > FEED_RECONNECT_NEVER)
		return error_set(error, -EINVAL,
				 "reconnect: %u is neither FEED_RECONNECT nor "
				 "FEED_RECONNECT_NEVER.",
				 options->reconnect);
	return 0;
}

/* Descriptors of a feed's memory. */
struct ring_fds {
	int ring, ack;
};

static void close_ring_fds(struct ring_fds *fds)
{
	if (fds->ring >= 0)
		close(fds->ring);
	if (fds->ack >= 0)
		close(fds->ack);
	*fds = (struct ring_fds){-1, -1};
}

/* The memory comes by itself, and the answer behind it. */
static int receive_ring(struct feed *feed, const char *pipeline, int64_t deadline_ms,
			struct ring_fds *ret_fds, Loaderd__Reply **reply, char *error)
{
	struct frame_reader *reader = &feed->connection.reader;
	if ((*reply)->kind_case != LOADERD__REPLY__KIND_RING)
		return 0;
	bool two = frame_fd_count(reader) == 2;
	if (two)
		*ret_fds = (struct ring_fds){frame_take_fd(reader, 0), frame_take_fd(reader, 1)};
	loaderd__reply__free_unpacked(*reply, NULL);
	*reply = NULL;
	if (!two)
		return error_set(error, -EPROTO,
				 "The daemon on %s sent %u descriptors for a ring, not two.",
				 feed->connection.socket, frame_fd_count(reader));
	return connection_reply(&feed->connection, pipeline, deadline_ms, reply, error);
}

static uint32_t batch_size_of(const struct feed_options *options)
{
	return options->batch_size != 0 ? options->batch_size : BATCH_SIZE_DEFAULT;
}

static int subscribe(struct feed *feed, const struct feed_options *options, char *dataset,
		     int64_t deadline_ms, struct ring_fds *ret_fds, Loaderd__Reply **ret_reply,
		     char *error)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	open.version = PROTO_VERSION;
	open.dataset = dataset;
	open.pipeline = (char *)(options->pipeline ? options->pipeline : "");
	open.batch_size = batch_size_of(options);
	open.seed = options->seed;
	open.shuffle = options->shuffle != 0;
	open.epoch = options->epoch;
	open.batch = options->batch;
	open.epoch_end = options->epoch_end;
	open.rank = options->rank;
	open.world = options->world;
	open.last = (Loaderd__LastBatch)options->last;
	open.bad = (Loaderd__BadSample)options->bad;
	open.slots = options->slots;
	open.n_fields = options->field_count;
	open.fields = (char **)options->fields;
	open.field_bytes = options->field_bytes;
	open.whole_values = options->cut_values == 0;
	open.text_fields = options->size > OPTIONS_SIZE_1;
	open.name = (char *)(options->name ? options->name : "");
	open.writable = options->writable == FEED_WRITABLE;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	int r = files_request(&feed->connection, &request, open.pipeline, dataset, deadline_ms,
			      ret_reply, error);
	return r < 0 ? r
		     : receive_ring(feed, open.pipeline, deadline_ms, ret_fds, ret_reply, error);
}

static int map_ring(struct feed *feed, const struct ring_fds *fds, uint32_t writable, char *error)
{
	int r = -EPROTO;
	if (fds->ring >= 0)
		r = ring_consumer_init(&feed->ring, fds->ring, fds->ack,
				       (enum ring_mapping)writable);
	if (r == -EPROTO)
		return error_set(
			error, r,
			"The daemon on %s sent no ring that this library knows (ring version %d): "
			"install daemon and library of one version.",
			feed->connection.socket, RING_VERSION);
	if (r < 0)
		return error_set(error, r, "Cannot map the batches of the daemon on %s: %s.",
				 feed->connection.socket, strerror(-r));
	return 0;
}

/* Position of the next batch. The one after an epoch's last is the next epoch's first. */
static void set_position(struct feed *feed, uint64_t epoch, uint64_t batch, bool ended)
{
	ended |= batch != 0 && batch == feed->info.batches_per_epoch;
	feed->epoch = ended ? epoch + 1 : epoch;
	feed->batch = ended ? 0 : batch;
}

/* The ring that was asked for. The daemon waits until it is mapped. */
static int take_ring(struct feed *feed, const struct feed_options *options,
		     const Loaderd__FeedOpened *opened, const struct ring_fds *fds,
		     int64_t deadline_ms, char *error)
{
	if (options->writable == FEED_WRITABLE && !opened->writable)
		return error_set(error, -ENOTSUP,
				 "The daemon on %s does not know of writable rings: update it, or "
				 "open the feed without.",
				 feed->connection.socket);
	int r = map_ring(feed, fds, options->writable, error);
	if (r < 0)
		return r;
	r = frame_send(feed->connection.fd, ring_mapped, sizeof(ring_mapped), NULL, 0,
		       clock_left_ms(deadline_ms));
	if (r < 0)
		return error_set(error, r,
				 "Cannot tell the daemon on %s that its ring is mapped: %s.",
				 feed->connection.socket, strerror(-r));
	return 0;
}

/* Callers make room by what they asked for, and count and divide by what they are told. */
static int check_opened(const struct feed *feed, const struct feed_options *options, char *error)
{
	const struct ring_header *layout = &feed->ring.layout;
	const struct feed_info *info = &feed->info;
	uint32_t batch_size = batch_size_of(options);
	uint32_t slots = options->slots != 0 ? options->slots : layout->slots;
	if (layout->batch_size_max != batch_size || layout->slots != slots)
		return error_set(error, -EPROTO,
				 "The daemon on %s opened a feed of %u slots for %u samples each, "
				 "where %u for %u were asked for.",
				 feed->connection.socket, layout->slots, layout->batch_size_max,
				 slots, batch_size);
	if (info->batches_per_epoch < 1 || info->batches_per_epoch > info->samples)
		return error_set(error, -EPROTO,
				 "The daemon on %s opened a feed of %llu samples in %llu batches.",
				 feed->connection.socket, (unsigned long long)info->samples,
				 (unsigned long long)info->batches_per_epoch);
	return 0;
}

static int keep_field_names(struct feed *feed, const struct feed_options *options, char *error)
{
	if (feed->ring.layout.field_count != options->field_count)
		return error_set(error, -EPROTO,
				 "fields: %u asked for, the daemon on %s delivers %u.",
				 options->field_count, feed->connection.socket,
				 feed->ring.layout.field_count);
	if (options->field_bytes != 0 && feed->ring.layout.field_bytes > options->field_bytes)
		return error_set(error, -EPROTO,
				 "field_bytes: %u asked for, the daemon on %s delivers up to %u.",
				 options->field_bytes, feed->connection.socket,
				 feed->ring.layout.field_bytes);
	for (uint32_t i = 0; i < options->field_count; i++) {
		if (feed->ring.layout.fields[i].type == FEED_TEXT &&
		    options->size <= OPTIONS_SIZE_1)
			return error_set(error, -EPROTO,
					 "fields: the daemon on %s delivers %s as text, of which "
					 "this program does not know.",
					 feed->connection.socket, options->fields[i]);
		feed->field_names[i] = strdup(options->fields[i]);
		if (!feed->field_names[i])
			return error_set(error, -ENOMEM, "Out of memory.");
		feed->field_count++;
	}
	return 0;
}

int feed_subscribe(struct feed *feed, const struct feed_options *options, char *error)
{
	int64_t deadline_ms = clock_ms() + (options->open_timeout_ms != 0 ? options->open_timeout_ms
									  : CONNECTION_TIMEOUT_MS);
	int r = connection_open(&feed->connection, options->socket, deadline_ms, error);
	if (r < 0)
		return r;
	fork_guard_add(&feed->guard, &feed->connection.fd);
	char *dataset;
	r = absolute_path(options->dataset, &dataset, error);
	if (r < 0)
		return r;
	Loaderd__Reply *reply = NULL;
	struct ring_fds fds = {-1, -1};
	r = subscribe(feed, options, dataset, deadline_ms, &fds, &reply, error);
	free(dataset);
	if (r < 0) {
		close_ring_fds(&fds);
		return r;
	}
	if (reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED) {
		const Loaderd__FeedOpened *opened = reply->feed_opened;
		feed->info = (struct feed_info){
			.feed_id = opened->feed_id,
			.samples = opened->samples,
			.batches_per_epoch = opened->batches_per_epoch,
			.classes = opened->classes,
		};
		copy_uuid(&opened->dataset_uuid, feed->info.dataset_uuid);
		r = take_ring(feed, options, opened, &fds, deadline_ms, error);
	} else if (reply->kind_case == LOADERD__REPLY__KIND_SHUTTING_DOWN) {
		/* It tells everybody, those too who wait for an answer. */
		r = error_set(error, -ESHUTDOWN, "The daemon on %s is shutting down.",
			      feed->connection.socket);
	} else {
		r = error_set(error, -EPROTO,
			      "The daemon on %s answered a subscription with message %d.",
			      feed->connection.socket, (int)reply->kind_case);
	}
	loaderd__reply__free_unpacked(reply, NULL);
	close_ring_fds(&fds);
	if (r == 0)
		r = check_opened(feed, options, error);
	if (r < 0)
		return r;
	feed->info.slots = feed->ring.slots;
	feed->info.batch_size = feed->ring.layout.batch_size_max;
	feed->info.memory = feed->ring.header;
	feed->info.memory_size = feed->ring.map_size;
	set_position(feed, options->epoch, options->batch, false);
	return keep_field_names(feed, options, error);
}

struct feed *feed_new(void)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	if (!feed)
		return NULL;
	feed->connection.fd = -1;
	feed->wake = -1;
	feed->timer = -1;
	pthread_mutex_init(&feed->lock, NULL);
	return feed;
}

/* To open the feed again by, with texts of its own. */
static int keep_options(struct feed *feed, const struct feed_options *options, char *error)
{
	char *dataset = NULL;
	int r = absolute_path(options->dataset, &dataset, error);
	if (r < 0)
		return r;
	feed->options = *options;
	feed->options.socket = feed->connection.socket;
	feed->options.fields = (const char *const *)feed->field_names;
	feed->options.dataset = dataset;
	feed->options.pipeline = strdup(options->pipeline ? options->pipeline : "");
	feed->options.name = strdup(options->name ? options->name : "");
	if (!feed->options.pipeline || !feed->options.name)
		return error_set(error, -ENOMEM, "Out of memory.");
	return 0;
}

static int open_feed(struct feed *feed, const struct feed_options *options, char *error)
{
	int r = check_options(options, error);
	if (r == 0 && options->socket && options->reconnect != FEED_RECONNECT_NEVER)
		r = daemon_revive(options->socket, error);
	if (r == 0)
		r = feed_subscribe(feed, options, error);
	if (r == 0)
		r = keep_options(feed, options, error);
	if (r < 0)
		return r;
	feed->wake = epoll_create1(EPOLL_CLOEXEC);
	r = feed->wake < 0 ? -errno : reopen_watch_socket(feed);
	return r < 0 ? error_set(error, r, "Cannot watch the connection: %s.", strerror(-r)) : 0;
}

/* What a fork has of batches at hand stays so when their slots have others. */
static void keep_held(struct fork_guard *guard)
{
	struct feed *feed = (struct feed *)((char *)guard - offsetof(struct feed, guard));
	pthread_mutex_lock(&feed->lock);
	ring_keep_held(&feed->ring);
	for (const struct old_ring *old = feed->old; old; old = old->next)
		ring_keep_held(&old->ring);
	pthread_mutex_unlock(&feed->lock);
}

int feed_open(const struct feed_options *callers, struct feed **ret_feed, char *error)
{
	struct feed_options options = {0};
	memcpy(&options, callers, known_size(callers->size, OPTIONS_SIZE_0, sizeof(options)));
	if (callers->size <= OPTIONS_SIZE_1)
		options.cut_values = 1; /* as ever for programs that cannot ask */
	if (error)
		error[0] = '\0';
	struct feed *feed = feed_new();
	if (!feed)
		return error_set(error, -ENOMEM, "Out of memory.");
	feed->guard.before = keep_held;
	int r = open_feed(feed, &options, error);
	if (r < 0) {
		feed_close(feed);
		return r;
	}
	*ret_feed = feed;
	return 0;
}

void feed_close(struct feed *feed)
{
	if (!feed)
		return;
	fork_guard_remove(&feed->guard);
	connection_close(&feed->connection);
	if (feed->wake >= 0)
		close(feed->wake);
	if (feed->timer >= 0)
		close(feed->timer);
	ring_consumer_deinit(&feed->ring);
	old_rings_free(feed);
	for (uint32_t i = 0; i < feed->field_count; i++)
		free(feed->field_names[i]);
	free((char *)feed->options.dataset);
	free((char *)feed->options.pipeline);
	free((char *)feed->options.name);
	free(feed);
}

void feed_disconnect(struct feed *feed)
{
	if (feed->connection.fd < 0)
		return;
	/*
	 * The descriptor stays, so that a release in another thread cannot hit a number that was
	 * reused.
	 */
	shutdown(feed->connection.fd, SHUT_RDWR);
	feed->failed = error_set(feed->error, -ENOTCONN, "The feed was disconnected by its owner.");
}

int feed_info(const struct feed *feed, struct feed_info *info)
{
	size_t callers = info->size;
	memcpy(info, &feed->info, known_size(callers, INFO_SIZE_0, sizeof(*info)));
	info->size = callers;
	return 0;
}

static uint64_t element_size(uint32_t element)
{
	switch (element) {
	case RING_U8:
		return 1;
	case RING_F16:
	case RING_BF16:
		return 2;
	case RING_F32:
		return 4;
	default:
		return 0;
	}
}

/* Bytes of a batch's images; 0 when the slot's header contradicts itself or the ring's. */
static uint64_t image_bytes(const struct ring_header *layout, const struct ring_slot *slot)
{
	uint64_t bytes = element_size(slot->element);
	if (slot->count > layout->batch_size_max || slot->channels < 3 || slot->channels > 4 ||
	    (slot->layout != RING_NHWC && slot->layout != RING_NCHW))
		return 0;
	if (__builtin_mul_overflow(bytes, (uint64_t)slot->count * slot->channels, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)slot->height, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)slot->width, &bytes) ||
	    bytes > layout->image_size_max)
		return 0;
	return bytes;
}

static int refuse_batch(struct feed *feed)
{
	feed->broken = -EPROTO;
	return error_set(feed->error, -EPROTO,
			 "The daemon on %s published batch %llu with a header that cannot be.",
			 feed->connection.socket, (unsigned long long)feed->ring.taken);
}

/* The batch that is due, and the epoch's last where that is due. */
static bool is_next(const struct feed *feed, const struct ring_slot *slot)
{
	uint64_t end = feed->options.epoch_end;
	return slot->number == feed->ring.taken && slot->epoch == feed->epoch &&
	       slot->batch == feed->batch && (end == 0 || slot->epoch < end) &&
	       (slot->last != 0) == (slot->batch + 1 == feed->info.batches_per_epoch);
}

/* A daemon that is older than whole_values cuts and flags without being asked. */
static int refuse_cut(struct feed *feed, const struct ring_slot *slot, uint64_t sample)
{
	feed->broken = -EBADMSG;
	return error_set(feed->error, -EBADMSG,
			 "Epoch %llu, batch %llu: sample %llu has a value that is longer than "
			 "field_bytes, %u, and the daemon on %s has cut it: ask for more, or for "
			 "cut values.",
			 (unsigned long long)slot->epoch, (unsigned long long)slot->batch,
			 (unsigned long long)sample, feed->ring.layout.field_bytes,
			 feed->connection.socket);
}

/* Number of the first sample whose values were cut; count: of none. */
static uint32_t find_cut(const struct feed *feed, const uint8_t *flags, uint32_t count)
{
	uint32_t i = 0;
	if (feed->options.cut_values || feed->field_count == 0)
		return count;
	while (i < count && !(flags[i] & FEED_SAMPLE_FIELD_CUT))
		i++;
	return i;
}

static int hand_out(struct feed *feed, const struct ring_slot *published, struct feed_batch *batch)
{
	const struct ring_header *layout = &feed->ring.layout;
	struct ring_slot slot;
	ring_copy_slot(published, &slot);
	uint64_t bytes = image_bytes(layout, &slot);
	if (feed->ring.broken || bytes == 0 || !is_next(feed, &slot))
		return refuse_batch(feed);
	const char *base = ring_show(&feed->ring, published);
	uint32_t cut = find_cut(feed, (const uint8_t *)base + layout->flag_offset, slot.count);
	if (cut < slot.count)
		return refuse_cut(feed, &slot,
				  ((const uint64_t *)(base + layout->sample_offset))[cut]);
	struct feed_batch full = {
		.size = batch->size,
		.number = feed->base + slot.number,
		.epoch = slot.epoch,
		.batch = slot.batch,
		.count = slot.count,
		.height = slot.height,
		.width = slot.width,
		.channels = slot.channels,
		.element = slot.element,
		.layout = slot.layout,
		.bad = slot.bad,
		.last = slot.last != 0,
		.images = base + layout->image_offset,
		.image_bytes = bytes,
		.labels = (const int32_t *)(base + layout->label_offset),
		.samples = (const uint64_t *)(base + layout->sample_offset),
		.flags = (const uint8_t *)base + layout->flag_offset,
		.publish_ns = slot.publish_ns,
		.reconnects = feed->info.reconnects,
		.shared_images = (const char *)published + layout->image_offset,
	};
	memcpy(batch, &full, known_size(batch->size, BATCH_SIZE_0, sizeof(full)));
	set_position(feed, full.epoch, full.batch + 1, full.last != 0);
	feed->again.fruitless = 0;
	return 0;
}

static int lose(struct feed *feed, int code)
{
	const char *how = feed->shutting_down ? "is shutting down" : "went away";
	if (feed->failed != 0)
		return feed->failed;
	if (code == -ECONNRESET)
		feed->failed = error_set(
			feed->error, code,
			"The daemon on %s %s; the feed can be opened again at epoch %llu, "
			"batch %llu.",
			feed->connection.socket, how, (unsigned long long)feed->epoch,
			(unsigned long long)feed->batch);
	else
		feed->failed = error_set(feed->error, code,
					 "The connection to the daemon on %s failed: %s.",
					 feed->connection.socket, strerror(-code));
	return feed->failed;
}

/*
 * Looks at the ring without waiting: 0, FEED_END, -EBADMSG, -ENOBUFS, or -EAGAIN when nothing is
 * there yet.
 */
static int look(struct feed *feed, const struct ring_slot **ret_slot)
{
	/* State before head: once it has left RING_RUNNING, the head read after it is the last. */
	uint32_t state = atomic_load_explicit(&feed->ring.header->state, memory_order_seq_cst);
	const struct ring_slot *slot = ring_take(&feed->ring);
	if (slot) {
		*ret_slot = slot;
		return 0;
	}
	if (state == RING_END)
		return FEED_END;
	if (state == RING_FAILED) {
		char reason[RING_REASON_MAX];
		ring_copy_reason(&feed->ring, reason);
		feed->shutting_down |= strcmp(reason, RING_REASON_STOPPING) == 0;
		if (feed->shutting_down)
			return lose(feed, -ECONNRESET);
		text_make_printable(reason);
		return error_set(feed->error, -EBADMSG, "The feed failed: %s", reason);
	}
	if (state != RING_RUNNING)
		return error_set(feed->error, -EPROTO, "The daemon on %s set the unknown state %u.",
				 feed->connection.socket, state);
	if (feed->failed == 0 &&
	    atomic_load_explicit(&feed->ring.held_count, memory_order_relaxed) >= feed->ring.slots)
		return error_set(
			feed->error, -ENOBUFS,
			"All %u batches that this feed has room for are held: release one, or open "
			"the feed with more slots.",
			feed->ring.slots);
	return -EAGAIN;
}

static int read_notice(struct feed *feed, const uint8_t *data, size_t size)
{
	static const uint8_t their_doorbell[] = {5 << 3 | 2, 0};
	if (size == sizeof(their_doorbell) && memcmp(data, their_doorbell, size) == 0)
		return 0;
	/*
	 * What may come unasked is short; a long one could hold half a million messages, and cost
	 * their memory and time each.
	 */
	Loaderd__Reply *reply = size > NOTICE_MAX ? NULL : loaderd__reply__unpack(NULL, size, data);
	if (!reply)
		return lose(feed, -EPROTO);
	switch (reply->kind_case) {
	case LOADERD__REPLY__KIND__NOT_SET: /* of a daemon that is newer */
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
		if (feed->failed == -ETIMEDOUT) /* callers would take it for "not yet", for ever */
			feed->failed = -EPROTO;
		break;
	default:
		lose(feed, -EPROTO);
	}
	loaderd__reply__free_unpacked(reply, NULL);
	return feed->failed;
}

/*
 * Takes what the socket holds. Positive: there were frames; 0: none; negative: the connection is
 * lost.
 */
static int drain(struct feed *feed)
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
			return lose(feed, r);
		r = read_notice(feed, data, size);
		if (r < 0)
			return r;
		frames++;
	}
	return frames;
}

static void wait_for_socket(struct feed *feed, int timeout_ms)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	struct pollfd p = {.fd = feed->connection.fd, .events = POLLIN};
	poll(&p, 1, timeout_ms); /* EINTR is as good as a doorbell: the caller looks again */
	struct ring_ack *ack = feed->ring.ack;
	uint64_t stall_ns = atomic_load_explicit(&ack->stall_ns, memory_order_relaxed);
	atomic_store_explicit(&ack->stall_ns, stall_ns + clock_ns(CLOCK_MONOTONIC) - start_ns,
			      memory_order_relaxed);
}

/*
 * Arm, look, drain, poll. The daemon takes the waiting word back with each doorbell, so that after
 * every drain that found something the word is set and the ring looked at again before polling;
 * returning -ETIMEDOUT leaves it set, which is what makes feed_fd() fire.
 */
static int wait_for_slot(struct feed *feed, int timeout_ms, const struct ring_slot **ret_slot)
{
	int64_t deadline_ms = timeout_ms <= 0 ? 0 : clock_ms() + timeout_ms;
	for (unsigned rounds = 1;; rounds++) {
		ring_consumer_arm(&feed->ring, 1);
		feed->armed = true;
		int r = look(feed, ret_slot);
		if (r != -EAGAIN)
			return r;
		int drained = drain(feed);
		if (drained < 0) {
			/* What it published before it went is complete, and is delivered first. */
			r = look(feed, ret_slot);
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
 * The ring is shared with the parent: taking or giving back here would do it to the parent's
 * batches.
 */
static int refuse_in_fork(struct feed *feed)
{
	return error_set(feed->error, -ECHILD,
			 "This feed belongs to the process that this one was forked from; open "
			 "another here.");
}

/* Waits, and where the daemon has gone, for the next one. */
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
	}
}

int feed_next(struct feed *feed, int timeout_ms, struct feed_batch *batch)
{
	if (feed->connection.fd < 0)
		return refuse_in_fork(feed);
	if (feed->broken != 0)
		return feed->broken;
	const struct ring_slot *slot = feed->ring.header ? ring_take(&feed->ring) : NULL;
	if (!slot) {
		int r = wait_for_batch(feed, timeout_ms, &slot);
		if (r != 0)
			return r;
	}
	if (feed->armed) {
		ring_consumer_arm(&feed->ring, 0);
		feed->armed = false;
	}
	return hand_out(feed, slot, batch);
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
	/*
	 * A doorbell that does not fit may be dropped: the socket then holds frames that the daemon
	 * has yet to read, and it looks at the acks after reading. A daemon that is gone is
	 * feed_next()'s to report; the one after it may be told for nothing.
	 */
	if (r > 0)
		(void)frame_send(feed->connection.fd, doorbell, sizeof(doorbell), NULL, 0, 0);
	return r < 0 ? r : 0;
}

/*
 * Of the ring that a batch lies in; NULL: it was given back, and its ring is gone. Under the lock.
 */
static const struct ring_header *layout_of(const struct feed *feed, uint64_t number)
{
	if (number > feed->base)
		return &feed->ring.layout;
	for (const struct old_ring *old = feed->old; old; old = old->next)
		if (number > old->base)
			return &old->ring.layout;
	return NULL;
}

int feed_field(const struct feed *feed, const struct feed_batch *batch, uint32_t field,
	       struct feed_field *ret_field)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&feed->lock;
	if (feed->connection.fd < 0)
		return -ECHILD;
	pthread_mutex_lock(lock);
	const struct ring_header *layout = layout_of(feed, batch->number);
	bool known = layout && field < layout->field_count;
	if (known)
		*ret_field = (struct feed_field){
			.name = feed->field_names[field],
			.type = (enum feed_field_type)layout->fields[field].type,
			.values = (const char *)batch->images - layout->image_offset +
				  layout->fields[field].offset,
			.stride = layout->fields[field].stride,
		};
	pthread_mutex_unlock(lock);
	return known ? 0 : -EINVAL;
}

int feed_position(const struct feed *feed, uint64_t *ret_epoch, uint64_t *ret_batch)
{
	*ret_epoch = feed->epoch;
	*ret_batch = feed->batch;
	return 0;
}

const char *feed_error(const struct feed *feed)
{
	return feed->error;
}

int feed_fd(const struct feed *feed)
{
	return feed->connection.fd < 0 ? -1 : feed->wake;
}
