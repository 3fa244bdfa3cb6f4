/*
 * Wanted feeds and a daemon that hangs up at any point. Steps are drawn at random: batches are
 * wanted, taken, held, released in another thread, and forgotten, and the process forks. libfeed
 * returns exactly the batches of a model, in order.
 */
#include "tests/unit/proto/testing.h"

#include "proto/client/feed.h"
#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "tests/unit/proto/fake_ring.h"
#include "tests/unit/proto/old_version.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	SLOTS = 3,
	BATCH = 40000, /* a Want with so many samples does not fit into the socket buffer */
	LIMIT = SLOTS + FEED_WANTS_AHEAD,
	RELEASES_PER_FORK = 8,
	FRUITLESS_MAX = 3, /* maximum number of consecutive connections that deliver nothing;
			      libfeed allows 5 */
};
#define SAMPLES (UINT64_C(1) << 60) /* large, so that most sample numbers take 9 bytes */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state)
{
	return mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/*
 * Returns the number of samples of the batch that is wanted for this epoch. Every batch has a
 * different epoch.
 */
static uint32_t count_of(uint64_t epoch)
{
	uint64_t random = mix(epoch);
	return 1 + (uint32_t)(random >> 8) % (random % 8 == 0 ? BATCH : 20);
}

static uint64_t sample_of(uint64_t epoch, uint32_t i)
{
	return mix(epoch * BATCH + i) % SAMPLES;
}

static bool is_list_of(uint64_t epoch, const uint64_t *samples, size_t count)
{
	if (count != count_of(epoch))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (samples[i] != sample_of(epoch, i))
			return false;
	return true;
}

/* ---- the daemon, in a thread of the test ---- */

struct daemon {
	char socket[64];
	int listen_fd;
	pthread_t thread;
	uint64_t random;
	unsigned fruitless;
	_Atomic unsigned hangups_left;
	_Atomic unsigned delivered;       /* batches that libfeed has returned */
	const char *_Atomic client_fault; /* a rule that libfeed has broken; NULL if none */
};

struct session {
	struct daemon *daemon;
	int fd;
	struct frame_reader reader;
	struct ring_producer ring;
	uint64_t waiting[LIMIT]; /* epochs of the waiting batches, oldest first */
	bool forgotten[LIMIT];
	unsigned count;
	unsigned delivered_before;
};

/* Returns NULL if the client has hung up, or if there is no request and `wait` is false. */
static Loaderd__Request *receive(struct session *s, bool wait, bool *ret_gone)
{
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&s->reader, s->fd, &data, &size);
		*ret_gone = r < 0;
		if (r > 0) {
			Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
			if (!request)
				s->daemon->client_fault = "a frame that is no request";
			*ret_gone = !request;
			return request;
		}
		if (r < 0 || !wait)
			return NULL;
		poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, -1);
	}
}

static bool hear(struct session *s, Loaderd__Request__KindCase kind)
{
	bool gone;
	Loaderd__Request *request = receive(s, true, &gone);
	if (old_version_refuses(s->fd, request)) {
		loaderd__request__free_unpacked(request, NULL);
		request = receive(s, true, &gone);
	}
	bool heard = request && request->kind_case == kind;
	loaderd__request__free_unpacked(request, NULL);
	return heard;
}

static void tell(struct session *s, const Loaderd__Reply *reply, const int *fds, unsigned fd_count)
{
	uint8_t data[256];
	assert(loaderd__reply__get_packed_size(reply) <= sizeof(data));
	frame_send(s->fd, data, loaderd__reply__pack(reply, data), fds, fd_count, SOON_MS);
}

static bool open_session(struct session *s)
{
	struct ring_geometry geometry;
	Loaderd__Ring ring = LOADERD__RING__INIT;
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	ring_geometry_init(&geometry, SLOTS, BATCH, 3 * BATCH);
	if (!hear(s, LOADERD__REQUEST__KIND_OPEN_FEED) || fake_ring_init(&s->ring, &geometry) < 0)
		return false;
	const int fds[2] = {s->ring.ring_fd, s->ring.ack_fd};
	reply.kind_case = LOADERD__REPLY__KIND_RING;
	reply.ring = &ring;
	tell(s, &reply, fds, 2);
	if (!hear(s, LOADERD__REQUEST__KIND_RING_MAPPED) || ring_producer_start(&s->ring) < 0)
		return false;
	opened.samples = SAMPLES;
	opened.classes = 1;
	opened.slots = SLOTS;
	opened.wanted = true;
	opened.dataset_uuid = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &opened;
	tell(s, &reply, NULL, 0);
	return true;
}

static void add_want(struct session *s, const Loaderd__Want *want)
{
	if (s->count == LIMIT)
		s->daemon->client_fault = "more Wants than may wait";
	else if (!is_list_of(want->epoch, want->samples, want->n_samples))
		s->daemon->client_fault = "a Want with another list";
	else
		s->waiting[s->count++] = want->epoch;
}

static void handle(struct session *s, const Loaderd__Request *request)
{
	if (request->kind_case == LOADERD__REQUEST__KIND_WANT)
		add_want(s, request->want);
	else if (request->kind_case == LOADERD__REQUEST__KIND_FORGET)
		memset(s->forgotten, 1, s->count);
	else if (request->kind_case != LOADERD__REQUEST__KIND_DOORBELL)
		s->daemon->client_fault = "a request that is none of Want, Forget and Doorbell";
}

static void fill(struct session *s, struct ring_slot *slot, uint64_t epoch)
{
	uint64_t *samples = (void *)((char *)slot + s->ring.layout.sections[RING_SAMPLES].offset);
	slot->epoch = epoch;
	slot->batch = s->ring.begun - 1;
	slot->count = count_of(epoch);
	slot->height = slot->width = 1;
	slot->channels = 3;
	slot->element = RING_U8;
	slot->layout = RING_NHWC;
	slot->last = 0;
	for (uint32_t i = 0; i < slot->count; i++)
		samples[i] = sample_of(epoch, i);
}

/* Publishes the next batch. Returns false if none waits, or if no slot is free. */
static bool publish(struct session *s)
{
	if (s->count == 0)
		return false;
	struct ring_slot *slot = ring_begin(&s->ring);
	if (!slot) {
		ring_producer_arm(&s->ring);
		slot = ring_begin(&s->ring);
	}
	if (!slot)
		return false;
	fill(s, slot, s->waiting[0]);
	/* libfeed must not read any part of a forgotten batch */
	if (s->forgotten[0])
		for (size_t i = 0; i < sizeof(*slot); i++)
			((uint8_t *)slot)[i] = (uint8_t)draw(&s->daemon->random);
	s->count--;
	memmove(s->waiting, s->waiting + 1, s->count * sizeof(*s->waiting));
	memmove(s->forgotten, s->forgotten + 1, s->count * sizeof(*s->forgotten));
	s->forgotten[s->count] = false;
	if (ring_publish(&s->ring))
		frame_send(s->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
	return true;
}

static bool hangs_up(struct session *s)
{
	struct daemon *daemon = s->daemon;
	bool fruitless = atomic_load(&daemon->delivered) == s->delivered_before;
	if (daemon->hangups_left == 0 || draw(&daemon->random) % 40 != 0 ||
	    (fruitless && daemon->fruitless == FRUITLESS_MAX))
		return false;
	daemon->hangups_left--;
	daemon->fruitless = fruitless ? daemon->fruitless + 1 : 0;
	return true;
}

static void serve_session(struct session *s)
{
	bool gone = !open_session(s);
	while (!gone && !hangs_up(s)) {
		Loaderd__Request *request = receive(s, false, &gone);
		if (request)
			handle(s, request);
		bool published = draw(&s->daemon->random) % 2 == 0 && publish(s);
		if (!request && !published && !gone && !publish(s))
			poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, -1);
		loaderd__request__free_unpacked(request, NULL);
	}
}

static void *serve(void *argument)
{
	struct daemon *daemon = argument;
	int fd;
	while ((fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		struct session s = {.daemon = daemon, .fd = fd};
		s.delivered_before = atomic_load(&daemon->delivered);
		frame_reader_init(&s.reader);
		serve_session(&s);
		ring_producer_deinit(&s.ring);
		frame_reader_deinit(&s.reader);
		close(fd);
	}
	return NULL;
}

static void start_daemon(struct daemon *daemon, uint64_t seed, unsigned hangups)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	*daemon = (struct daemon){.random = seed, .hangups_left = hangups};
	int length =
		snprintf(daemon->socket, sizeof(daemon->socket), "@loaderd-wanted-%d", getpid());
	memcpy(address.sun_path + 1, daemon->socket + 1, (size_t)length - 1);
	daemon->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(daemon->listen_fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
			 0);
	assert_int_equal(listen(daemon->listen_fd, 16), 0);
	assert_int_equal(pthread_create(&daemon->thread, NULL, serve, daemon), 0);
}

static void stop_daemon(struct daemon *daemon)
{
	shutdown(daemon->listen_fd, SHUT_RDWR);
	pthread_join(daemon->thread, NULL);
	close(daemon->listen_fd);
	if (daemon->client_fault)
		fail_msg("libfeed sent %s", daemon->client_fault);
}

/* ---- a thread that releases batches ---- */

struct releaser {
	struct feed *feed;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct feed_batch batches[SLOTS];
	unsigned count;
	bool stopping;
};

/* Checks that a forked child cannot use the feed, only close it. Runs in the child. */
static bool is_untouchable(struct feed *feed, const struct feed_batch *held)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	const uint64_t sample = 0;
	bool good = feed_want(feed, 0, &sample, 1) == -ECHILD &&
		    strstr(feed_error(feed), "forked") && feed_forget(feed) == -ECHILD &&
		    feed_next(feed, -1, &batch) == -ECHILD && feed_release(feed, held) == -ECHILD;
	feed_close(feed);
	return good;
}

/* Forks while the releasing thread may be anywhere in libfeed. */
static void fork_with(struct feed *feed, const struct feed_batch *held)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(is_untouchable(feed, held) ? 0 : 1);
	assert(child > 0 && waitpid(child, &status, 0) == child);
	assert(status == 0);
}

static void *release_all(void *argument)
{
	struct releaser *r = argument;
	unsigned released = 0;
	pthread_mutex_lock(&r->mutex);
	for (;;) {
		if (r->count > 0) {
			struct feed_batch batch = r->batches[--r->count];
			pthread_mutex_unlock(&r->mutex);
			if (released++ % RELEASES_PER_FORK == 0)
				fork_with(r->feed, &batch);
			assert(feed_release(r->feed, &batch) == 0);
			pthread_mutex_lock(&r->mutex);
		} else if (r->stopping) {
			break;
		} else {
			pthread_cond_wait(&r->changed, &r->mutex);
		}
	}
	pthread_mutex_unlock(&r->mutex);
	return NULL;
}

static void start_releaser(struct releaser *r, struct feed *feed)
{
	*r = (struct releaser){.feed = feed};
	pthread_mutex_init(&r->mutex, NULL);
	pthread_cond_init(&r->changed, NULL);
	assert_int_equal(pthread_create(&r->thread, NULL, release_all, r), 0);
}

static void stop_releaser(struct releaser *r)
{
	pthread_mutex_lock(&r->mutex);
	r->stopping = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	pthread_join(r->thread, NULL);
}

/* Returns false if the thread already holds the maximum number of batches. */
static bool hand_over(struct releaser *r, const struct feed_batch *batch)
{
	pthread_mutex_lock(&r->mutex);
	bool room = r->count < SLOTS;
	if (room)
		r->batches[r->count++] = *batch;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	return room;
}

/* ---- the client ---- */

struct client {
	struct daemon daemon;
	struct releaser releaser;
	struct feed *feed;
	uint64_t random;
	uint64_t epoch;         /* epoch of the last wanted batch */
	uint64_t wanted[LIMIT]; /* epochs of the wanted batches, oldest first */
	unsigned wanted_count;
	struct feed_batch held[SLOTS];
	unsigned held_count;
};

/* Returns the result of feed_want(). */
static int want(struct client *c)
{
	static uint64_t samples[BATCH];
	const uint64_t epoch = c->epoch + 1;
	uint32_t count = count_of(epoch);
	for (uint32_t i = 0; i < count; i++)
		samples[i] = sample_of(epoch, i);
	int r = feed_want(c->feed, epoch, samples, count);
	if (r == 0) {
		c->epoch = epoch;
		c->wanted[c->wanted_count++] = epoch;
	}
	return r;
}

static void release_one(struct client *c)
{
	if (c->held_count == 0)
		return;
	struct feed_batch *batch = &c->held[draw(&c->random) % c->held_count];
	if (draw(&c->random) % 4 == 0 || !hand_over(&c->releaser, batch))
		assert_int_equal(feed_release(c->feed, batch), 0);
	*batch = c->held[--c->held_count];
}

/* Returns true if a batch was taken. */
static bool take(struct client *c, int timeout_ms)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	if (c->held_count == SLOTS)
		release_one(c);
	int r = feed_next(c->feed, timeout_ms, &batch);
	if (c->wanted_count == 0) {
		assert_int_equal(r, -EINVAL);
		return false;
	}
	if (r == -ENOBUFS) {
		release_one(c);
		return false;
	}
	if (r == -ETIMEDOUT && timeout_ms < SOON_MS)
		return false;
	if (r != 0)
		fail_msg("feed_next: %d, %s", r, feed_error(c->feed));
	if (batch.epoch != c->wanted[0] || !is_list_of(batch.epoch, batch.samples, batch.count))
		fail_msg("epoch %llu with %u samples came for epoch %llu with %u",
			 (unsigned long long)batch.epoch, batch.count,
			 (unsigned long long)c->wanted[0], count_of(c->wanted[0]));
	c->wanted_count--;
	memmove(c->wanted, c->wanted + 1, c->wanted_count * sizeof(*c->wanted));
	c->held[c->held_count++] = batch;
	atomic_fetch_add(&c->daemon.delivered, 1);
	return true;
}

static void step(struct client *c)
{
	static const int timeouts_ms[] = {0, 1, SOON_MS};
	int expected;
	switch (draw(&c->random) % 128) {
	case 0 ... 1:
		assert_int_equal(feed_forget(c->feed), 0);
		c->wanted_count = 0;
		break;
	case 2 ... 53:
		expected = c->wanted_count == LIMIT ? -EAGAIN : 0;
		assert_int_equal(want(c), expected);
		break;
	case 54 ... 97:
		take(c, timeouts_ms[draw(&c->random) % 3]);
		break;
	default:
		release_one(c);
	}
}

static void open_client(struct client *c, uint64_t seed, unsigned hangups)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed_options options;
	*c = (struct client){.random = seed ^ 1};
	start_daemon(&c->daemon, seed, hangups);
	feed_options_init(&options);
	options.socket = c->daemon.socket;
	options.dataset = "/any";
	options.batch_size = BATCH;
	options.slots = SLOTS;
	options.wanted = 1;
	if (feed_open(&options, &c->feed, error) < 0)
		fail_msg("feed_open: %s", error);
	start_releaser(&c->releaser, c->feed);
}

static void close_client(struct client *c)
{
	while (c->held_count > 0)
		release_one(c);
	stop_releaser(&c->releaser);
	feed_close(c->feed);
	stop_daemon(&c->daemon);
}

TEST(batches_are_those_of_the_model)
{
	enum { SEEDS = 4, BATCHES = 150, HANGUPS = 20 };
	static struct client c;
	unsigned fds = count_open_fds();
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		open_client(&c, seed, HANGUPS);
		while (c.daemon.delivered < BATCHES || c.daemon.hangups_left > 0)
			step(&c);
		while (c.wanted_count > 0)
			take(&c, SOON_MS);
		struct feed_info info = {.size = sizeof(info)};
		feed_info(c.feed, &info);
		print_message("seed %llu: %u batches, %llu reconnects\n", (unsigned long long)seed,
			      c.daemon.delivered, (unsigned long long)info.reconnects);
		assert_in_range(info.reconnects, HANGUPS / 2, HANGUPS);
		close_client(&c);
		assert_int_equal(count_open_fds(), fds);
	}
}

/* ---- too little memory ---- */

static _Thread_local unsigned
	malloc_fails_in; /* number of calls until one fails; 0 means that none fails */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	if (malloc_fails_in > 0 && --malloc_fails_in == 0)
		return NULL;
	return __real_malloc(size);
}

TEST(failed_want_has_no_effect)
{
	enum { MALLOCS_MAX = 5 };
	static struct client c;
	unsigned failed = 0;
	int r = -ENOMEM;
	open_client(&c, 1, 0);
	while (r == -ENOMEM && failed < MALLOCS_MAX) {
		malloc_fails_in = ++failed;
		r = want(&c);
		malloc_fails_in = 0;
	}
	assert_in_range(failed, 2, MALLOCS_MAX);
	assert_int_equal(r, 0);
	for (unsigned i = 1; i < LIMIT; i++)
		assert_int_equal(want(&c), 0);
	assert_int_equal(want(&c), -EAGAIN);
	while (c.wanted_count > 0)
		assert_true(take(&c, SOON_MS) || c.wanted_count > 0);
	close_client(&c);
}

TEST_MAIN(NULL, NULL)
