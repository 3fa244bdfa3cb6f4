#include "tests/unit/proto/client/fake.h"
#include "format/base/half.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "tests/unit/proto/fake_ring.h"
#include "tests/unit/proto/old_version.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct session {
	int fd;
	struct frame_reader reader;
	struct ring_producer ring;
	const char *script; /* name of the script: base name of the dataset */
	long number;        /* number after a dash in the script's name; -1 if none */
	Loaderd__Request *open;
	uint32_t element, layout;
	atomic_bool done; /* the feed has ended */
};

static bool scripted(const struct session *s, const char *name)
{
	size_t length = strlen(name);
	return strncmp(s->script, name, length) == 0 &&
	       (s->script[length] == '-' || s->script[length] == '\0');
}

/* Returns whether this daemon supports writable rings; "old" does not. */
static bool grants_writable(const struct session *s)
{
	return s->open->open_feed->writable && !scripted(s, "old");
}

static void sleep_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static int send_reply(struct session *s, const Loaderd__Reply *reply, const int *fds,
		      unsigned fd_count)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *data = malloc(size + 1);
	loaderd__reply__pack(reply, data);
	int r = frame_send(s->fd, data, size, fds, fd_count, 1000);
	free(data);
	return r;
}

static void send_doorbell(struct session *s)
{
	frame_send(s->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
}

static int send_error(struct session *s, int code, const char *text, const char *field,
		      int position)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	error.code = code;
	error.text = (char *)text;
	error.field = (char *)field;
	error.position = position;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	return send_reply(s, &reply, NULL, 0);
}

/* Waits for a request. Returns NULL if the client has disconnected or timeout_ms has passed. */
static Loaderd__Request *receive(struct session *s, int timeout_ms, bool *ret_gone)
{
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&s->reader, s->fd, &data, &size);
		if (r > 0) {
			Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
			if (!old_version_refuses(s->fd, request))
				return request;
			loaderd__request__free_unpacked(request, NULL);
			continue;
		}
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		if (r < 0) {
			*ret_gone = true;
			return NULL;
		}
		if (poll(&p, 1, timeout_ms) <= 0)
			return NULL;
	}
}

/* Reads doorbells. Returns false if the client has disconnected. */
static bool attend(struct session *s, int timeout_ms)
{
	bool gone = false;
	Loaderd__Request *request = receive(s, timeout_ms, &gone);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return !gone;
}

static void wait_for_hangup(struct session *s)
{
	while (attend(s, 1000))
		;
}

static uint32_t field_type(const char *name)
{
	static const char initials[] = " ifbjt"; /* indexed by enum packimg_field_type */
	const char *found = strchr(initials, name[0]);
	return !found ? 4 : (uint32_t)(found - initials);
}

/* Fills in a field's value and returns the sample flags. */
static uint8_t fill_field(struct session *s, char *values, uint32_t field, uint32_t i,
			  uint64_t sample)
{
	uint8_t flags = 0;
	char text[64];
	char *record = values + (size_t)s->ring.header->fields[field].stride * i;
	switch (s->ring.header->fields[field].type) {
	case 1:
		((int64_t *)values)[i] = -(int64_t)sample * 2;
		break;
	case 2:
		((double *)values)[i] = (double)sample / 4;
		break;
	default:
		snprintf(text, sizeof(text),
			 s->ring.header->fields[field].type == 4 ? "{\"s\": %llu}" : "sample %llu",
			 (unsigned long long)sample);
		uint32_t size = (uint32_t)strlen(text);
		if (size > s->ring.header->field_bytes) {
			size = s->ring.header->field_bytes;
			/* always truncates, like daemons that do not know cut_values */
			flags = RING_SAMPLE_FIELD_CUT;
		}
		memcpy(record, &size, sizeof(size));
		memcpy(record + sizeof(size), text, size);
	}
	return flags;
}

/* Sets the invalid value that the script selects in the slot header. */
static void lie(struct session *s, struct ring_slot *slot)
{
	if (scripted(s, "badslot"))
		slot->height = 1 << 30;
	if (scripted(s, "badnumber"))
		slot->number += 5;
	if (scripted(s, "nosamples"))
		slot->count = 0;
	if (scripted(s, "nowidth"))
		slot->width = 0;
	if (scripted(s, "onechannel"))
		slot->channels = 1;
	if (scripted(s, "odd"))
		slot->element = 77;
	bool now = slot->number == (uint64_t)s->number + 1;
	if (scripted(s, "again") && now)
		slot->batch--;
	if (scripted(s, "skip") && now)
		slot->batch++;
	if (scripted(s, "past") && now)
		slot->epoch--;
	if (scripted(s, "overwrite") && now)
		s->ring.order[(slot->number - 1) % s->ring.layout.slots] = s->ring.order[0];
}

/*
 * Alternates the headers of all slots between two valid states, as fast as possible. This data race
 * is intended; hide it from ThreadSanitizer, which would end the daemon. The test is about the
 * client.
 */
__attribute__((no_sanitize("thread"))) static void *flip(void *argument)
{
	struct session *s = argument;
	while (!atomic_load(&s->done)) {
		for (uint32_t i = 0; i < s->ring.layout.slots; i++) {
			volatile struct ring_slot *slot =
				(void *)((char *)s->ring.header + RING_HEADER_SIZE +
					 i * s->ring.layout.slot_size);
			slot->count = 7;
			slot->count = 8;
		}
	}
	return NULL;
}

static void fill(struct session *s, struct ring_slot *slot, uint64_t epoch, uint64_t batch)
{
	const Loaderd__OpenFeed *open = s->open->open_feed;
	const struct ring_header *header = s->ring.header;
	char *base = (char *)slot;
	uint32_t count = open->batch_size;
	if (open->last == LOADERD__LAST_BATCH__LAST_SHORT && batch == FAKE_BATCHES - 1 && count > 1)
		count--;
	slot->epoch = epoch;
	slot->batch = batch;
	slot->count = count;
	slot->height = FAKE_HEIGHT;
	slot->width = FAKE_WIDTH;
	slot->channels = FAKE_CHANNELS;
	slot->element = s->element;
	slot->layout = s->layout;
	slot->bad = 0;
	slot->last = batch == FAKE_BATCHES - 1;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t sample = fake_sample(batch, open->batch_size, i);
		size_t values = FAKE_HEIGHT * FAKE_WIDTH * FAKE_CHANNELS;
		char *image = base + header->image_offset;
		((int32_t *)(base + header->label_offset))[i] = (int32_t)(sample % FAKE_CLASSES);
		((uint64_t *)(base + header->sample_offset))[i] = sample;
		uint8_t *flags = (uint8_t *)base + header->flag_offset + i;
		*flags = sample == 3 ? RING_SAMPLE_SUBSTITUTED : 0;
		slot->bad += sample == 3;
		for (uint32_t field = 0; field < header->field_count; field++)
			*flags |= fill_field(s, base + header->fields[field].offset, field, i,
					     sample);
		for (size_t v = 0; v < values; v++) {
			float f = (float)fake_pixel(epoch, sample);
			uint32_t bits;
			memcpy(&bits, &f, sizeof(bits));
			if (s->element == RING_U8)
				((uint8_t *)image)[i * values + v] = fake_pixel(epoch, sample);
			else if (s->element == RING_F32)
				((float *)image)[i * values + v] = f;
			else if (s->element == RING_BF16)
				((uint16_t *)image)[i * values + v] = (uint16_t)(bits >> 16);
			else
				((uint16_t *)image)[i * values + v] =
					float_to_half(fake_pixel(epoch, sample));
		}
	}
	lie(s, slot);
}

/* Waits for the client to report that it has mapped the ring. */
static bool mapped(struct session *s)
{
	bool gone = false;
	Loaderd__Request *request = receive(s, 10000, &gone);
	bool said = request && request->kind_case == LOADERD__REQUEST__KIND_RING_MAPPED;
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return said && ring_producer_start(&s->ring) == 0;
}

static bool dies(const struct session *s)
{
	static const char *const scripts[] = {"die",      "quota",   "denied", "divided",
					      "replaced", "leaving", "verbose"};
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		if (scripted(s, scripts[i]))
			return true;
	return false;
}

static void say_goodbye(struct session *s)
{
	Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_SHUTTING_DOWN;
	reply.shutting_down = &shutting_down;
	send_reply(s, &reply, NULL, 0);
}

/*
 * Number of feeds that have ended because the daemon is stopping and whose clients are still
 * connected.
 */
static atomic_uint lingering;

/* Publishes batches until the script, the client or the end of the feed stops it. */
static void produce(struct session *s)
{
	const Loaderd__OpenFeed *open = s->open->open_feed;
	uint64_t epoch = open->epoch, batch = open->batch;
	for (long published = 0;; published++) {
		struct ring_slot *slot = ring_begin(&s->ring);
		while (!slot) {
			ring_producer_arm(&s->ring);
			slot = ring_begin(&s->ring);
			if (!slot && !attend(s, 1000))
				return;
		}
		if (dies(s) && published == s->number)
			return;
		if (scripted(s, "shutdown") && published == s->number)
			return say_goodbye(s);
		if (scripted(s, "state") && published == s->number) {
			atomic_store(&s->ring.header->state, 99);
			send_doorbell(s);
			return wait_for_hangup(s);
		}
		if (scripted(s, "endless") && published == s->number) {
			memset(s->ring.header->reason, '\x1b', RING_REASON_MAX);
			atomic_store(&s->ring.header->state, RING_FAILED);
			send_doorbell(s);
			return wait_for_hangup(s);
		}
		if (scripted(s, "garbage") && published == s->number) {
			frame_send(s->fd, (const uint8_t *)"\xff\xff\xff\xff", 4, NULL, 0, 0);
			return wait_for_hangup(s);
		}
		if (scripted(s, "oops") && published == s->number) {
			send_error(s, EIO, "the disk \x1b[2Jis gone\n", "", -1);
			return wait_for_hangup(s);
		}
		bool failed = scripted(s, "fail") && published == s->number;
		bool lingers = scripted(s, "linger") && published == s->number;
		bool stopped = lingers || (scripted(s, "stop") && published == s->number);
		if (failed || stopped || (scripted(s, "end") && published == s->number) ||
		    (open->epoch_end != 0 && epoch >= open->epoch_end)) {
			atomic_fetch_add(&lingering, lingers);
			if (ring_end(&s->ring, failed    ? "sample 7 is broken"
					       : stopped ? RING_REASON_STOPPING
							 : NULL))
				send_doorbell(s);
			wait_for_hangup(s);
			atomic_fetch_sub(&lingering, lingers);
			return;
		}
		if (scripted(s, "hang") && published == s->number)
			return wait_for_hangup(s);
		if (scripted(s, "slow"))
			sleep_ms(s->number);
		fill(s, slot, epoch, batch);
		for (int i = 0; scripted(s, "flood") && i < 1000; i++)
			send_doorbell(s);
		if (ring_publish(&s->ring))
			send_doorbell(s);
		batch++;
		if (batch == FAKE_BATCHES) {
			batch = 0;
			epoch++;
		}
		bool gone = false;
		Loaderd__Request *request = receive(s, 0, &gone);
		if (request)
			loaderd__request__free_unpacked(request, NULL);
		if (gone)
			return;
	}
}

static void publish(struct session *s)
{
	pthread_t flipper;
	bool flips = scripted(s, "flip") && pthread_create(&flipper, NULL, flip, s) == 0;
	produce(s);
	atomic_store(&s->done, true);
	if (flips)
		pthread_join(flipper, NULL);
}

static int make_ring(struct session *s)
{
	const Loaderd__OpenFeed *open = s->open->open_feed;
	const char *pipeline = open->pipeline;
	size_t size = 4;
	s->element = RING_F32;
	if (strstr(pipeline, "f16"))
		s->element = RING_F16, size = 2;
	if (strstr(pipeline, "bf16"))
		s->element = RING_BF16, size = 2;
	if (!strstr(pipeline, "f32") && size == 4)
		s->element = RING_U8, size = 1;
	s->layout = strstr(pipeline, "nchw") ? RING_NCHW : RING_NHWC;
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, open->slots != 0 ? open->slots : FAKE_SLOTS, open->batch_size,
			   (uint64_t)open->batch_size * FAKE_HEIGHT * FAKE_WIDTH * FAKE_CHANNELS *
				   size);
	for (size_t i = 0; i < open->n_fields; i++)
		if (ring_geometry_field(&geometry, field_type(open->fields[i]),
					open->field_bytes != 0 ? open->field_bytes : 256) < 0)
			return -EINVAL;
	return fake_ring_init(&s->ring, &geometry);
}

/*
 * Returns true if the feed is being reopened, that is, it starts after batch 0. Some scripts behave
 * differently in this case.
 */
static bool comes_back(const struct session *s)
{
	return s->open->open_feed->epoch > 0 || s->open->open_feed->batch > 0;
}

/* Sends the ring before the reply, like the supervisor. */
static void send_ring(struct session *s)
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	int fds[3] = {s->ring.ring_fd, s->ring.ack_fd, s->fd};
	unsigned count = scripted(s, "nofds")      ? 0
			 : scripted(s, "onefd")    ? 1
			 : scripted(s, "threefds") ? 3
						   : 2;
	if (scripted(s, "swapped"))
		fds[0] = s->ring.ack_fd, fds[1] = s->ring.ring_fd;
	reply.kind_case = LOADERD__REPLY__KIND_RING;
	reply.ring = &ring;
	if (!scripted(s, "noring"))
		send_reply(s, &reply, fds, count);
	if (scripted(s, "tworings"))
		send_reply(s, &reply, fds, count);
}

/* Says that half of the samples have been examined. */
static void tell_progress(struct session *s)
{
	Loaderd__Progress progress = LOADERD__PROGRESS__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	progress.done = 1;
	progress.total = 2;
	reply.kind_case = LOADERD__REPLY__KIND_PROGRESS;
	reply.progress = &progress;
	send_reply(s, &reply, NULL, 0);
}

/* Returns false if the client does not accept the ring. */
static bool answer_open(struct session *s)
{
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	opened.feed_id = 17;
	opened.samples = (uint64_t)FAKE_BATCHES * s->open->open_feed->batch_size;
	opened.batches_per_epoch = FAKE_BATCHES + (scripted(s, "divided") && comes_back(s));
	opened.classes = FAKE_CLASSES;
	opened.slots = s->ring.layout.slots;
	opened.writable = grants_writable(s);
	/*
	 * the script's name serves as the UUID of the contents; "old" omits it, like daemons that
	 * do not know the field
	 */
	uint8_t uuid[16] = {0};
	memcpy(uuid, s->script, strnlen(s->script, sizeof(uuid)));
	uuid[0] ^= scripted(s, "replaced") && comes_back(s);
	if (!scripted(s, "old"))
		opened.dataset_uuid = (ProtobufCBinaryData){sizeof(uuid), uuid};
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &opened;
	if (scripted(s, "examines"))
		tell_progress(s);
	send_ring(s);
	if (!scripted(s, "noring") && !mapped(s))
		return false;
	if (scripted(s, "badheader"))
		s->ring.header->slots = 9999;
	if (scripted(s, "badoffset"))
		s->ring.header->image_offset = UINT64_C(1) << 62;
	send_reply(s, &reply, NULL, 0);
	return true;
}

/*
 * Scripts that refuse a reopened feed: "quota" and "leaving" three times, "denied" always, and
 * "linger" until the client has disconnected from the previous daemon.
 */
static bool refuses_again(struct session *s)
{
	static atomic_uint refusals, goodbyes;
	if (!comes_back(s))
		return false;
	if (scripted(s, "linger") && atomic_load(&lingering) > 0) {
		send_error(s, ECONNRESET, "the one before is still stopping", "", -1);
		return true;
	}
	/* The daemon begins to stop while it opens the feed, and never replies. */
	if (scripted(s, "leaving") && atomic_fetch_add(&goodbyes, 1) % 4 < 3) {
		say_goodbye(s);
		return true;
	}
	if (scripted(s, "quota") && atomic_fetch_add(&refusals, 1) % 4 < 3) {
		send_error(s, EDQUOT, "limit: the rings of this user have 600 MB", "", -1);
		return true;
	}
	if (scripted(s, "verbose")) { /* text of two-byte characters, so that truncation would split
					 one */
		char text[2000];
		for (size_t i = 0; i < sizeof(text) - 1; i++)
			text[i] = i % 2 == (size_t)s->number % 2 ? '\xc3' : '\xa9';
		text[sizeof(text) - 1] = '\0';
		send_error(s, EINVAL, text, "", -1);
		return true;
	}
	if (scripted(s, "denied")) {
		send_error(s, EINVAL, "pipeline: no longer known", "pipeline", -1);
		return true;
	}
	return false;
}

static void open_feed(struct session *s)
{
	const char *dataset = s->open->open_feed->dataset;
	const char *slash = strrchr(dataset, '/');
	s->script = !slash ? dataset : slash + 1;
	const char *dash = strchr(s->script, '-');
	s->number = !dash ? -1 : atol(dash + 1);
	if (scripted(s, "refuse"))
		return;
	if (scripted(s, "mute"))
		return wait_for_hangup(s);
	if (scripted(s, "missing")) {
		send_error(s, ENOENT, "dataset: there is no file of that name", "dataset", -1);
		return wait_for_hangup(s);
	}
	if (strstr(s->open->open_feed->pipeline, "blur")) {
		send_error(s, EINVAL, "\"blur\" is no transform; there are resize, hflip",
			   "pipeline",
			   (int)(strstr(s->open->open_feed->pipeline, "blur") -
				 s->open->open_feed->pipeline));
		return wait_for_hangup(s);
	}
	if (scripted(s, "wrongreply")) {
		Loaderd__Status status = LOADERD__STATUS__INIT;
		Loaderd__Reply reply = LOADERD__REPLY__INIT;
		reply.kind_case = LOADERD__REPLY__KIND_STATUS;
		reply.status = &status;
		send_reply(s, &reply, NULL, 0);
		return wait_for_hangup(s);
	}
	if (scripted(s, "noise")) {
		frame_send(s->fd, (const uint8_t *)"\xff\xff\xff\xff", 4, NULL, 0, 0);
		return wait_for_hangup(s);
	}
	if (scripted(s, "toolong")) {
		ssize_t n = send(s->fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL);
		(void)n;
		return wait_for_hangup(s);
	}
	if (refuses_again(s))
		return wait_for_hangup(s);
	int r = make_ring(s);
	if (r < 0) {
		send_error(s, -r, "slots or batch_size: no ring of that size", "slots", -1);
		return;
	}
	if (!answer_open(s) || scripted(s, "badheader") || scripted(s, "badoffset"))
		wait_for_hangup(s);
	else
		publish(s);
	ring_producer_deinit(&s->ring);
}

/* Advances the time by ten seconds per request, and every counter by a different amount. */
static void advance(Loaderd__Status *status)
{
	static atomic_uint times;
	Loaderd__FeedStatus *feed = status->feeds[0];
	const uint64_t n = ++times, ms = 1000000;
	status->uptime_ns += n * 10000 * ms;
	status->idle_ns += n * 9000 * ms;
	feed->images += n * 25000;
	feed->stall_client_ns += n * 1000 * ms;
	feed->stall_daemon_ns += n * 2000 * ms;
	feed->wait_ns += n * 3000 * ms;
	feed->queued_ns += n * 4000 * ms;
	feed->read_ns += n * 200 * ms;
	feed->decode_ns += n * 800 * ms;
	feed->resize_ns += n * 400 * ms;
	feed->augment_ns += n * 60 * ms;
	feed->store_ns += n * 140 * ms;
	feed->other_ns += n * 400 * ms;
}

/* Gives the first feed an order of two parts and buckets, and adds one that is being opened. */
static void set_orders(Loaderd__Status *status)
{
	static Loaderd__Choice choice = LOADERD__CHOICE__INIT;
	static Loaderd__PartStatus chosen = LOADERD__PART_STATUS__INIT,
				   whole = LOADERD__PART_STATUS__INIT;
	static Loaderd__PartStatus *parts[] = {&chosen, &whole};
	static Loaderd__Bucket bucket = LOADERD__BUCKET__INIT, *buckets[] = {&bucket};
	static uint64_t bucket_samples[] = {1, 2};
	static Loaderd__OrderStatus order = LOADERD__ORDER_STATUS__INIT;
	static Loaderd__FeedStatus opened = LOADERD__FEED_STATUS__INIT;
	static Loaderd__Progress opening = LOADERD__PROGRESS__INIT;
	static Loaderd__FeedStatus *feeds[] = {NULL, &opened};
	choice.where = (char *)"label < 5";
	choice.balanced = true;
	chosen.dataset = (char *)"/data/\x1b[31mred.pimg";
	chosen.samples = 1281167;
	chosen.chosen = 42000;
	chosen.share = 3;
	chosen.choice = &choice;
	whole.dataset = (char *)"/data/whole.pimg";
	whole.samples = whole.chosen = 1;
	bucket.width = 512;
	bucket.height = 2048;
	order.part_count = 7;
	order.parts = parts;
	order.n_parts = 2;
	order.period = 4;
	order.stage = 1;
	order.stages = 3;
	order.buckets = buckets;
	order.n_buckets = 1;
	order.bucket_samples = bucket_samples;
	order.n_bucket_samples = 2;
	order.batch_tokens = 4096;
	order.epoch_batches = 1000;
	opening.done = 1000;
	opening.total = 4000;
	opened.feed_id = 18;
	opened.opening = &opening;
	status->feeds[0]->order = &order;
	feeds[0] = status->feeds[0];
	status->feeds = feeds;
	status->n_feeds = 2;
}

/*
 * $FAKE_STATUS selects the status: "many" reports many empty feeds, "wild" extreme numbers,
 * "advancing" growing numbers, "orders" orders.
 */
static void exaggerate(Loaderd__Status *status)
{
	enum { MANY = 200000 };
	static Loaderd__FeedStatus empty = LOADERD__FEED_STATUS__INIT;
	const char *how = getenv("FAKE_STATUS");
	if (how && strcmp(how, "many") == 0) {
		status->feeds = calloc(MANY, sizeof(*status->feeds));
		status->n_feeds = MANY;
		for (size_t i = 0; i < MANY; i++)
			status->feeds[i] = &empty;
	}
	if (how && strcmp(how, "orders") == 0)
		set_orders(status);
	if (how && strcmp(how, "advancing") == 0)
		advance(status);
	if (how && strcmp(how, "wild") == 0) {
		status->threads = status->feeds[0]->slots = status->feeds[0]->pid = UINT32_MAX;
		status->uptime_ns = status->idle_ns = status->shared_bytes = UINT64_MAX;
		status->feeds[0]->images = status->feeds[0]->epoch = UINT64_MAX;
		status->feeds[0]->stall_client_ns = status->feeds[0]->decode_ns = UINT64_MAX;
	}
}

static void answer_status(struct session *s)
{
	Loaderd__Status status = LOADERD__STATUS__INIT;
	Loaderd__FeedStatus feed = LOADERD__FEED_STATUS__INIT, *feeds[] = {&feed};
	Loaderd__BadSampleRecord bad = LOADERD__BAD_SAMPLE_RECORD__INIT, *bads[] = {&bad};
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	status.version = (char *)"0.1.0-fake";
	status.pid = (uint32_t)getpid();
	status.threads = 2;
	status.uptime_ns = 3723000000000;
	status.isa = (char *)"c";
	status.shared_bytes = 12345678;
	status.idle_ns = UINT64_C(1861500000000); /* a quarter of two threads' 3723 s */
	status.n_feeds = 1;
	status.feeds = feeds;
	feed.feed_id = 17;
	feed.name = (char *)"train \x1b[31mred\xc2\x9b\x7f\u202e\nfeed";
	feed.pid = 4321;
	feed.uid = 1000;
	feed.dataset = (char *)"/data/train.pimg";
	feed.pipeline = (char *)"random_resized_crop(224) hflip(0.5)";
	feed.batch_size = 256;
	feed.epoch = 3;
	feed.batch = 41;
	feed.images = 1234567;
	feed.bad = 2;
	feed.slots = 4;
	feed.slots_ready = 2;
	feed.slots_held = 1;
	feed.stall_client_ns = 1500000000;
	feed.stall_daemon_ns = 60000000000;
	feed.read_ns = 1000000000;
	feed.decode_ns = 6000000000;
	feed.resize_ns = 2000000000;
	feed.augment_ns = 300000000;
	feed.store_ns = 500000000;
	feed.other_ns = 200000000;
	feed.wait_ns = 250000000;
	feed.queued_ns = 90000000000;
	feed.bytes = 12345678;
	status.n_bad = 1;
	status.bad = bads;
	bad.dataset = (char *)"/data/train.pimg";
	bad.index = 99;
	bad.source = (char *)"n01440764/x.JPEG";
	bad.text = (char *)"sample 99: truncated after row 12";
	bad.count = 3;
	reply.kind_case = LOADERD__REPLY__KIND_STATUS;
	reply.status = &status;
	exaggerate(&status);
	send_reply(s, &reply, NULL, 0);
	if (status.n_feeds > 2)
		free(status.feeds);
}

static void answer_dataset(struct session *s, const char *path)
{
	char *names[FAKE_CLASSES];
	char texts[FAKE_CLASSES][24];
	double mean[3] = {123.5, 116.25, 103.75}, std[3] = {58, 57, 57.5};
	if (strstr(path, "missing")) {
		send_error(s, ENOENT, "there is no file of that name", "dataset", -1);
		return;
	}
	Loaderd__Dataset dataset = LOADERD__DATASET__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	for (int i = 0; i < FAKE_CLASSES; i++) {
		snprintf(texts[i], sizeof(texts[i]), "class %d", i);
		names[i] = texts[i];
	}
	dataset.path = (char *)path;
	dataset.samples = 320;
	dataset.uuid = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
	dataset.n_class_names = FAKE_CLASSES;
	dataset.class_names = names;
	/* "old" simulates a daemon that reports only names */
	static char *field_names[] = {(char *)"id", (char *)"text"};
	static uint32_t field_types[] = {1, 5};
	static uint64_t field_longest[] = {0, 77};
	dataset.n_field_names = 2;
	dataset.field_names = field_names;
	dataset.n_field_types = dataset.n_field_longest = strstr(path, "old") ? 0 : 2;
	dataset.field_types = field_types;
	dataset.field_longest = field_longest;
	dataset.n_mean = dataset.n_std = 3;
	dataset.mean = mean;
	dataset.std = std;
	if (getenv("FAKE_STATUS"))
		mean[1] = NAN;
	dataset.metadata = (char *)"made=by hand\nnote=a=b\n";
	reply.kind_case = LOADERD__REPLY__KIND_DATASET;
	reply.dataset = &dataset;
	send_reply(s, &reply, NULL, 0);
}

static void answer_shutdown(struct session *s)
{
	Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_SHUTTING_DOWN;
	reply.shutting_down = &shutting_down;
	send_reply(s, &reply, NULL, 0);
}

static void *session(void *argument)
{
	struct session *s = argument;
	bool gone = false;
	frame_reader_init(&s->reader);
	while (!gone) {
		Loaderd__Request *request = receive(s, -1, &gone);
		if (!request)
			break;
		s->open = request;
		switch (request->kind_case) {
		case LOADERD__REQUEST__KIND_OPEN_FEED:
			open_feed(s);
			gone = true;
			break;
		case LOADERD__REQUEST__KIND_GET_STATUS:
			answer_status(s);
			break;
		case LOADERD__REQUEST__KIND_GET_DATASET:
			answer_dataset(s, request->get_dataset->path);
			break;
		case LOADERD__REQUEST__KIND_SHUTDOWN:
			answer_shutdown(s);
			break;
		default:
			break;
		}
		loaderd__request__free_unpacked(request, NULL);
	}
	frame_reader_deinit(&s->reader);
	close(s->fd);
	free(s);
	return NULL;
}

void fake_serve(int listen_fd, int lifeline)
{
	struct pollfd p[2] = {{.fd = listen_fd, .events = POLLIN},
			      {.fd = lifeline, .events = POLLIN}};
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents != 0)
			break;
		int fd = p[0].revents == 0 ? -1 : accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		struct session *s = calloc(1, sizeof(*s));
		pthread_t thread;
		s->fd = fd;
		pthread_create(&thread, &detached, session, s);
	}
	pthread_attr_destroy(&detached);
	close(listen_fd);
	if (lifeline >= 0)
		close(lifeline);
}
