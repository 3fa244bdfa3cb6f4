/* Invalid replies before a feed runs, while it runs, and to requests other than OpenFeed. */
#include "tests/security/compromised_worker/bad_feed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool is_closed(struct bad_feed *d)
{
	const uint8_t *data;
	size_t size;
	return !bad_feed_await(d, 0) || frame_receive(&d->reader, d->fd, &data, &size) < 0;
}

static void send_bytes(struct bad_feed *d, const void *bytes, size_t size)
{
	(void)!send(d->fd, bytes, size, MSG_NOSIGNAL);
}

static void send_error_code(struct bad_feed *d)
{
	bad_feed_send_error(d, (int)d->row->value, "so it is");
	bad_feed_read_until_closed(d);
}

static void send_megabyte(struct bad_feed *d)
{
	char *text = malloc(MEGABYTE / 3);
	if (!text)
		return;
	memset(text, '\x1b', MEGABYTE / 3 - 1);
	text[MEGABYTE / 3 - 1] = '\0';
	bad_feed_send_error(d, EIO, text);
	free(text);
	bad_feed_read_until_closed(d);
}

static void send_no_length(struct bad_feed *d)
{
	send_bytes(d, "\0\0\0\0", 4);
	bad_feed_read_until_closed(d);
}

static void send_huge_length(struct bad_feed *d)
{
	send_bytes(d, "\377\377\377\377", 4);
	bad_feed_read_until_closed(d);
}

static void send_half(struct bad_feed *d)
{
	send_bytes(d, "\0\0\x10\0half", 8);
	bad_feed_read_until_closed(d);
}

static void send_nonsense(struct bad_feed *d)
{
	send_bytes(d, "\4\0\0\0\377\377\377\377", 8);
	bad_feed_read_until_closed(d);
}

/* Sends an endless frame, one byte at a time. */
static void send_slowly(struct bad_feed *d)
{
	send_bytes(d, "\0\0\x10\0", 4);
	while (!is_closed(d)) {
		bad_feed_await(d, 20);
		send_bytes(d, "x", 1);
	}
}

static void flood_with_doorbells(struct bad_feed *d)
{
	while (!is_closed(d))
		bad_feed_send_doorbell(d);
}

static bool send_many_feeds(struct bad_feed *d)
{
	static Loaderd__FeedStatus empty = LOADERD__FEED_STATUS__INIT;
	static Loaderd__FeedStatus *feeds[MANY];
	Loaderd__Status status = LOADERD__STATUS__INIT;
	for (size_t i = 0; i < MANY; i++)
		feeds[i] = &empty;
	status.n_feeds = MANY;
	status.feeds = feeds;
	return bad_feed_send_reply(d, LOADERD__REPLY__KIND_STATUS, &status);
}

/* Sends frames faster than they can be parsed: each is Reply{status{feeds{}, feeds{}, ...}}. */
static void flood_with_megabytes(struct bad_feed *d)
{
	static uint8_t data[2 * MANY + 4] = {3 << 3 | 2};
	const uint32_t size = 2 * MANY;
	data[1] = (uint8_t)(size | 0x80);
	data[2] = (uint8_t)(size >> 7 | 0x80);
	data[3] = (uint8_t)(size >> 14);
	for (size_t i = 0; i < MANY; i++)
		data[4 + 2 * i] = 7 << 3 | 2;
	while (!is_closed(d))
		bad_feed_send_frame(d, data, sizeof(data));
}

static void answer_with_many_feeds(struct bad_feed *d)
{
	send_many_feeds(d);
	bad_feed_read_until_closed(d);
}

/* Sends frames with an unknown field only. */
static void flood_with_unknown_fields(struct bad_feed *d)
{
	static const uint8_t data[16384] = {0x9a, 0x06, 0xfc, 0x7f};
	while (!is_closed(d))
		bad_feed_send_frame(d, data, sizeof(data));
}

static void ask_while_running(struct bad_feed *d)
{
	bad_feed_ask_for_files(d, 0, 253, true);
	bad_feed_read_until_closed(d);
}

static void open_while_running(struct bad_feed *d)
{
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_FEED_OPENED, &d->opened);
	bad_feed_read_until_closed(d);
}

static void send_shutting_down(struct bad_feed *d)
{
	Loaderd__ShuttingDown stopping = LOADERD__SHUTTING_DOWN__INIT;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_SHUTTING_DOWN, &stopping);
}

static void answer_shutting_down(struct bad_feed *d)
{
	send_shutting_down(d);
	bad_feed_read_until_closed(d);
}

static void ask_in_order(struct bad_feed *d)
{
	do {
		bad_feed_ask_for_files(d, (uint32_t)d->row->value, 253, false);
	} while (bad_feed_hear_and_forget(d));
}

static void ask_for_none(struct bad_feed *d)
{
	bad_feed_ask_for_files(d, 0, 0, false);
	bad_feed_read_until_closed(d);
}

static void ask_in_turn(struct bad_feed *d)
{
	for (unsigned i = 0;; i++) {
		bad_feed_ask_for_files(d, 0, UINT32_MAX, i % 2 == 1);
		if (!bad_feed_hear_and_forget(d))
			return;
	}
}

static void send_ring(struct bad_feed *d)
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_RING, &ring);
	bad_feed_read_until_closed(d);
}

static void open_without_ring(struct bad_feed *d)
{
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	opened.samples = opened.batches_per_epoch = 1;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_FEED_OPENED, &opened);
	bad_feed_read_until_closed(d);
}

/* Hangs up instead of granting a ring, at every attempt. */
static void hang_up(struct bad_feed *d)
{
}

static void other_uuid(struct bad_feed *d)
{
	static uint8_t uuid[16] = "another set uuid";
	d->opened.dataset_uuid.data = uuid;
}

static void other_position(struct bad_feed *d)
{
	d->batch++;
}

/* ---- datasets and status ---- */

static void describe(struct bad_feed *d, size_t names, double number)
{
	static char *all[MANY / 2];
	double mean[3] = {number, 1, 2}, std[3] = {1, number, -number};
	Loaderd__Dataset dataset = LOADERD__DATASET__INIT;
	for (size_t i = 0; i < names; i++)
		all[i] = (char *)(i % 2 ? "\x1b]0;owned\a" : "\xff\xe2\x80\xae");
	dataset.path = dataset.metadata = (char *)"\x1b[2J=\x1b\n\xff\n";
	dataset.samples = UINT64_MAX;
	dataset.n_class_names = dataset.n_field_names = names;
	dataset.class_names = dataset.field_names = all;
	/* too few field types, and invalid lengths */
	uint32_t types[] = {0, 5, 6, UINT32_MAX, 1};
	uint64_t longest[] = {0, UINT64_MAX, UINT64_MAX - 1};
	dataset.n_field_types = sizeof(types) / sizeof(*types);
	dataset.field_types = types;
	dataset.n_field_longest = sizeof(longest) / sizeof(*longest);
	dataset.field_longest = longest;
	dataset.n_mean = dataset.n_std = 3;
	dataset.mean = mean;
	dataset.std = std;
	dataset.uuid = (ProtobufCBinaryData){names < 7 ? names : 7, (uint8_t *)"notlong"};
	bad_feed_ask_for_files(d, 0, 1, false);
	if (bad_feed_hear_and_forget(d))
		bad_feed_send_reply(d, LOADERD__REPLY__KIND_DATASET, &dataset);
	bad_feed_read_until_closed(d);
}

static void describe_nothing(struct bad_feed *d)
{
	describe(d, 0, NAN);
}

static void describe_much(struct bad_feed *d)
{
	describe(d, 30000, 1e308);
}

static void status_of_escapes(struct bad_feed *d)
{
	static char evil[] =
		"\x1b[2J\x1b]0;owned\a\r\n\b\x7f\xc2\x9b\xe2\x80\xae\xff\xc0\x9b\xed\xa0\x80";
	Loaderd__FeedStatus feed = LOADERD__FEED_STATUS__INIT, *feeds[] = {&feed, &feed};
	Loaderd__BadSampleRecord bad = LOADERD__BAD_SAMPLE_RECORD__INIT, *bads[] = {&bad};
	Loaderd__OrderStatus order = LOADERD__ORDER_STATUS__INIT;
	Loaderd__PartStatus part = LOADERD__PART_STATUS__INIT, *parts[] = {&part, &part};
	Loaderd__Choice choice = LOADERD__CHOICE__INIT;
	Loaderd__Progress opening = LOADERD__PROGRESS__INIT;
	Loaderd__Status status = LOADERD__STATUS__INIT;
	status.version = status.isa = evil;
	feed.name = feed.dataset = feed.pipeline = evil;
	bad.dataset = bad.source = bad.text = evil;
	memset(&feed.batch_size, 0xff, sizeof(feed) - offsetof(Loaderd__FeedStatus, batch_size));
	feed.order = &order;
	feed.opening = &opening;
	opening.done = opening.total = part.samples = part.chosen = UINT64_MAX;
	choice.where = part.dataset = evil;
	choice.classes_per_batch = part.share = order.period = UINT32_MAX;
	part.choice = &choice;
	order.parts = parts;
	order.n_parts = 2;
	order.stage = order.stages = order.part_count = order.batch_tokens = UINT32_MAX;
	order.epoch_batches = UINT64_MAX;
	bad.index = bad.count = UINT64_MAX;
	status.threads = status.pid = feed.uid = UINT32_MAX;
	status.uptime_ns = status.idle_ns = status.shared_bytes = UINT64_MAX;
	status.n_feeds = 2;
	status.feeds = feeds;
	status.n_bad = 1;
	status.bad = bads;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_STATUS, &status);
	bad_feed_read_until_closed(d);
}

static void lengthen_values(struct bad_feed *d)
{
	d->geometry.section_count--;
	ring_geometry_field(&d->geometry, RING_RECORD_BYTES, 4096);
}

const struct row bad_reply_rows[] = {
	/* feeds that differ from the request */
	{"room for larger batches", IN_GEOMETRY(batch_size_max, 9), .expected = EPROTO},
	{"more slots", IN_GEOMETRY(slots, 5), .expected = EPROTO},
	{"epochs without batches", IN_OPENED(batches_per_epoch, 0), .expected = EPROTO},
	{"more batches than samples", IN_OPENED(batches_per_epoch, UINT64_MAX), .expected = EPROTO},
	{"no samples", IN_OPENED(samples, 0), .expected = EPROTO},
	{"18446744073709551615 samples", IN_OPENED(samples, UINT64_MAX)},
	{"4294967295 classes", IN_OPENED(classes, UINT32_MAX)},
	{"another uuid after a reconnect", .again = true, .prepare = other_uuid,
	 .expected = ESTALE},
	{"other samples after a reconnect", .again = true, IN_OPENED(samples, 81),
	 .expected = ESTALE},
	{"other classes after a reconnect", .again = true, IN_OPENED(classes, 11),
	 .expected = ESTALE},
	{"other batches after a reconnect", .again = true, IN_OPENED(batches_per_epoch, 11),
	 .expected = EPROTO},
	{"another position after a reconnect", .again = true, .prepare = other_position,
	 .expected = EPROTO},
	{"larger images after a reconnect", .again = true,
	 IN_GEOMETRY(sections[RING_IMAGES].room, 1 << 20), .expected = EPROTO},
	{"longer values after a reconnect", .again = true, .prepare = lengthen_values,
	 .expected = EPROTO},
	{"another type of field after a reconnect", .again = true,
	 IN_GEOMETRY(sections[RING_FIRST_FIELD].element, RING_F64), .expected = EPROTO},
	{"EAGAIN after a reconnect", .again = true, .answer = send_error_code, .value = EAGAIN,
	 .expected = EPROTO},
	{"no answer after a reconnect", .again = true, .answer = bad_feed_read_until_closed,
	 .expected = ECONNRESET, .patience_ms = 60000},
	{"a hang-up each time", .again = true, .answer = hang_up, .expected = ECONNRESET,
	 .patience_ms = 60000},
	/* invalid replies to OpenFeed */
	{"no answer", .answer = bad_feed_read_until_closed, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"doorbells instead of a reply", .answer = flood_with_doorbells, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"a frame a byte at a time", .answer = send_slowly, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"an empty frame", .answer = send_no_length, .expected = EPROTO},
	{"a frame of 4 GiB", .answer = send_huge_length, .expected = EPROTO},
	{"an invalid message", .answer = send_nonsense, .expected = EPROTO},
	{"a status of 400000 feeds instead of a reply", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"shutting down", .answer = answer_shutting_down, .expected = ESHUTDOWN},
	{"FeedOpened without a ring", .answer = open_without_ring, .expected = EPROTO},
	{"a ring without descriptors", .answer = send_ring, .expected = EPROTO},
	{"error 0", .answer = send_error_code, .value = 0, .expected = EPROTO},
	{"error -1", .answer = send_error_code, .value = UINT32_MAX, .expected = EPROTO},
	{"error 2147483647", .answer = send_error_code, .value = INT32_MAX, .expected = EPROTO},
	{"an error of a megabyte of escapes", .answer = send_megabyte, .expected = EIO},
	{"the first file for ever", .answer = ask_in_order, .value = 0, .expected = EPROTO},
	{"file 4294967295", .answer = ask_in_order, .value = UINT32_MAX, .expected = EPROTO},
	{"no file at a time", .answer = ask_for_none, .expected = EPROTO},
	{"all files, past the page cache and not, in turn", .answer = ask_in_turn,
	 .expected = EPROTO},
	/* invalid data while batches are delivered */
	{"EAGAIN during a feed", .after = send_error_code, .value = EAGAIN, .expected = EPROTO},
	{"ETIMEDOUT during a feed", .after = send_error_code, .value = ETIMEDOUT,
	 .expected = EPROTO},
	{"ENOBUFS during a feed", .after = send_error_code, .value = ENOBUFS, .expected = EPROTO},
	{"a megabyte of escapes during a feed", .after = send_megabyte, .expected = EPROTO},
	{"a frame of 4 GiB during a feed", .after = send_huge_length, .expected = EPROTO},
	{"half a frame", .after = send_half, .expected = ETIMEDOUT, .patience_ms = 500},
	{"endless doorbells", .after = flood_with_doorbells, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"endless statuses of 400000 feeds", .after = flood_with_megabytes, .expected = EPROTO},
	{"endless messages with unknown fields only", .after = flood_with_unknown_fields,
	 .expected = ETIMEDOUT, .patience_ms = 500},
	{"ShuttingDown while the feed continues", .after = send_shutting_down},
	{"NeedFiles during a feed", .after = ask_while_running, .expected = EPROTO},
	{"FeedOpened during a feed", .after = open_while_running, .expected = EPROTO},
	{"a ring during a feed", .after = send_ring, .expected = EPROTO},
	/* invalid replies to other requests */
	{"statistics that are not numbers", .kind = "dataset", .answer = describe_nothing},
	{"60000 names of escapes", .kind = "dataset", .answer = describe_much},
	{"a status about a dataset", .kind = "dataset", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"the first file of a dataset for ever", .kind = "dataset", .answer = ask_in_order,
	 .expected = EPROTO},
	{"a status of escapes and wild counts", .kind = "status", .answer = status_of_escapes},
	{"a status of 400000 feeds", .kind = "status", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"files instead of a status", .kind = "status", .answer = ask_in_order, .expected = EPROTO},
	{"a megabyte of escapes instead of a status", .kind = "status", .answer = send_megabyte,
	 .expected = EIO},
	{"shutting down instead of a status", .kind = "status", .answer = answer_shutting_down,
	 .expected = EPROTO},
	{"a frame of 4 GiB instead of a status", .kind = "status", .answer = send_huge_length,
	 .expected = EPROTO},
	{"a ring instead of a status", .kind = "status", .answer = send_ring, .expected = EPROTO},
	{"a hang-up instead of a status", .kind = "status", .answer = hang_up,
	 .expected = ECONNRESET},
	{NULL},
};
