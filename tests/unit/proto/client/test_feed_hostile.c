/*
 * libfeed against a daemon that can do everything: it sends what no worker could, behind the walls
 * that a service puts up. Each row is a refusal with a sentence, or nothing happens. The daemon is
 * a thread of the test, and does what the row says with each connection.
 */
#include "tests/unit/proto/testing.h"

#include "proto/client/connection.h"
#include "proto/client/feed.h"
#include "proto/client/files.h"
#include "tests/unit/proto/own_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	BATCH_SIZE = 8,
	SLOTS = 4,
	BATCHES = 10,
	SIDE = 4,
	VALUE_SIZE = 16,
	FDS_MAX = FRAME_FDS_MAX
};

struct puppet {
	char socket[64];
	int listen_fd, fd;
	pthread_t thread;
	void (*play)(struct puppet *puppet);
	unsigned connections;
	struct frame_reader reader;
	/* Of the feed: */
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* the next one's */
};

static char dataset[] = "/tmp/loaderd-hostile-XXXXXX.pimg";

/* ---- the daemon ---- */

/* NULL: the client has hung up. */
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

/* False when the client has hung up. */
static bool hear_and_forget(struct puppet *p)
{
	Loaderd__Request *request = hear(p);
	if (request)
		loaderd__request__free_unpacked(request, NULL);
	return request;
}

static void hear_to_the_end(struct puppet *p)
{
	while (hear_and_forget(p))
		;
}

static void tell(struct puppet *p, const Loaderd__Reply *reply, const int *fds, unsigned fd_count)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *data = malloc(size + 1);
	loaderd__reply__pack(reply, data);
	frame_send(p->fd, data, size, fds, fd_count, 1000);
	free(data);
}

static void ask_for_files(struct puppet *p, uint32_t first, uint32_t most, bool direct)
{
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	need.first = first;
	need.most = most;
	need.direct = direct;
	reply.kind_case = LOADERD__REPLY__KIND_NEED_FILES;
	reply.need_files = &need;
	tell(p, &reply, NULL, 0);
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

/*
 * What an honest daemon would answer to OpenFeed, to be changed before it is. False: the client has
 * hung up.
 */
static bool hear_wish(struct puppet *p)
{
	Loaderd__Request *request = hear(p);
	if (!request)
		return false;
	const Loaderd__OpenFeed *wish = request->open_feed;
	p->epoch = wish->epoch;
	p->batch = wish->batch;
	p->geometry = (struct ring_geometry){
		.slots = SLOTS,
		.batch_size_max = wish->batch_size,
		.image_size_max = (uint64_t)wish->batch_size * SIDE * SIDE * 3,
		.field_count = (uint32_t)wish->n_fields,
		.field_bytes = VALUE_SIZE,
		.field_types = {FEED_INT64, FEED_BYTES},
	};
	p->opened = (Loaderd__FeedOpened)LOADERD__FEED_OPENED__INIT;
	p->opened.samples = (uint64_t)wish->batch_size * BATCHES;
	p->opened.batches_per_epoch = BATCHES;
	p->opened.classes = 10;
	p->opened.slots = SLOTS;
	p->opened.dataset_uuid = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
	loaderd__request__free_unpacked(request, NULL);
	return true;
}

/* fds: of a ring that comes before it; NULL: there is none. */
static void send_opened(struct puppet *p, const int *fds, unsigned fd_count)
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_RING;
	reply.ring = &ring;
	if (fds)
		tell(p, &reply, fds, fd_count);
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &p->opened;
	tell(p, &reply, NULL, 0);
}

/* False: the client did not want it. */
static bool grant(struct puppet *p)
{
	assert_int_equal(own_ring_init(&p->ring, &p->geometry), 0);
	const int fds[2] = {p->ring.ring_fd, p->ring.ack_fd};
	send_opened(p, fds, 2);
	return hear_and_forget(p) && ring_producer_fill(&p->ring) == 0;
}

/* At most as many as there are slots. */
static void publish(struct puppet *p, unsigned count)
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
		memset((char *)slot + p->ring.layout.image_offset, (int)(p->batch + 1),
		       p->geometry.image_size_max);
		if (ring_publish(&p->ring))
			frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
		p->batch = slot->last ? 0 : p->batch + 1;
		p->epoch += slot->last;
	}
}

/* An honest feed of so many batches. */
static bool begin_feed(struct puppet *p, unsigned count)
{
	if (!hear_wish(p) || !grant(p))
		return false;
	publish(p, count);
	return true;
}

static void send_error(struct puppet *p, int code, const char *text)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	error.code = code;
	error.text = (char *)text;
	error.position = -1;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	tell(p, &reply, NULL, 0);
}

/* ---- files that are asked for ---- */

static void ask_beyond(struct puppet *p)
{
	hear_and_forget(p);
	ask_for_files(p, UINT32_MAX, 253, false);
	hear_to_the_end(p);
}

static void ask_for_none(struct puppet *p)
{
	hear_and_forget(p);
	ask_for_files(p, 0, 0, false);
	hear_to_the_end(p);
}

static void ask_again_for_ever(struct puppet *p)
{
	hear_and_forget(p);
	do {
		ask_for_files(p, 0, UINT32_MAX, false);
	} while (hear_and_forget(p));
}

/* Once is what a daemon may do. */
static void ask_directly_in_turn(struct puppet *p)
{
	hear_and_forget(p);
	for (unsigned i = 0;; i++) {
		ask_for_files(p, 0, 1, i % 2 == 1);
		if (!hear_and_forget(p))
			break;
	}
}

static int request_status(const struct puppet *p, char *error)
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
	r = files_request(&connection, &request, NULL, NULL, deadline_ms, &reply, error);
	if (r == 0)
		loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return r;
}

static int request_dataset(const struct puppet *p, char *error)
{
	struct feed_dataset *facts;
	int r = feed_dataset(p->socket, dataset, &facts, error);
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
	options.dataset = dataset;
	options.batch_size = BATCH_SIZE;
	options.slots = SLOTS;
	options.fields = fields;
	options.field_count = 2;
	options.field_bytes = VALUE_SIZE;
	options.epoch_end = 2;
	return feed_open(&options, ret_feed, error);
}

static int request_feed(const struct puppet *p, char *error)
{
	struct feed *feed;
	int r = open_feed(p, &feed, error);
	if (r == 0)
		feed_close(feed);
	return r;
}

/*
 * Takes batches until none come, and sees that those before the last stay what they were while they
 * are held.
 */
static int take_batches(const struct puppet *p, char *error)
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

struct row {
	const char *name;
	void (*play)(struct puppet *puppet);
	int (*client)(const struct puppet *puppet, char *error);
	int code;
	const char *text;
};

static void run_rows(const struct row *rows, size_t count)
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

static void files_are_asked_for_in_order(void **state)
{
	static const struct row rows[] = {
		{"a file beyond the last", ask_beyond, request_feed, -EPROTO, "asks for file"},
		{"no file at a time", ask_for_none, request_feed, -EPROTO, "asks for file"},
		{"the same file for ever", ask_again_for_ever, request_feed, -EPROTO,
		 "asks for file"},
		{"past the page cache and not, in turn", ask_directly_in_turn, request_feed,
		 -EPROTO, "asks for file"},
		{"the same file of GetDataset for ever", ask_again_for_ever, request_dataset,
		 -EPROTO, "asks for file"},
		{"files of a request for status", ask_again_for_ever, request_status, -EPROTO,
		 "where none belong to the request"},
	};
	run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- codes by which libfeed tells of its own state ---- */

static void say_no_slot(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_error(p, ENOBUFS, "no");
	hear_to_the_end(p);
}

static void say_not_yet(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_error(p, ETIMEDOUT, "not yet");
	hear_to_the_end(p);
}

static void say_again(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_error(p, EAGAIN, "again");
	hear_to_the_end(p);
}

static void say_nothing(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_error(p, 0, "no error");
	hear_to_the_end(p);
}

/* To who comes back. */
static void say_again_later(struct puppet *p)
{
	if (p->connections == 0) {
		begin_feed(p, 2);
	} else {
		hear_and_forget(p);
		send_error(p, EAGAIN, "again");
		hear_to_the_end(p);
	}
}

/* Texts that a terminal would obey, or that a strict reader of UTF-8 would not read. */
static const char *said;

static void say_text(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_error(p, EIO, said);
	hear_to_the_end(p);
}

static void texts_are_made_printable(void **state)
{
	static const struct {
		const char *said, *shown;
	} texts[] = {
		{"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		 "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
		{"a\x1b[2Jb\nc\x7f", "a?[2Jb?c?"},
		{"C1 \xc2\x9b", "C1 ??"},
		{"overlong \xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b", "overlong ?? ??? ????"},
		{"surrogate \xed\xa0\x80", "surrogate ???"},
		{"beyond \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80 \xff", "beyond ???? ????? ?"},
		{"alone \x80, cut \xe2\x82", "alone ?, cut ??"},
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const struct row row = {"a text", say_text, take_batches, -EIO, texts[i].shown};
		said = texts[i].said;
		run_rows(&row, 1);
	}
}

static void send_long(struct puppet *p)
{
	static char text[20000];
	memset(text, 'x', sizeof(text) - 1);
	if (begin_feed(p, 1))
		send_error(p, EIO, text);
	hear_to_the_end(p);
}

static void open_twice(struct puppet *p)
{
	if (begin_feed(p, 1))
		send_opened(p, NULL, 0);
	hear_to_the_end(p);
}

static void ask_while_running(struct puppet *p)
{
	if (begin_feed(p, 1))
		ask_for_files(p, 0, 1, true);
	hear_to_the_end(p);
}

/* Field 99, of which nothing is known. */
static void send_unknown(struct puppet *p)
{
	if (begin_feed(p, 1)) {
		frame_send(p->fd, (const uint8_t *)"\x9a\x06\x00", 3, NULL, 0, 1000);
		send_error(p, EIO, "the end");
	}
	hear_to_the_end(p);
}

static void nothing_else_comes_unasked(void **state)
{
	static const struct row rows[] = {
		{"an error longer than any", send_long, take_batches, -EPROTO, "Protocol error"},
		{"FeedOpened once more", open_twice, take_batches, -EPROTO, "Protocol error"},
		{"NeedFiles of a running feed", ask_while_running, take_batches, -EPROTO,
		 "Protocol error"},
		{"a reply of a later version", send_unknown, take_batches, -EIO, "the end"},
	};
	run_rows(rows, sizeof(rows) / sizeof(*rows));
}

static void codes_are_not_obeyed(void **state)
{
	static const struct row rows[] = {
		{"ENOBUFS of a running feed", say_no_slot, take_batches, -EPROTO, "no"},
		{"ETIMEDOUT of a running feed", say_not_yet, take_batches, -EPROTO, "not yet"},
		{"EAGAIN of a running feed", say_again, take_batches, -EPROTO, "again"},
		{"an error without a code", say_nothing, take_batches, -EPROTO, "no error"},
		{"EAGAIN when the feed is opened again", say_again_later, take_batches, -EPROTO,
		 "again"},
	};
	run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- another feed than was asked for ---- */

static void open_without_batches(struct puppet *p)
{
	if (hear_wish(p)) {
		p->opened.batches_per_epoch = 0;
		grant(p);
	}
	hear_to_the_end(p);
}

static void open_with_more_batches_than_samples(struct puppet *p)
{
	if (hear_wish(p)) {
		p->opened.batches_per_epoch = p->opened.samples + 1;
		grant(p);
	}
	hear_to_the_end(p);
}

static void open_with_larger_batches(struct puppet *p)
{
	if (hear_wish(p)) {
		p->geometry.batch_size_max++;
		grant(p);
	}
	hear_to_the_end(p);
}

static void open_with_more_slots(struct puppet *p)
{
	if (hear_wish(p)) {
		p->geometry.slots++;
		grant(p);
	}
	hear_to_the_end(p);
}

static void open_with_fewer_fields(struct puppet *p)
{
	if (hear_wish(p)) {
		p->geometry.field_count--;
		grant(p);
	}
	hear_to_the_end(p);
}

/* Batches beyond epoch_end. */
static void go_on_after_the_end(struct puppet *p)
{
	bool there = begin_feed(p, SLOTS);
	while (there) {
		struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
		ring_producer_arm(&p->ring);
		while (ring_outstanding(&p->ring) < SLOTS)
			publish(p, 1);
		if (poll(&poll_fd, 1, 10) > 0)
			there = hear_and_forget(p);
	}
}

static void end_an_epoch_early(struct puppet *p)
{
	if (hear_wish(p) && grant(p)) {
		struct ring_slot *slot = ring_begin(&p->ring);
		slot->epoch = slot->batch = 0;
		slot->count = BATCH_SIZE;
		slot->height = slot->width = SIDE;
		slot->channels = 3;
		slot->element = RING_U8;
		slot->layout = RING_NHWC;
		slot->last = 1;
		ring_publish(&p->ring);
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
	}
	hear_to_the_end(p);
}

static void open_with_larger_values(struct puppet *p)
{
	if (hear_wish(p)) {
		p->geometry.field_bytes = 65536;
		grant(p);
	}
	hear_to_the_end(p);
}

static void a_feed_is_what_was_asked_for(void **state)
{
	static const struct row rows[] = {
		{"epochs without batches", open_without_batches, request_feed, -EPROTO,
		 "in 0 batches"},
		{"more batches than samples", open_with_more_batches_than_samples, request_feed,
		 -EPROTO, "80 samples in 81 batches"},
		{"larger batches", open_with_larger_batches, request_feed, -EPROTO,
		 "4 slots for 9 samples each, where 4 for 8"},
		{"more slots", open_with_more_slots, request_feed, -EPROTO, "5 slots for 8"},
		{"larger values", open_with_larger_values, request_feed, -EPROTO,
		 "16 asked for, the daemon on "},
		{"fewer fields", open_with_fewer_fields, request_feed, -EPROTO, "delivers 1"},
		{"batches after epoch_end", go_on_after_the_end, take_batches, -EPROTO,
		 "published batch 21 with a header that cannot be"},
		{"an epoch that ends early", end_an_epoch_early, take_batches, -EPROTO,
		 "published batch 1 with a header that cannot be"},
	};
	run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- descriptors that are no ring ---- */

static int memory(unsigned flags, off_t size, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (fd < 0)
		return fd;
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

enum { RING_SIZE = 2 << 20, SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static int open_pipe(void)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	close(ends[1]);
	return ends[0];
}

static int open_fifo(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/loaderd-hostile-fifo-%d", (int)getpid());
	assert_int_equal(mkfifo(path, 0600), 0);
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	unlink(path);
	return fd;
}

/* What looks most like a ring: a right header. */
static int unsealed(void)
{
	struct ring_producer ring;
	const struct ring_geometry geometry = {.slots = SLOTS,
					       .batch_size_max = BATCH_SIZE,
					       .image_size_max = BATCH_SIZE * SIDE * SIDE * 3};
	assert_int_equal(own_ring_init(&ring, &geometry), 0);
	off_t size = (off_t)(ring.size - RING_ACK_SIZE);
	int fd = memory(0, size, 0);
	assert_int_equal(pwrite(fd, ring.header, RING_HEADER_SIZE, 0), RING_HEADER_SIZE);
	ring_producer_deinit(&ring);
	return fd;
}

static int open_odd(unsigned kind)
{
	switch (kind) {
	case 0:
		return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 1:
		return open_fifo();
	case 2:
		return open_pipe();
	case 3:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 4:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 5:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 6:
		return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	case 7:
		return open(dataset, O_RDWR | O_CLOEXEC);
	case 8:
		return eventfd(0, EFD_CLOEXEC);
	case 9:
		return open("/tmp", O_PATH | O_CLOEXEC);
	case 10:
		return unsealed();
	case 11:
		return memory(0, 0, SEALS);
	case 12:
		return memory(0, RING_SIZE, SEALS);
	case 13:
		return memory(0, RING_SIZE, SEALS | F_SEAL_WRITE);
	case 14: /* 1 TiB of nothing */
		return memory(0, (off_t)1 << 40, SEALS);
	default:
		return memory(MFD_HUGETLB, RING_SIZE, SEALS);
	}
}

static const char *const odd_names[] = {"a directory",
					"a FIFO",
					"a pipe",
					"a socket",
					"/dev/null",
					"/dev/zero",
					"/proc/self/mem",
					"a file",
					"an eventfd",
					"a path",
					"a ring that can shrink",
					"no memory",
					"memory without a header",
					"memory that nobody can write",
					"a tebibyte without a header",
					"huge pages"};
static unsigned odd_kind, odd_place;

static void open_with_odd(struct puppet *p)
{
	if (!hear_wish(p))
		return;
	assert_int_equal(own_ring_init(&p->ring, &p->geometry), 0);
	int fds[2] = {p->ring.ring_fd, p->ring.ack_fd}, odd = open_odd(odd_kind);
	assert_true(odd >= 0);
	fds[odd_place] = odd;
	send_opened(p, fds, 2);
	close(odd);
	hear_to_the_end(p);
}

static void open_with_many(struct puppet *p)
{
	int fds[FDS_MAX];
	if (!hear_wish(p))
		return;
	assert_int_equal(own_ring_init(&p->ring, &p->geometry), 0);
	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = i % 2 == 0 ? p->ring.ring_fd : p->ring.ack_fd;
	send_opened(p, fds, odd_kind);
	hear_to_the_end(p);
}

/* Of a doorbell: nobody keeps them. */
static void ring_with_descriptors(struct puppet *p)
{
	int fds[FDS_MAX];
	bool there = begin_feed(p, 2);
	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = p->ring.ring_fd;
	for (unsigned i = 0; there && i < 20; i++)
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, fds, FDS_MAX, 1000);
	if (there && ring_end(&p->ring, "that was all"))
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 1000);
	hear_to_the_end(p);
}

static void descriptors_of_all_kinds_are_refused(void **state)
{
	static const char no_ring[] = "sent no ring that this library knows";
	for (odd_kind = 0; odd_kind < sizeof(odd_names) / sizeof(*odd_names); odd_kind++) {
		int fd = open_odd(odd_kind);
		if (fd < 0) {
			print_message("%s: not to be had here: skipped\n", odd_names[odd_kind]);
			continue;
		}
		close(fd);
		for (odd_place = 0; odd_place < 2; odd_place++) {
			const struct row row = {odd_names[odd_kind], open_with_odd, request_feed,
						-EPROTO, no_ring};
			run_rows(&row, 1);
		}
	}
	static const unsigned counts[] = {0, 1, 3, FDS_MAX};
	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const struct row row = {"another number of descriptors", open_with_many,
					request_feed, -EPROTO, "descriptors for a ring, not two"};
		odd_kind = counts[i];
		run_rows(&row, 1);
	}
	const struct row row = {"descriptors with doorbells", ring_with_descriptors, take_batches,
				-EBADMSG, "that was all"};
	run_rows(&row, 1);
}

/* ---- another feed than before ---- */

static void come_back(struct puppet *p, void (*change)(struct puppet *))
{
	if (p->connections == 0) {
		begin_feed(p, 2);
		return;
	}
	if (hear_wish(p)) {
		change(p);
		if (grant(p))
			publish(p, 1);
	}
	hear_to_the_end(p);
}

static void change_uuid(struct puppet *p)
{
	p->opened.dataset_uuid.data = (uint8_t *)"0123456789abcdeF";
}

static void shorten_uuid(struct puppet *p)
{
	p->opened.dataset_uuid.len = 15;
}

static void change_samples(struct puppet *p)
{
	p->opened.samples++;
}

static void change_classes(struct puppet *p)
{
	p->opened.classes = UINT32_MAX;
}

static void change_batches(struct puppet *p)
{
	p->opened.batches_per_epoch++;
}

static void enlarge_images(struct puppet *p)
{
	p->geometry.image_size_max *= 2;
}

static void shrink_values(struct puppet *p)
{
	p->geometry.field_bytes /= 2;
}

static void change_type(struct puppet *p)
{
	p->geometry.field_types[0] = FEED_JSON;
}

static void change_position(struct puppet *p)
{
	p->batch++;
}

#define COME_BACK(change)                                                                          \
	static void change##_later(struct puppet *p)                                               \
	{                                                                                          \
		come_back(p, change);                                                              \
	}
COME_BACK(change_uuid)
COME_BACK(shorten_uuid)
COME_BACK(change_samples)
COME_BACK(change_classes)
COME_BACK(change_batches)
COME_BACK(enlarge_images)
COME_BACK(shrink_values)
COME_BACK(change_type)
COME_BACK(change_position)

static void what_comes_back_is_what_went(void **state)
{
	static const char replaced[] = "has been replaced by another dataset",
			  sections[] = "of other sizes or types";
	static const struct row rows[] = {
		{"another uuid", change_uuid_later, take_batches, -ESTALE, replaced},
		{"half a uuid", shorten_uuid_later, take_batches, -ESTALE, replaced},
		{"other samples", change_samples_later, take_batches, -ESTALE, replaced},
		{"other classes", change_classes_later, take_batches, -ESTALE, replaced},
		{"other batches", change_batches_later, take_batches, -EPROTO, "divides "},
		{"larger images", enlarge_images_later, take_batches, -EPROTO, sections},
		{"smaller values", shrink_values_later, take_batches, -EPROTO, sections},
		{"a field of another type", change_type_later, take_batches, -EPROTO, sections},
		{"another position", change_position_later, take_batches, -EPROTO,
		 "published batch 1 with a header that cannot be"},
	};
	run_rows(rows, sizeof(rows) / sizeof(*rows));
}

static int make_dataset(void **state)
{
	int fd = mkstemps(dataset, strlen(".pimg"));
	return fd < 0 ? -1 : close(fd);
}

static int remove_dataset(void **state)
{
	return unlink(dataset);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_asked_for_in_order),
		cmocka_unit_test(texts_are_made_printable),
		cmocka_unit_test(nothing_else_comes_unasked),
		cmocka_unit_test(codes_are_not_obeyed),
		cmocka_unit_test(a_feed_is_what_was_asked_for),
		cmocka_unit_test(descriptors_of_all_kinds_are_refused),
		cmocka_unit_test(what_comes_back_is_what_went),
	};
	return cmocka_run_group_tests_name("feed hostile", tests, make_dataset, remove_dataset);
}
