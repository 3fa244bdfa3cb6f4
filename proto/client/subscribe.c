#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/client/feed_state.h"
#include "proto/client/files.h"
#include "proto/client/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_SIZE_DEFAULT = 256 };

/* Encoded Request{ring_mapped{}}: field 6, length-delimited, empty. */
static const uint8_t ring_mapped[] = {6 << 3 | 2, 0};

static int unknown_ring(const struct feed *feed, char *error)
{
	return daemon_error(
		&feed->connection, error, -EPROTO,
		"sent no ring that this library knows (ring versions %d and %d): install "
		"daemon and library of one version.",
		RING_VERSION_1, RING_VERSION_2);
}

static int map_ring(struct feed *feed, int ring_fd, int ack_fd, uint32_t mapping, char *error)
{
	int r = ring_consumer_map(&feed->ring, ring_fd, ack_fd, (enum ring_mapping)mapping);
	if (r == -EPROTO)
		return unknown_ring(feed, error);
	if (r == -E2BIG)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "sent more memory for batches than the machine has.");
	if (r == -ENOMEM)
		return error_set(error, r,
				 "Not enough memory for the batches of the feed, which is charged "
				 "to this process's control group: ask for fewer slots or smaller "
				 "batches, or raise the group's limit.");
	if (r < 0)
		return error_set(error, r, "Cannot map the batches of the daemon on %s: %s.",
				 feed->connection.socket, strerror(-r));
	return 0;
}

/*
 * The ring comes first, in a separate reply. The daemon waits until it is mapped and all its pages
 * exist, then sends its answer.
 */
static int receive_ring(struct feed *feed, const struct feed_options *options, int64_t deadline_ms,
			Loaderd__Reply **reply, char *error)
{
	struct frame_reader *reader = &feed->connection.reader;
	if ((*reply)->kind_case != LOADERD__REPLY__KIND_RING)
		return 0;
	loaderd__reply__free_unpacked(*reply, NULL);
	*reply = NULL;
	if (frame_fd_count(reader) != 2)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "sent %u descriptors for a ring, not two.",
				    frame_fd_count(reader));
	int ring_fd = frame_take_fd(reader, 0), ack_fd = frame_take_fd(reader, 1);
	int r = map_ring(feed, ring_fd, ack_fd, options->writable, error);
	io_close(ring_fd);
	io_close(ack_fd);
	if (r < 0)
		return r;
	r = frame_send(feed->connection.fd, ring_mapped, sizeof(ring_mapped), NULL, 0,
		       clock_left_ms(deadline_ms));
	if (r < 0)
		return error_set(error, r,
				 "Cannot tell the daemon on %s that its ring is mapped: %s.",
				 feed->connection.socket, strerror(-r));
	return connection_reply(&feed->connection, options->pipeline, deadline_ms, reply, error);
}

static uint32_t batch_size_of(const struct feed_options *options)
{
	return options->batch_size != 0 ? options->batch_size : BATCH_SIZE_DEFAULT;
}

static uint32_t repeats_of(const struct feed_options *options)
{
	return options->repeats != 0 ? options->repeats : 1;
}

/* Whether files of the feed are being filled, by a fetcher or by the caller's process. */
static bool is_filling(const struct feed *feed, const struct feed_options *options)
{
	return feed->fetched_count > 0 || options->filling;
}

/* Adds what fills the files of a part: its fetcher, or the caller's process. */
static void add_filling(const struct feed *feed, const struct feed_options *options, uint32_t part,
			struct file_source *source)
{
	source->fetched = part < feed->fetched_count ? feed->fetched[part] : NULL;
	source->filling = source->fetched ? &source->fetched->filling : options->filling;
}

/* Sends the request, and the files of its dataset or of its parts. */
static int send_request(struct feed *feed, const struct feed_options *options,
			const Loaderd__Request *request, int64_t *deadline_ms,
			Loaderd__Reply **ret_reply, char *error)
{
	const struct kept_order *order = feed->order;
	const char *pipeline = request->open_feed->pipeline;
	struct file_source only = {.path = request->open_feed->dataset};
	add_filling(feed, options, 0, &only);
	if (!order)
		return files_request(&feed->connection, request, pipeline, &only, 1, deadline_ms,
				     ret_reply, error);
	struct file_source *sources = calloc(order->part_count, sizeof(*sources));
	if (!sources)
		return error_set(error, -ENOMEM, "Out of memory.");
	for (uint32_t p = 0; p < order->part_count; p++) {
		sources[p] = (struct file_source){.path = order->parts[p].path,
						  .lists = order->parts[p].lists};
		add_filling(feed, options, p, &sources[p]);
	}
	int r = files_request(&feed->connection, request, pipeline, sources, order->part_count,
			      deadline_ms, ret_reply, error);
	free(sources);
	return r;
}

static int subscribe_as(struct feed *feed, const struct feed_options *options, uint32_t version,
			char *dataset, int64_t deadline_ms, Loaderd__Reply **ret_reply, char *error)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	open.version = version;
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
	open.n_values = options->value_count;
	open.values = (char **)options->values;
	open.field_bytes = options->field_bytes;
	open.whole_values = options->cut_values == 0;
	open.text_fields = options->size > FEED_OPTIONS_SIZE_1;
	open.repeats = options->repeats > 1 ? options->repeats : 0;
	open.wanted = options->wanted != 0;
	open.views = true;
	open.progress = true;
	open.targets = true;
	open.filling = is_filling(feed, options);
	open.patches = true;
	open.name = (char *)(options->name ? options->name : "");
	open.writable = options->writable == FEED_WRITABLE;
	if (feed->order)
		order_fill(feed->order, &open);
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	int r = send_request(feed, options, &request, &deadline_ms, ret_reply, error);
	return r < 0 ? r : receive_ring(feed, options, deadline_ms, ret_reply, error);
}

/* Asks for fields as the version that has them does, and for all else as the newest. */
static uint32_t version_for(const struct feed_options *options)
{
	return options->field_count > 0 ? PROTO_VERSION_OLDEST : PROTO_VERSION;
}

/* Asks a daemon that does not know the newest version as the oldest, unless for something new. */
static int subscribe(struct feed *feed, const struct feed_options *options, char *dataset,
		     int64_t deadline_ms, Loaderd__Reply **ret_reply, char *error)
{
	uint32_t version = version_for(options);
	int r = subscribe_as(feed, options, version, dataset, deadline_ms, ret_reply, error);
	if (r == 0 || !feed->connection.version_refused || version == PROTO_VERSION_OLDEST)
		return r;
	if (feed->order)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of orders: update it, or open the feed without.");
	if (options->value_count > 0)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of values: update it, or open the feed without.");
	if (error)
		error[0] = '\0';
	return subscribe_as(feed, options, PROTO_VERSION_OLDEST, dataset, deadline_ms, ret_reply,
			    error);
}

/* Checks that the daemon granted the ring that the options ask for. */
static int take_ring(struct feed *feed, const struct feed_options *options,
		     const Loaderd__FeedOpened *opened, char *error)
{
	if (options->writable == FEED_WRITABLE && !opened->writable)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of writable rings: update it, or open the feed without.");
	if (repeats_of(options) > 1 && opened->repeats != options->repeats)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of repeats: update it, or open the feed without.");
	if (options->wanted && !opened->wanted)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of wanted feeds: update it, or open the feed without.");
	if (is_filling(feed, options) && opened->filling != 1)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of files that are being filled, as those of a store are: "
			"update it, or fetch the dataset first, with packimg fetch.");
	if (feed->order && opened->n_parts != feed->order->part_count)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of orders: update it, or open the feed without.");
	if (feed->order && opened->n_bucket_samples != feed->order->bucket_count)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of buckets: update it, or open the feed without.");
	if (feed->order && opened->block_samples != feed->order->block_samples)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of blocks: update it, or open the feed without.");
	if (feed->order && opened->batch_tokens != feed->order->batch_tokens)
		return daemon_error(
			&feed->connection, error, -ENOTSUP,
			"does not know of batch_tokens: update it, or open the feed without.");
	if (!feed->ring.header)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "opened a feed without a ring.");
	int r = ring_consumer_check(&feed->ring);
	if (r == -ENOMEM)
		return error_set(error, r, "Out of memory.");
	bool newest = version_for(options) == PROTO_VERSION && !feed->connection.version_refused;
	if (r < 0 || feed->ring.layout.version != (newest ? RING_VERSION_2 : RING_VERSION_1))
		return unknown_ring(feed, error);
	return newest ? sections_init(feed, options, opened, error) : 0;
}

/*
 * Callers allocate by the options that they passed, and count and divide by the reported numbers.
 */
static int check_opened(const struct feed *feed, const struct feed_options *options, char *error)
{
	const struct ring_geometry *layout = &feed->ring.layout;
	const struct feed_info *info = &feed->info;
	uint32_t batch_size = batch_size_of(options);
	uint32_t slots = options->slots != 0 ? options->slots : layout->slots;
	if (layout->batch_size_max != batch_size || layout->slots != slots)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "opened a feed of %u slots for %u samples each, where %u for "
				    "%u were asked for.",
				    layout->slots, layout->batch_size_max, slots, batch_size);
	uint64_t samples = feed->order && !options->wanted ? info->epoch_samples : info->samples;
	bool divided =
		options->wanted
			? info->batches_per_epoch == 0 && info->samples > 0
			: info->batches_per_epoch > 0 &&
				  (info->batches_per_epoch - 1) / repeats_of(options) < samples;
	if (!divided)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "opened a feed of %llu samples in %llu batches.",
				    (unsigned long long)samples,
				    (unsigned long long)info->batches_per_epoch);
	return 0;
}

/* Keeps what the daemon says of the parts, whose samples must add up. */
static int keep_parts(struct feed *feed, const Loaderd__FeedOpened *opened, char *error)
{
	uint64_t first = 0;
	bool overflow = false;
	if (!feed->order)
		return 0;
	feed->parts = calloc(opened->n_parts, sizeof(*feed->parts));
	if (!feed->parts)
		return error_set(error, -ENOMEM, "Out of memory.");
	for (uint32_t p = 0; p < opened->n_parts; p++) {
		const Loaderd__OpenedPart *part = opened->parts[p];
		feed->parts[p] = (struct feed_opened_part){.size = sizeof(*feed->parts),
							   .first = first,
							   .samples = part->samples,
							   .chosen = part->chosen};
		copy_uuid(&part->uuid, feed->parts[p].uuid);
		overflow |= __builtin_add_overflow(first, part->samples, &first);
	}
	if (overflow || first != opened->samples)
		return daemon_error(&feed->connection, error, -EPROTO,
				    "opened parts of %llu samples as a feed of %llu.",
				    (unsigned long long)first, (unsigned long long)opened->samples);
	if (feed->order->bucket_count > 0) {
		size_t size = feed->order->bucket_count * sizeof(*feed->bucket_samples);
		feed->bucket_samples = malloc(size);
		if (!feed->bucket_samples)
			return error_set(error, -ENOMEM, "Out of memory.");
		memcpy(feed->bucket_samples, opened->bucket_samples, size);
	}
	feed->info.part_count = (uint32_t)opened->n_parts;
	feed->info.epoch_samples = opened->epoch_samples;
	feed->info.order_hash = opened->order_hash;
	feed->info.epoch_batches = opened->epoch_batches;
	return 0;
}

static int keep_field_names(struct feed *feed, const struct feed_options *options, char *error)
{
	const struct ring_section *sections = feed->ring.layout.sections + RING_FIRST_FIELD;
	uint32_t delivered = feed->ring.layout.section_count - RING_FIRST_FIELD;
	if (feed->ring.layout.version != RING_VERSION_1)
		return 0;
	if (delivered != options->field_count)
		return error_set(error, -EPROTO,
				 "fields: %u asked for, the daemon on %s delivers %u.",
				 options->field_count, feed->connection.socket, delivered);
	if (options->field_bytes != 0 && feed->ring.layout.field_bytes > options->field_bytes)
		return error_set(error, -EPROTO,
				 "field_bytes: %u asked for, the daemon on %s delivers up to %u.",
				 options->field_bytes, feed->connection.socket,
				 feed->ring.layout.field_bytes);
	for (uint32_t i = 0; i < options->field_count; i++) {
		if (sections[i].kind == RING_RECORD_TEXT && options->size <= FEED_OPTIONS_SIZE_1)
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
	feed->connection.progress = options->progress;
	feed->connection.progress_user = options->progress_user;
	char *dataset = NULL;
	r = feed->order ? 0 : absolute_path(options->dataset, &dataset, error);
	if (r < 0)
		return r;
	if (dataset)
		dataset[text_shown_length(dataset)] = '\0';
	Loaderd__Reply *reply = NULL;
	r = subscribe(feed, options, dataset, deadline_ms, &reply, error);
	free(dataset);
	if (r < 0)
		return r;
	if (reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED) {
		const Loaderd__FeedOpened *opened = reply->feed_opened;
		feed->info = (struct feed_info){
			.feed_id = opened->feed_id,
			.samples = opened->samples,
			.batches_per_epoch = opened->batches_per_epoch,
			.classes = opened->classes,
		};
		copy_uuid(&opened->dataset_uuid, feed->info.dataset_uuid);
		r = take_ring(feed, options, opened, error);
		r = r ?: keep_parts(feed, opened, error);
	} else if (reply->kind_case == LOADERD__REPLY__KIND_SHUTTING_DOWN) {
		/*
		 * The daemon sends ShuttingDown to every client, also to those that wait for a
		 * reply.
		 */
		r = daemon_error(&feed->connection, error, -ESHUTDOWN, "is shutting down.");
	} else {
		r = daemon_error(&feed->connection, error, -EPROTO,
				 "answered a subscription with message %d.", (int)reply->kind_case);
	}
	loaderd__reply__free_unpacked(reply, NULL);
	r = r ?: check_opened(feed, options, error);
	if (r < 0)
		return r;
	feed->info.section_count = feed->section_count;
	feed->info.target_count = feed->target_count;
	feed->info.slots = feed->ring.layout.slots;
	feed->info.batch_size = feed->ring.layout.batch_size_max;
	feed->info.memory = feed->ring.header;
	feed->info.memory_size = feed->ring.map_size;
	feed_set_position(feed, options->epoch, options->batch, false);
	return keep_field_names(feed, options, error);
}
