/*
 * What a worker can tell the clients of its own user: by the ring, whose memory it shares with
 * them, and by its replies. One row at a time, chosen by whoever commands, who then sends victims
 * and says when it is over. With no row it would be an honest daemon.
 */
#include "tests/takeover/taken.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "proto/ring.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	BATCHES = 10, /* per epoch */
	CLASSES = 10,
	SIDE = 8,
	AT = 3, /* the batch that is lied about */
	MANY = 400000,
	MEGABYTE = 1 << 20,
};

struct deceit {
	const struct taken *taken;
	const struct row *row;
	int fd;               /* the victim's, */
	uint64_t client_id;   /* and that connection's number */
	unsigned connections; /* before this one */
	struct frame_reader reader;
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* the next one's */
	uint64_t published;
	atomic_bool stop;
};

/* Where a row's value goes. */
enum where { NOWHERE, GEOMETRY, OPENED, HEADER, SLOT, RUNNING };

struct row {
	const char *name;
	enum where where;
	size_t offset, size;
	uint64_t value;
	int expected;     /* of the victim: 0, a positive errno, or TAKEN_ANY */
	unsigned batches; /* that the victim wants; 0: some */
	int patience_ms;  /* of the victim where nothing more comes; 0: all that it takes */
	/*
	 * not before the client has come back: the first connection is honest, and ends at batch AT
	 */
	bool again;
	const char *kind; /* of victim; NULL: a feed */
	/* in the place of all that an honest daemon would answer */
	void (*answer)(struct deceit *d);
	void (*wish)(struct deceit *d); /* before the feed is granted */
	/* before batch AT is published, */
	void (*before)(struct deceit *d, struct ring_slot *slot);
	void (*after)(struct deceit *d); /* and after it */
	void *(*thread)(void *d);        /* from then on, until the victim goes */
};

#define IN(place, type, member, number)                                                            \
	.where = place, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member),     \
	.value = number
#define IN_SLOT(member, number)        IN(SLOT, struct ring_slot, member, number)
#define IN_HEADER(member, number)      IN(HEADER, struct ring_header, member, number)
#define IN_OPENED(member, number)      IN(OPENED, Loaderd__FeedOpened, member, number)
#define IN_GEOMETRY(member, number)    IN(GEOMETRY, struct ring_geometry, member, number)
#define RUNNING_HEADER(member, number) IN(RUNNING, struct ring_header, member, number)

static bool applies(const struct deceit *d)
{
	return !d->row->again || d->connections > 0;
}

static void poke(const struct deceit *d, enum where where, void *base)
{
	if (d->row->where == where && applies(d))
		memcpy((char *)base + d->row->offset, &d->row->value, d->row->size);
}

/* ---- talking ---- */

/* False: the victim has gone, or whoever commands says that it is over. */
static bool await(struct deceit *d, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = d->fd, .events = POLLIN},
			      {.fd = d->taken->client, .events = POLLIN}};
	poll(p, 2, timeout_ms);
	return p[1].revents == 0;
}

/* NULL: nobody is there any more. */
static Loaderd__Request *hear(struct deceit *d)
{
	do {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&d->reader, d->fd, &data, &size);
		if (r > 0)
			return loaderd__request__unpack(NULL, size, data);
		if (r < 0)
			return NULL;
	} while (await(d, -1));
	return NULL;
}

static bool hear_and_forget(struct deceit *d)
{
	Loaderd__Request *request = hear(d);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return request;
}

static void hear_to_the_end(struct deceit *d)
{
	while (hear_and_forget(d))
		;
}

/* False: the victim does not take it within a second, or has gone. A worker has no sendmsg(). */
static bool send_frame(const struct deceit *d, const uint8_t *data, size_t size)
{
	const uint8_t length[4] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16)};
	for (size_t sent = 0; sent < sizeof(length) + size;) {
		const uint8_t *from =
			sent < sizeof(length) ? length + sent : data + sent - sizeof(length);
		size_t left = sent < sizeof(length) ? sizeof(length) - sent
						    : sizeof(length) + size - sent;
		ssize_t n = send(d->fd, from, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		struct pollfd p = {.fd = d->fd, .events = POLLOUT};
		if (n > 0)
			sent += (size_t)n;
		else if (errno != EAGAIN || poll(&p, 1, 1000) != 1)
			return false;
	}
	return true;
}

/* Frames that a victim does not read are lost. */
static bool say(struct deceit *d, Loaderd__Reply__KindCase kind, void *message)
{
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = kind;
	reply.error = message; /* of a union of pointers */
	size_t size = loaderd__reply__get_packed_size(&reply);
	uint8_t *data = malloc(size + 1);
	if (!data)
		return false;
	loaderd__reply__pack(&reply, data);
	bool sent = send_frame(d, data, size);
	free(data);
	return sent;
}

static bool say_doorbell(struct deceit *d)
{
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	return say(d, LOADERD__REPLY__KIND_DOORBELL, &doorbell);
}

static void say_error(struct deceit *d, int code, const char *text)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	error.code = code;
	error.text = error.field = (char *)text;
	error.position = INT32_MAX;
	say(d, LOADERD__REPLY__KIND_ERROR, &error);
}

static void ask_for_files(struct deceit *d, uint32_t first, uint32_t most, bool direct)
{
	enum { PASS_RIGHTS = 83 }; /* Linux 6.16: a worker's own to allow */
	static const int allowed = 1;
	(void)setsockopt(d->fd, SOL_SOCKET, PASS_RIGHTS, &allowed, sizeof(allowed));
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	need.first = first;
	need.most = most;
	need.direct = direct;
	say(d, LOADERD__REPLY__KIND_NEED_FILES, &need);
}

/* ---- an honest feed, but for what the row says ---- */

static void fill(struct deceit *d, struct ring_slot *slot)
{
	const struct ring_header *layout = &d->ring.layout;
	const uint32_t count = d->geometry.batch_size_max;
	char *base = (char *)slot;
	slot->epoch = d->epoch;
	slot->batch = d->batch;
	slot->count = count;
	slot->height = slot->width = SIDE;
	slot->channels = 3;
	slot->element = RING_U8;
	slot->layout = RING_NHWC;
	slot->bad = 0;
	slot->last = d->batch == BATCHES - 1;
	for (uint32_t i = 0; i < count; i++) {
		((int32_t *)(base + layout->label_offset))[i] = (int32_t)(i % CLASSES);
		((uint64_t *)(base + layout->sample_offset))[i] = d->batch * count + i;
		((uint8_t *)base + layout->flag_offset)[i] = 0;
	}
	memset(base + layout->image_offset, (int)d->batch, count * SIDE * SIDE * 3);
}

static void publish_one(struct deceit *d, struct ring_slot *slot)
{
	bool now = ++d->published == AT && applies(d);
	fill(d, slot);
	if (now)
		poke(d, SLOT, slot);
	if (now && d->row->before)
		d->row->before(d, slot);
	d->batch = d->batch == BATCHES - 1 ? 0 : d->batch + 1;
	d->epoch += d->batch == 0;
	if (ring_publish(&d->ring))
		say_doorbell(d);
	if (now && d->row->where == RUNNING) {
		poke(d, RUNNING, d->ring.header);
		say_doorbell(d);
	}
	if (now && d->row->after)
		d->row->after(d);
}

/* Until the victim goes. */
static void produce(struct deceit *d)
{
	while (await(d, 0)) {
		const uint8_t *data;
		size_t size;
		struct ring_slot *slot = ring_begin(&d->ring);
		if (!slot) {
			ring_producer_arm(&d->ring);
			slot = ring_begin(&d->ring);
		}
		if (slot)
			publish_one(d, slot);
		else
			await(d, 100);
		if (d->row->again && d->connections == 0 && d->published == AT)
			return;
		if (frame_receive(&d->reader, d->fd, &data, &size) < 0)
			return;
	}
}

/* False: the supervisor would not, or the victim. */
static bool grant(struct deceit *d)
{
	int fds[LINK_FDS_MAX];
	poke(d, GEOMETRY, &d->geometry);
	uint64_t bytes = ring_size(&d->geometry);
	d->opened.feed_id = (UINT64_C(3) << 40) + d->connections;
	poke(d, OPENED, &d->opened);
	int code = taken_wish(d->opened.feed_id, bytes, 0, fds);
	if (code != 0 || ring_producer_init(&d->ring, &d->geometry, fds[0], fds[1]) < 0) {
		taken_say(d->taken, "BAD no ring: %d", code);
		return false;
	}
	poke(d, HEADER, d->ring.header);
	return taken_send_ring(d->opened.feed_id, d->client_id) == 0 &&
	       say(d, LOADERD__REPLY__KIND_FEED_OPENED, &d->opened) && hear_and_forget(d) &&
	       ring_producer_fill(&d->ring) == 0;
}

static void serve_feed(struct deceit *d, const Loaderd__OpenFeed *wish)
{
	static uint8_t uuid[16] = "a dataset's uuid";
	pthread_t thread;
	d->epoch = wish->epoch;
	d->batch = wish->batch;
	d->published = 0;
	d->geometry = (struct ring_geometry){
		.slots = wish->slots,
		.batch_size_max = wish->batch_size,
		.image_size_max = (uint64_t)wish->batch_size * SIDE * SIDE * 3,
		.field_count = (uint32_t)wish->n_fields,
		.field_bytes = 16,
		.field_types = {1, 3},
	};
	d->opened = (Loaderd__FeedOpened)LOADERD__FEED_OPENED__INIT;
	d->opened.samples = (uint64_t)wish->batch_size * BATCHES;
	d->opened.batches_per_epoch = BATCHES;
	d->opened.classes = CLASSES;
	d->opened.slots = wish->slots;
	d->opened.dataset_uuid = (ProtobufCBinaryData){sizeof(uuid), uuid};
	ask_for_files(d, 0, FRAME_FDS_MAX, false);
	if (!hear_and_forget(d))
		return;
	if (d->row->wish && applies(d))
		d->row->wish(d);
	if (!grant(d)) {
		hear_to_the_end(d);
		return;
	}
	atomic_store(&d->stop, false);
	bool threaded = d->row->thread && applies(d) &&
			pthread_create(&thread, NULL, d->row->thread, d) == 0;
	produce(d);
	atomic_store(&d->stop, true);
	if (threaded)
		pthread_join(thread, NULL);
}

static void serve(struct deceit *d)
{
	frame_reader_init(&d->reader);
	Loaderd__Request *request = hear(d);
	if (request && d->row->answer && applies(d))
		d->row->answer(d);
	else if (request && request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED)
		serve_feed(d, request->open_feed);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	bool had_ring = d->ring.header;
	ring_producer_deinit(&d->ring);
	if (had_ring)
		taken_give_back(d->opened.feed_id);
	frame_reader_deinit(&d->reader);
	/*
	 * Without it nobody would have hung up: the supervisor still has the connection of a client
	 * without a ring.
	 */
	shutdown(d->fd, SHUT_RDWR);
	close(d->fd);
	d->connections++;
}

/* ---- by the ring ---- */

static void into_slot_of_nobody(struct deceit *d, struct ring_slot *slot)
{
	d->ring.order[(slot->number - 1) % d->ring.slots] = UINT32_MAX;
}

/* The victim holds the first. */
static void into_held_slot(struct deceit *d, struct ring_slot *slot)
{
	d->ring.order[(slot->number - 1) % d->ring.slots] = 0;
}

static void set_head(struct deceit *d, uint64_t head)
{
	atomic_store(&d->ring.header->head, head);
	say_doorbell(d);
	hear_to_the_end(d);
}

static void head_to_the_end(struct deceit *d)
{
	set_head(d, UINT64_MAX);
}

static void head_to_the_beginning(struct deceit *d)
{
	set_head(d, 0);
}

static void fail_without_terminator(struct deceit *d)
{
	memset(d->ring.header->reason, '\x1b', RING_REASON_MAX);
	atomic_store(&d->ring.header->state, RING_FAILED);
	say_doorbell(d);
	hear_to_the_end(d);
}

static void stop_again(struct deceit *d)
{
	if (ring_end(&d->ring, RING_REASON_STOPPING))
		say_doorbell(d);
	hear_to_the_end(d);
}

/* Threads that write against all rules, out of the thread sanitizer's sight. */
#define UNRULY __attribute__((no_sanitize("thread")))

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
	return *state;
}

static void *slot_at(const struct deceit *d, uint64_t i)
{
	return (char *)d->ring.header + RING_HEADER_SIZE + i * d->ring.slot_size;
}

/* Two stores in a row would be seen as one. */
static void dwell(void)
{
	for (volatile unsigned i = 0; i < 20; i++)
		;
}

/*
 * From one number of samples that may be to another: whoever reads it twice gets sizes that
 * contradict each other.
 */
UNRULY static void *change_counts(void *argument)
{
	struct deceit *d = argument;
	while (!atomic_load(&d->stop)) {
		for (uint32_t i = 0; i < d->ring.slots; i++) {
			volatile struct ring_slot *slot = slot_at(d, i);
			slot->count = d->geometry.batch_size_max - 1;
			dwell();
			slot->count = d->geometry.batch_size_max;
			dwell();
		}
	}
	return NULL;
}

UNRULY static void *change_slots(void *argument)
{
	struct deceit *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		volatile uint32_t *words = (void *)slot_at(d, next_random(&state) % d->ring.slots);
		uint32_t word = next_random(&state) % (sizeof(struct ring_slot) / 4);
		uint32_t before = words[word];
		words[word] = (uint32_t)next_random(&state);
		dwell();
		words[word] = before;
	}
	return NULL;
}

UNRULY static void *change_sections(void *argument)
{
	struct deceit *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		uint32_t i = next_random(&state) % d->ring.slots;
		size_t at = RING_SLOT_HEADER_SIZE +
			    next_random(&state) % (d->ring.slot_size - RING_SLOT_HEADER_SIZE);
		volatile char *slot = slot_at(d, i);
		slot[at] = (char)next_random(&state);
	}
	return NULL;
}

/* What a client has checked before it asked for batches. */
UNRULY static void *change_header(void *argument)
{
	struct deceit *d = argument;
	uint64_t state = 88172645463325252;
	volatile uint32_t *words = (void *)d->ring.header;
	while (!atomic_load(&d->stop))
		words[next_random(&state) % (offsetof(struct ring_header, head) / 4)] =
			(uint32_t)next_random(&state);
	return NULL;
}

UNRULY static void *change_words(void *argument)
{
	struct deceit *d = argument;
	struct ring_header *header = d->ring.header;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		uint32_t random = (uint32_t)next_random(&state);
		atomic_store(&header->head, random % 8);
		atomic_store(&header->state, random % 5);
		atomic_store(&header->order[random % 8], random);
		((volatile char *)header->reason)[random % RING_REASON_MAX] = (char)(random >> 8);
	}
	return NULL;
}

UNRULY static void *change_acks(void *argument)
{
	struct deceit *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		atomic_store(&d->ring.ack->consumer_waits, 1);
		atomic_store(&d->ring.ack->stall_ns, next_random(&state));
		atomic_store(&d->ring.ack->taken, next_random(&state));
	}
	return NULL;
}

/* ---- by replies ---- */

static bool gone(struct deceit *d)
{
	const uint8_t *data;
	size_t size;
	return !await(d, 0) || frame_receive(&d->reader, d->fd, &data, &size) < 0;
}

static void send_bytes(struct deceit *d, const void *bytes, size_t size)
{
	(void)!send(d->fd, bytes, size, MSG_NOSIGNAL);
}

static void say_code(struct deceit *d)
{
	say_error(d, (int)d->row->value, "so it is");
	hear_to_the_end(d);
}

static void say_megabyte(struct deceit *d)
{
	char *text = malloc(MEGABYTE / 3);
	if (!text)
		return;
	memset(text, '\x1b', MEGABYTE / 3 - 1);
	text[MEGABYTE / 3 - 1] = '\0';
	say_error(d, EIO, text);
	free(text);
	hear_to_the_end(d);
}

static void send_no_length(struct deceit *d)
{
	send_bytes(d, "\0\0\0\0", 4);
	hear_to_the_end(d);
}

static void send_huge_length(struct deceit *d)
{
	send_bytes(d, "\377\377\377\377", 4);
	hear_to_the_end(d);
}

static void send_half(struct deceit *d)
{
	send_bytes(d, "\0\0\x10\0half", 8);
	hear_to_the_end(d);
}

static void send_nonsense(struct deceit *d)
{
	send_bytes(d, "\4\0\0\0\377\377\377\377", 8);
	hear_to_the_end(d);
}

/* A frame without end, a byte at a time. */
static void send_slowly(struct deceit *d)
{
	send_bytes(d, "\0\0\x10\0", 4);
	while (!gone(d)) {
		await(d, 20);
		send_bytes(d, "x", 1);
	}
}

static void flood_with_doorbells(struct deceit *d)
{
	while (!gone(d))
		say_doorbell(d);
}

static bool say_many_feeds(struct deceit *d)
{
	static Loaderd__FeedStatus empty = LOADERD__FEED_STATUS__INIT;
	static Loaderd__FeedStatus *feeds[MANY];
	Loaderd__Status status = LOADERD__STATUS__INIT;
	for (size_t i = 0; i < MANY; i++)
		feeds[i] = &empty;
	status.n_feeds = MANY;
	status.feeds = feeds;
	return say(d, LOADERD__REPLY__KIND_STATUS, &status);
}

/* Faster than they can be read: each is Reply{status{feeds{}, feeds{}, ...}}. */
static void flood_with_megabytes(struct deceit *d)
{
	static uint8_t data[2 * MANY + 4] = {3 << 3 | 2};
	const uint32_t size = 2 * MANY;
	data[1] = (uint8_t)(size | 0x80);
	data[2] = (uint8_t)(size >> 7 | 0x80);
	data[3] = (uint8_t)(size >> 14);
	for (size_t i = 0; i < MANY; i++)
		data[4 + 2 * i] = 7 << 3 | 2;
	while (!gone(d))
		send_frame(d, data, sizeof(data));
}

static void answer_with_many_feeds(struct deceit *d)
{
	say_many_feeds(d);
	hear_to_the_end(d);
}

/* Of a field that nobody knows. */
static void flood_with_nothing(struct deceit *d)
{
	static const uint8_t data[16384] = {0x9a, 0x06, 0xfc, 0x7f};
	while (!gone(d))
		send_frame(d, data, sizeof(data));
}

static void ask_while_running(struct deceit *d)
{
	ask_for_files(d, 0, 253, true);
	hear_to_the_end(d);
}

static void open_while_running(struct deceit *d)
{
	say(d, LOADERD__REPLY__KIND_FEED_OPENED, &d->opened);
	hear_to_the_end(d);
}

static void say_shutting_down(struct deceit *d)
{
	Loaderd__ShuttingDown stopping = LOADERD__SHUTTING_DOWN__INIT;
	say(d, LOADERD__REPLY__KIND_SHUTTING_DOWN, &stopping);
}

static void answer_shutting_down(struct deceit *d)
{
	say_shutting_down(d);
	hear_to_the_end(d);
}

static void ask_in_order(struct deceit *d)
{
	do {
		ask_for_files(d, (uint32_t)d->row->value, 253, false);
	} while (hear_and_forget(d));
}

static void ask_for_none(struct deceit *d)
{
	ask_for_files(d, 0, 0, false);
	hear_to_the_end(d);
}

static void ask_in_turn(struct deceit *d)
{
	for (unsigned i = 0;; i++) {
		ask_for_files(d, 0, UINT32_MAX, i % 2 == 1);
		if (!hear_and_forget(d))
			return;
	}
}

static void say_ring(struct deceit *d)
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	say(d, LOADERD__REPLY__KIND_RING, &ring);
	hear_to_the_end(d);
}

static void open_without_ring(struct deceit *d)
{
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	opened.samples = opened.batches_per_epoch = 1;
	say(d, LOADERD__REPLY__KIND_FEED_OPENED, &opened);
	hear_to_the_end(d);
}

/* Of its ring nothing comes, each time. */
static void hang_up(struct deceit *d)
{
}

static void other_uuid(struct deceit *d)
{
	static uint8_t uuid[16] = "another set uuid";
	d->opened.dataset_uuid.data = uuid;
}

static void other_position(struct deceit *d)
{
	d->batch++;
}

/* ---- of datasets and status ---- */

static void describe(struct deceit *d, size_t names, double number)
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
	/* too few of one, wild ones of the other */
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
	ask_for_files(d, 0, 1, false);
	if (hear_and_forget(d))
		say(d, LOADERD__REPLY__KIND_DATASET, &dataset);
	hear_to_the_end(d);
}

static void describe_nothing(struct deceit *d)
{
	describe(d, 0, NAN);
}

static void describe_much(struct deceit *d)
{
	describe(d, 30000, 1e308);
}

static void status_of_escapes(struct deceit *d)
{
	static char evil[] =
		"\x1b[2J\x1b]0;owned\a\r\n\b\x7f\xc2\x9b\xe2\x80\xae\xff\xc0\x9b\xed\xa0\x80";
	Loaderd__FeedStatus feed = LOADERD__FEED_STATUS__INIT, *feeds[] = {&feed, &feed};
	Loaderd__BadSampleRecord bad = LOADERD__BAD_SAMPLE_RECORD__INIT, *bads[] = {&bad};
	Loaderd__Status status = LOADERD__STATUS__INIT;
	status.version = status.isa = evil;
	feed.name = feed.dataset = feed.pipeline = evil;
	bad.dataset = bad.source = bad.text = evil;
	memset(&feed.batch_size, 0xff, sizeof(feed) - offsetof(Loaderd__FeedStatus, batch_size));
	bad.index = bad.count = UINT64_MAX;
	status.threads = status.pid = feed.uid = UINT32_MAX;
	status.uptime_ns = status.idle_ns = status.shared_bytes = UINT64_MAX;
	status.n_feeds = 2;
	status.feeds = feeds;
	status.n_bad = 1;
	status.bad = bads;
	say(d, LOADERD__REPLY__KIND_STATUS, &status);
	hear_to_the_end(d);
}

static const struct row rows[] = {
	{"an honest feed"},
	/* the head of a slot */
	{"a slot without samples", IN_SLOT(count, 0), .expected = EPROTO},
	{"more samples than there is room for", IN_SLOT(count, 9), .expected = EPROTO},
	{"4294967295 samples", IN_SLOT(count, UINT32_MAX), .expected = EPROTO},
	{"no height", IN_SLOT(height, 0), .expected = EPROTO},
	{"a line too much", IN_SLOT(height, SIDE + 1), .expected = EPROTO},
	{"a height whose product overflows", IN_SLOT(height, UINT32_MAX), .expected = EPROTO},
	{"a width whose product overflows", IN_SLOT(width, UINT32_MAX), .expected = EPROTO},
	{"no channels", IN_SLOT(channels, 0), .expected = EPROTO},
	{"two channels", IN_SLOT(channels, 2), .expected = EPROTO},
	{"4294967295 channels", IN_SLOT(channels, UINT32_MAX), .expected = EPROTO},
	{"no element", IN_SLOT(element, 0), .expected = EPROTO},
	{"a longer element", IN_SLOT(element, RING_F32), .expected = EPROTO},
	{"an unknown element", IN_SLOT(element, 77), .expected = EPROTO},
	{"an unknown layout", IN_SLOT(layout, 3), .expected = EPROTO},
	{"batch 0", IN_SLOT(number, 0), .expected = EPROTO},
	{"batch 18446744073709551615", IN_SLOT(number, UINT64_MAX), .expected = EPROTO},
	{"another epoch", IN_SLOT(epoch, 1), .expected = EPROTO},
	{"another batch of the epoch", IN_SLOT(batch, 1), .expected = EPROTO},
	{"an epoch that ends early", IN_SLOT(last, 1), .expected = EPROTO},
	{"4294967295 bad samples", IN_SLOT(bad, UINT32_MAX)},
	{"a time to come", IN_SLOT(publish_ns, UINT64_MAX)},
	{"numbers of samples that change while they are read", .thread = change_counts,
	 .batches = 20000},
	{"heads of slots that change while they are read", .thread = change_slots,
	 .expected = TAKEN_ANY, .batches = 2000, .patience_ms = 500},
	{"pixels, labels, numbers and fields that change while they are read",
	 .thread = change_sections, .batches = 2000},
	/* the ring's header, before and after it was checked */
	{"another magic", IN_HEADER(magic, 1), .expected = EPROTO},
	{"another version", IN_HEADER(version, 2), .expected = EPROTO},
	{"no slots", IN_HEADER(slots, 0), .expected = EPROTO},
	{"257 slots", IN_HEADER(slots, 257), .expected = EPROTO},
	{"smaller slots", IN_HEADER(slot_size, 4096), .expected = EPROTO},
	{"slots of 2^63", IN_HEADER(slot_size, UINT64_C(1) << 63), .expected = EPROTO},
	{"images in the slot's head", IN_HEADER(image_offset, 64), .expected = EPROTO},
	{"images beyond the slot", IN_HEADER(image_offset, UINT64_C(1) << 62), .expected = EPROTO},
	{"room for 2^63 of images", IN_HEADER(image_size_max, UINT64_C(1) << 63),
	 .expected = EPROTO},
	{"no room for images", IN_HEADER(image_size_max, 0), .expected = EPROTO},
	{"labels before the slot", IN_HEADER(label_offset, UINT64_MAX - 63), .expected = EPROTO},
	{"numbers beyond the slot", IN_HEADER(sample_offset, UINT64_C(1) << 20),
	 .expected = EPROTO},
	{"flags beyond the slot", IN_HEADER(flag_offset, UINT64_C(1) << 20), .expected = EPROTO},
	{"17 fields", IN_HEADER(field_count, 17), .expected = EPROTO},
	{"one field less", IN_HEADER(field_count, 1), .expected = EPROTO},
	{"values of 4294967295 bytes", IN_HEADER(field_bytes, UINT32_MAX), .expected = EPROTO},
	{"a field beyond the slot", IN_HEADER(fields[1].offset, UINT64_MAX - 63),
	 .expected = EPROTO},
	{"a field of no type", IN_HEADER(fields[1].type, 9), .expected = EPROTO},
	{"a field of no stride", IN_HEADER(fields[1].stride, 0), .expected = EPROTO},
	{"a header that changes after it was checked", .thread = change_header, .batches = 2000},
	/* what changes by the rules */
	{"a head far beyond", .after = head_to_the_end, .expected = EPROTO},
	{"a head that goes back", .after = head_to_the_beginning, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"slot 4294967295", .before = into_slot_of_nobody, .expected = EPROTO},
	{"the slot that is held", .before = into_held_slot, .expected = EPROTO},
	{"an unknown state", RUNNING_HEADER(state, 99), .after = hear_to_the_end,
	 .expected = EPROTO},
	{"an end before the end", RUNNING_HEADER(state, RING_END), .after = hear_to_the_end},
	{"a reason of escapes without an end", .after = fail_without_terminator,
	 .expected = EBADMSG},
	{"a daemon that stops after each third batch", .after = stop_again},
	{"a daemon that says that it waits", RUNNING_HEADER(producer_waits, 1)},
	{"head, state, reason and order that change while they are read", .thread = change_words,
	 .expected = TAKEN_ANY, .patience_ms = 500},
	{"the client's own words changed", .thread = change_acks, .batches = 2000},
	/* a feed that is not the one asked for */
	{"room for larger batches", IN_GEOMETRY(batch_size_max, 9), .expected = EPROTO},
	{"more slots", IN_GEOMETRY(slots, 5), .expected = EPROTO},
	{"epochs without batches", IN_OPENED(batches_per_epoch, 0), .expected = EPROTO},
	{"more batches than samples", IN_OPENED(batches_per_epoch, UINT64_MAX), .expected = EPROTO},
	{"no samples", IN_OPENED(samples, 0), .expected = EPROTO},
	{"18446744073709551615 samples", IN_OPENED(samples, UINT64_MAX)},
	{"4294967295 classes", IN_OPENED(classes, UINT32_MAX)},
	{"another uuid when it comes back", .again = true, .wish = other_uuid, .expected = ESTALE},
	{"other samples when it comes back", .again = true, IN_OPENED(samples, 81),
	 .expected = ESTALE},
	{"other classes when it comes back", .again = true, IN_OPENED(classes, 11),
	 .expected = ESTALE},
	{"other batches when it comes back", .again = true, IN_OPENED(batches_per_epoch, 11),
	 .expected = EPROTO},
	{"another position when it comes back", .again = true, .wish = other_position,
	 .expected = EPROTO},
	{"larger images when it comes back", .again = true, IN_GEOMETRY(image_size_max, 1 << 20),
	 .expected = EPROTO},
	{"longer values when it comes back", .again = true, IN_GEOMETRY(field_bytes, 4096),
	 .expected = EPROTO},
	{"another type of field when it comes back", .again = true, IN_GEOMETRY(field_types[0], 2),
	 .expected = EPROTO},
	{"EAGAIN when it comes back", .again = true, .answer = say_code, .value = EAGAIN,
	 .expected = EPROTO},
	{"no answer when it comes back", .again = true, .answer = hear_to_the_end,
	 .expected = ECONNRESET, .patience_ms = 60000},
	{"a hang-up each time", .again = true, .answer = hang_up, .expected = ECONNRESET,
	 .patience_ms = 60000},
	/* replies to OpenFeed */
	{"no answer", .answer = hear_to_the_end, .expected = ETIMEDOUT, .patience_ms = 500},
	{"doorbells for an answer", .answer = flood_with_doorbells, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"a frame a byte at a time", .answer = send_slowly, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"a frame of no length", .answer = send_no_length, .expected = EPROTO},
	{"a frame of 4 GiB", .answer = send_huge_length, .expected = EPROTO},
	{"a message that is none", .answer = send_nonsense, .expected = EPROTO},
	{"a status of 400000 feeds for an answer", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"shutting down", .answer = answer_shutting_down, .expected = ESHUTDOWN},
	{"FeedOpened without a ring", .answer = open_without_ring, .expected = EPROTO},
	{"a ring without descriptors", .answer = say_ring, .expected = EPROTO},
	{"error 0", .answer = say_code, .value = 0, .expected = EPROTO},
	{"error -1", .answer = say_code, .value = UINT32_MAX, .expected = EPROTO},
	{"error 2147483647", .answer = say_code, .value = INT32_MAX, .expected = EPROTO},
	{"an error of a megabyte of escapes", .answer = say_megabyte, .expected = EIO},
	{"the first file for ever", .answer = ask_in_order, .value = 0, .expected = EPROTO},
	{"file 4294967295", .answer = ask_in_order, .value = UINT32_MAX, .expected = EPROTO},
	{"no file at a time", .answer = ask_for_none, .expected = EPROTO},
	{"all files, past the page cache and not, in turn", .answer = ask_in_turn,
	 .expected = EPROTO},
	/* while batches come */
	{"EAGAIN of a running feed", .after = say_code, .value = EAGAIN, .expected = EPROTO},
	{"ETIMEDOUT of a running feed", .after = say_code, .value = ETIMEDOUT, .expected = EPROTO},
	{"ENOBUFS of a running feed", .after = say_code, .value = ENOBUFS, .expected = EPROTO},
	{"a megabyte of escapes of a running feed", .after = say_megabyte, .expected = EPROTO},
	{"a frame of 4 GiB of a running feed", .after = send_huge_length, .expected = EPROTO},
	{"half a frame", .after = send_half, .expected = ETIMEDOUT, .patience_ms = 500},
	{"doorbells without end", .after = flood_with_doorbells, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"a status of 400000 feeds without end", .after = flood_with_megabytes, .expected = EPROTO},
	{"messages that say nothing without end", .after = flood_with_nothing,
	 .expected = ETIMEDOUT, .patience_ms = 500},
	{"ShuttingDown of a feed that goes on", .after = say_shutting_down},
	{"NeedFiles of a running feed", .after = ask_while_running, .expected = EPROTO},
	{"FeedOpened of a running feed", .after = open_while_running, .expected = EPROTO},
	{"a ring of a running feed", .after = say_ring, .expected = EPROTO},
	/* to others */
	{"statistics that are no numbers", .kind = "dataset", .answer = describe_nothing},
	{"60000 names of escapes", .kind = "dataset", .answer = describe_much},
	{"a status about a dataset", .kind = "dataset", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"the first file of a dataset for ever", .kind = "dataset", .answer = ask_in_order,
	 .expected = EPROTO},
	{"a status of escapes and wild counts", .kind = "status", .answer = status_of_escapes},
	{"a status of 400000 feeds", .kind = "status", .answer = answer_with_many_feeds,
	 .expected = EPROTO},
	{"files for a status", .kind = "status", .answer = ask_in_order, .expected = EPROTO},
	{"a megabyte of escapes for a status", .kind = "status", .answer = say_megabyte,
	 .expected = EIO},
	{"shutting down for a status", .kind = "status", .answer = answer_shutting_down,
	 .expected = EPROTO},
	{"a frame of 4 GiB for a status", .kind = "status", .answer = send_huge_length,
	 .expected = EPROTO},
	{"a ring for a status", .kind = "status", .answer = say_ring, .expected = EPROTO},
	{"a hang-up for a status", .kind = "status", .answer = hang_up, .expected = ECONNRESET},
};

/*
 * A number: the row. Says what it is, takes victims until whoever commands says a word, and is
 * honest again.
 */
void deceit_run(const struct taken *taken, const char *arguments)
{
	static struct deceit d;
	size_t number = (size_t)atoi(arguments);
	if (number >= sizeof(rows) / sizeof(*rows))
		return;
	const struct row *row = &rows[number];
	d = (struct deceit){.taken = taken, .row = row};
	taken_say(taken, "row %s %d %d %u %s", row->kind ? row->kind : "feed", row->expected,
		  row->patience_ms, row->batches != 0 ? row->batches : 4 * BATCHES, row->name);
	for (;;) {
		struct link_order order;
		int fds[LINK_FDS_MAX];
		struct pollfd p[2] = {{.fd = LINK_SOCKET_FD, .events = POLLIN},
				      {.fd = taken->client, .events = POLLIN}};
		poll(p, 2, -1);
		if (p[1].revents != 0)
			return;
		if (link_receive(LINK_SOCKET_FD, &order, fds) < 0)
			continue;
		if (order.kind == LINK_CLIENT && fds[0] >= 0) {
			d.fd = fds[0];
			d.client_id = order.client;
			serve(&d);
			fds[0] = -1;
		}
		for (unsigned i = 0; i < LINK_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}
