/*
 * Data that a worker can send to clients of its own user: through the ring, whose memory it shares
 * with them, and in its replies. The commanding client selects one row at a time, starts peers, and
 * ends the row. Without a row, the worker acts like an honest daemon.
 */
#include "tests/security/compromised_worker/bad_feed.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool applies(const struct bad_feed *d)
{
	return !d->row->again || d->connections > 0;
}

static bool has_sections(const struct bad_feed *d)
{
	return d->row->kind && strcmp(d->row->kind, "values") == 0;
}

static void overwrite(const struct bad_feed *d, enum where where, void *base)
{
	if (d->row->where == where && applies(d))
		memcpy((char *)base + d->row->offset, &d->row->value, d->row->size);
}

/* ---- messages ---- */

bool bad_feed_await(struct bad_feed *d, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = d->fd, .events = POLLIN},
			      {.fd = d->agent->client, .events = POLLIN}};
	poll(p, 2, timeout_ms);
	return p[1].revents == 0;
}

/* Returns the next request; NULL if the peer has gone. */
static Loaderd__Request *hear(struct bad_feed *d)
{
	do {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&d->reader, d->fd, &data, &size);
		if (r > 0)
			return loaderd__request__unpack(NULL, size, data);
		if (r < 0)
			return NULL;
	} while (bad_feed_await(d, -1));
	return NULL;
}

bool bad_feed_hear_and_forget(struct bad_feed *d)
{
	Loaderd__Request *request = hear(d);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return request;
}

void bad_feed_read_until_closed(struct bad_feed *d)
{
	while (bad_feed_hear_and_forget(d))
		;
}

bool bad_feed_send_frame(const struct bad_feed *d, const uint8_t *data, size_t size)
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

bool bad_feed_send_reply(struct bad_feed *d, Loaderd__Reply__KindCase kind, void *message)
{
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = kind;
	reply.error = message; /* all members of the union are pointers */
	size_t size = loaderd__reply__get_packed_size(&reply);
	uint8_t *data = malloc(size + 1);
	if (!data)
		return false;
	loaderd__reply__pack(&reply, data);
	bool sent = bad_feed_send_frame(d, data, size);
	free(data);
	return sent;
}

bool bad_feed_send_doorbell(struct bad_feed *d)
{
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	return bad_feed_send_reply(d, LOADERD__REPLY__KIND_DOORBELL, &doorbell);
}

void bad_feed_send_error(struct bad_feed *d, int code, const char *text)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	error.code = code;
	error.text = error.field = (char *)text;
	error.position = INT32_MAX;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_ERROR, &error);
}

void bad_feed_ask_for_files(struct bad_feed *d, uint32_t first, uint32_t most, bool direct)
{
	enum { PASS_RIGHTS = 83 }; /* SO_PASSRIGHTS, Linux 6.16: a worker may set it */
	static const int allowed = 1;
	(void)setsockopt(d->fd, SOL_SOCKET, PASS_RIGHTS, &allowed, sizeof(allowed));
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	need.first = first;
	need.most = most;
	need.direct = direct;
	bad_feed_send_reply(d, LOADERD__REPLY__KIND_NEED_FILES, &need);
}

/* ---- an honest feed, changed by the row ---- */

static void fill(struct bad_feed *d, struct ring_slot *slot)
{
	const struct ring_section *sections = d->ring.layout.sections;
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
		((int32_t *)(base + sections[RING_LABELS].offset))[i] = (int32_t)(i % CLASSES);
		((uint64_t *)(base + sections[RING_SAMPLES].offset))[i] = d->batch * count + i;
		((uint8_t *)base + sections[RING_FLAGS].offset)[i] = 0;
	}
	memset(base + sections[RING_IMAGES].offset, (int)d->batch, count * SIDE * SIDE * 3);
}

static void publish_one(struct bad_feed *d, struct ring_slot *slot)
{
	bool now = ++d->published == AT && applies(d);
	fill(d, slot);
	if (has_sections(d) && d->ring.layout.version == RING_VERSION_2)
		bad_feed_fill_sections(d, slot);
	if (now)
		overwrite(d, SLOT, slot);
	if (now && d->row->before)
		d->row->before(d, slot);
	d->batch = d->batch == BATCHES - 1 ? 0 : d->batch + 1;
	d->epoch += d->batch == 0;
	if (ring_publish(&d->ring))
		bad_feed_send_doorbell(d);
	if (now && d->row->where == RUNNING) {
		overwrite(d, RUNNING, d->ring.header);
		bad_feed_send_doorbell(d);
	}
	if (now && d->row->after)
		d->row->after(d);
}

/* Publishes batches until the peer disconnects. */
static void produce(struct bad_feed *d)
{
	while (bad_feed_await(d, 0)) {
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
			bad_feed_await(d, 100);
		if (d->row->again && d->connections == 0 && d->published == AT)
			return;
		if (frame_receive(&d->reader, d->fd, &data, &size) < 0)
			return;
	}
}

/* Grants the feed to the peer. Returns false if the supervisor or the peer refuses. */
static bool grant(struct bad_feed *d)
{
	int fds[IPC_FDS_MAX];
	overwrite(d, GEOMETRY, &d->geometry);
	uint64_t bytes = ring_size(&d->geometry);
	d->opened.feed_id = (UINT64_C(3) << 40) + d->connections;
	overwrite(d, OPENED, &d->opened);
	int code = agent_request_ring(d->opened.feed_id, bytes, 0, fds);
	if (code != 0 || ring_producer_init(&d->ring, &d->geometry, fds[0], fds[1]) < 0) {
		agent_send(d->agent, "BAD no ring: %d", code);
		return false;
	}
	if (agent_send_ring(d->opened.feed_id, d->client_id) != 0 || !bad_feed_hear_and_forget(d) ||
	    ring_producer_start(&d->ring) < 0)
		return false;
	overwrite(d, HEADER, d->ring.header);
	return bad_feed_send_reply(d, LOADERD__REPLY__KIND_FEED_OPENED, &d->opened);
}

static void serve_feed(struct bad_feed *d, const Loaderd__OpenFeed *request)
{
	static uint8_t uuid[16] = "a dataset's uuid";
	pthread_t thread;
	d->epoch = request->epoch;
	d->batch = request->batch;
	d->published = 0;
	ring_geometry_init(&d->geometry, request->slots, request->batch_size,
			   (uint64_t)request->batch_size * SIDE * SIDE * 3);
	for (size_t i = 0; i < request->n_fields && i < 2; i++)
		ring_geometry_field(&d->geometry, i == 0 ? 1 : 3, 16);
	d->opened = (Loaderd__FeedOpened)LOADERD__FEED_OPENED__INIT;
	d->opened.samples = (uint64_t)request->batch_size * BATCHES;
	d->opened.batches_per_epoch = BATCHES;
	d->opened.classes = CLASSES;
	d->opened.slots = request->slots;
	d->opened.dataset_uuid = (ProtobufCBinaryData){sizeof(uuid), uuid};
	if (has_sections(d))
		bad_feed_announce_sections(d);
	bad_feed_ask_for_files(d, 0, FRAME_FDS_MAX, false);
	if (!bad_feed_hear_and_forget(d))
		return;
	if (d->row->prepare && applies(d))
		d->row->prepare(d);
	if (!grant(d)) {
		bad_feed_read_until_closed(d);
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

static void serve(struct bad_feed *d)
{
	frame_reader_init(&d->reader);
	Loaderd__Request *request = hear(d);
	/* A row changes a ring of one version. */
	if (request && request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED &&
	    request->open_feed->version > PROTO_VERSION_OLDEST && !d->row->answer &&
	    !has_sections(d)) {
		loaderd__request__free_unpacked(request, NULL);
		bad_feed_send_error(d, EPROTO, "version");
		request = hear(d);
	}
	if (request && d->row->answer && applies(d))
		d->row->answer(d);
	else if (request && request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED)
		serve_feed(d, request->open_feed);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	bool had_ring = d->ring.header;
	ring_producer_deinit(&d->ring);
	if (had_ring)
		agent_give_back(d->opened.feed_id);
	frame_reader_deinit(&d->reader);
	/*
	 * close() alone would leave the connection open: the supervisor also holds the fd of a
	 * client without a ring.
	 */
	shutdown(d->fd, SHUT_RDWR);
	close(d->fd);
	d->connections++;
}

/* Returns NULL if there is no such row. */
static const struct row *row_numbered(size_t number)
{
	const struct row *const tables[] = {bad_ring_rows, bad_reply_rows, bad_section_rows};
	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct row *row = tables[t]; row->name; row++)
			if (number-- == 0)
				return row;
	return NULL;
}

/*
 * arguments is the number of a row. Announces the row, serves peers until the commanding client
 * sends a byte, then acts honestly again.
 */
void bad_feed_run(const struct agent *agent, const char *arguments)
{
	static struct bad_feed d;
	size_t number = (size_t)atoi(arguments);
	const struct row *row = row_numbered(number);
	if (!row)
		return;
	d = (struct bad_feed){.agent = agent, .row = row};
	agent_send(agent, "row %s %d %d %u %s", row->kind ? row->kind : "feed", row->expected,
		   row->patience_ms, row->batches != 0 ? row->batches : 4 * BATCHES, row->name);
	for (;;) {
		struct ipc_order order;
		int fds[IPC_FDS_MAX];
		struct pollfd p[2] = {{.fd = IPC_SOCKET_FD, .events = POLLIN},
				      {.fd = agent->client, .events = POLLIN}};
		poll(p, 2, -1);
		if (p[1].revents != 0)
			return;
		if (ipc_receive(IPC_SOCKET_FD, &order, fds) < 0)
			continue;
		if (order.kind == IPC_CLIENT && fds[0] >= 0) {
			d.fd = fds[0];
			d.client_id = order.client;
			serve(&d);
			fds[0] = -1;
		}
		for (unsigned i = 0; i < IPC_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}
