#include "tests/unit/proto/client/puppet.h"

#include "format/base/system/clock.h"
#include "proto/client/files.h"
#include "tests/unit/proto/fake_ring.h"
#include "tests/unit/proto/old_version.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

char puppet_dataset[] = "/tmp/loaderd-hostile-XXXXXX.pimg";

/* Waits for a request. Returns NULL if the client has hung up. */
static Loaderd__Request *hear(struct puppet *p)
{
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&p->reader, p->fd, &data, &size);
		if (r > 0)
			return loaderd__request__unpack(NULL, size, data);
		if (r < 0)
			return NULL;
		struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
		poll(&poll_fd, 1, -1);
	}
}

bool puppet_hear_and_forget(struct puppet *p)
{
	Loaderd__Request *request = hear(p);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return request;
}

void puppet_hear_to_the_end(struct puppet *p)
{
	while (puppet_hear_and_forget(p))
		;
}

void puppet_tell(struct puppet *p, const Loaderd__Reply *reply, const int *fds, unsigned fd_count)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *data = malloc(size + 1);
	loaderd__reply__pack(reply, data);
	frame_send(p->fd, data, size, fds, fd_count, 1000);
	free(data);
}

void puppet_ask_for_files(struct puppet *p, uint32_t first, uint32_t most, bool direct)
{
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	need.first = first;
	need.most = most;
	need.direct = direct;
	reply.kind_case = LOADERD__REPLY__KIND_NEED_FILES;
	reply.need_files = &need;
	puppet_tell(p, &reply, NULL, 0);
}

static void play_connection(struct puppet *p)
{
	frame_reader_init(&p->reader);
	p->play(p);
	ring_producer_deinit(&p->ring);
	frame_reader_deinit(&p->reader);
	close(p->fd);
	p->connections++;
}

static void *serve(void *argument)
{
	struct puppet *p = argument;
	while ((p->fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		play_connection(p);
	return NULL;
}

static void start(struct puppet *p, void (*play)(struct puppet *))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	*p = (struct puppet){.play = play};
	int length = snprintf(p->socket, sizeof(p->socket), "@loaderd-hostile-%d", (int)getpid());
	memcpy(address.sun_path + 1, p->socket + 1, (size_t)length - 1);
	p->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p->listen_fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
			 0);
	assert_int_equal(listen(p->listen_fd, 16), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void stop(struct puppet *p)
{
	shutdown(p->listen_fd, SHUT_RDWR);
	pthread_join(p->thread, NULL);
	close(p->listen_fd);
}

bool puppet_hear_wish(struct puppet *p)
{
	Loaderd__Request *request = hear(p);
	if (old_version_refuses(p->fd, request)) {
		loaderd__request__free_unpacked(request, NULL);
		request = hear(p);
	}
	if (!request || request->kind_case != LOADERD__REQUEST__KIND_OPEN_FEED) {
		loaderd__request__free_unpacked(request, NULL);
		return false;
	}
	const Loaderd__OpenFeed *wish = request->open_feed;
	p->epoch = wish->epoch;
	p->batch = wish->batch;
	ring_geometry_init(&p->geometry, SLOTS, wish->batch_size,
			   (uint64_t)wish->batch_size * SIDE * SIDE * 3);
	for (size_t i = 0; i < wish->n_fields; i++)
		ring_geometry_field(&p->geometry, i == 0 ? FEED_INT64 : FEED_BYTES, VALUE_SIZE);
	p->opened = (Loaderd__FeedOpened)LOADERD__FEED_OPENED__INIT;
	p->opened.samples = (uint64_t)wish->batch_size * BATCHES;
	p->opened.batches_per_epoch = wish->wanted ? 0 : BATCHES;
	p->opened.wanted = wish->wanted;
	p->opened.classes = 10;
	p->opened.slots = SLOTS;
	p->opened.dataset_uuid = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
	loaderd__request__free_unpacked(request, NULL);
	return true;
}

void puppet_send_ring(struct puppet *p, const int *fds, unsigned fd_count)
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_RING;
	reply.ring = &ring;
	puppet_tell(p, &reply, fds, fd_count);
}

void puppet_send_opened(struct puppet *p)
{
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &p->opened;
	puppet_tell(p, &reply, NULL, 0);
}

bool puppet_grant(struct puppet *p)
{
	assert_int_equal(fake_ring_init(&p->ring, &p->geometry), 0);
	const int fds[2] = {p->ring.ring_fd, p->ring.ack_fd};
	puppet_send_ring(p, fds, 2);
	if (!puppet_hear_and_forget(p) || ring_producer_start(&p->ring) < 0)
		return false;
	puppet_send_opened(p);
	return true;
}

void puppet_publish(struct puppet *p, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ring_slot *slot = ring_begin(&p->ring);
		assert_non_null(slot);
		slot->epoch = p->epoch;
		slot->batch = p->batch;
		slot->count = p->geometry.batch_size_max;
		slot->height = slot->width = SIDE;
		slot->channels = 3;
		slot->element = RING_U8;
		slot->layout = RING_NHWC;
		slot->last = p->batch == BATCHES - 1;
		memset((char *)slot + p->ring.layout.sections[RING_IMAGES].offset,
		       (int)(p->batch + 1), p->geometry.sections[RING_IMAGES].room);
		if (ring_publish(&p->ring))
			frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
		p->batch = slot->last ? 0 : p->batch + 1;
		p->epoch += slot->last;
	}
}

bool puppet_begin_feed(struct puppet *p, unsigned count)
{
	if (!puppet_hear_wish(p) || !puppet_grant(p))
		return false;
	puppet_publish(p, count);
	return true;
}

void puppet_send_error(struct puppet *p, int code, const char *text)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	error.code = code;
	error.text = (char *)text;
	error.position = -1;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	puppet_tell(p, &reply, NULL, 0);
}

int puppet_request_status(const struct puppet *p, char *error)
{
	struct connection connection = {.fd = -1};
	int64_t deadline_ms = clock_ms() + SOON_MS;
	int r = connection_open(&connection, p->socket, deadline_ms, error);
	assert_int_equal(r, 0);
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	Loaderd__Reply *reply = NULL;
	r = files_request(&connection, &request, NULL, NULL, 0, &deadline_ms, &reply, error);
	if (r == 0)
		loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return r;
}

int puppet_request_dataset(const struct puppet *p, char *error)
{
	struct feed_dataset *facts;
	int r = feed_dataset(p->socket, puppet_dataset, &facts, error);
	if (r == 0)
		feed_dataset_free(facts);
	return r;
}

static int open_feed(const struct puppet *p, struct feed **ret_feed, char *error)
{
	static const char *const fields[] = {"number", "bytes"};
	struct feed_options options;
	feed_options_init(&options);
	options.socket = p->socket;
	options.dataset = puppet_dataset;
	options.batch_size = BATCH_SIZE;
	options.slots = SLOTS;
	options.fields = fields;
	options.field_count = 2;
	options.field_bytes = VALUE_SIZE;
	options.epoch_end = 2;
	return feed_open(&options, ret_feed, error);
}

int puppet_request_feed(const struct puppet *p, char *error)
{
	struct feed *feed;
	int r = open_feed(p, &feed, error);
	if (r == 0)
		feed_close(feed);
	return r;
}

int puppet_take_batches(const struct puppet *p, char *error)
{
	struct feed_batch held[SLOTS - 1];
	unsigned count = 0;
	struct feed *feed;
	int r = open_feed(p, &feed, error);
	if (r < 0)
		return r;
	for (;;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		r = feed_next(feed, -1, &batch);
		if (r != 0)
			break;
		if (count < SLOTS - 1)
			held[count++] = batch;
		else
			feed_release(feed, &batch);
	}
	snprintf(error, FEED_ERROR_MAX, "%s", feed_error(feed));
	for (unsigned i = 0; i < count; i++) {
		const uint8_t *pixels = held[i].images;
		for (size_t j = 0; j < held[i].image_bytes; j++)
			assert_int_equal(pixels[j], held[i].batch + 1);
		assert_int_equal(feed_release(feed, &held[i]), 0);
	}
	feed_close(feed);
	return r;
}

void puppet_run_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct puppet puppet;
		char error[FEED_ERROR_MAX] = "";
		unsigned fds = count_open_fds();
		start(&puppet, rows[i].play);
		int64_t start_ms = now_ms();
		int r = rows[i].client(&puppet, error);
		print_message("%s: %d, %s\n", rows[i].name, r, error);
		assert_int_equal(r, rows[i].code);
		assert_true(now_ms() - start_ms < SOON_MS);
		if (rows[i].text)
			assert_non_null(strstr(error, rows[i].text));
		stop(&puppet);
		assert_int_equal(count_open_fds(), fds);
	}
}

int puppet_make_dataset(void **state)
{
	int fd = mkstemps(puppet_dataset, strlen(".pimg"));
	return fd < 0 ? -1 : close(fd);
}

int puppet_remove_dataset(void **state)
{
	return unlink(puppet_dataset);
}
