/*
 * Clients that die, stall, flood the daemon or corrupt memory affect no other client and leave
 * nothing behind.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"

#include "proto/framing.h"
#include "proto/ring.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";
static char dataset[PATH_MAX];

/*
 * Returns the maximum duration of a stall, excluding time in which other programs had the CPUs. The
 * message shows the measured value.
 */
static uint64_t stall_limit_ms(void)
{
	const char *value = getenv("LOADERD_TEST_STALL_MS");
	return !value ? 1000 : strtoull(value, NULL, 10);
}

static unsigned kill_count(void)
{
	const char *value = getenv("LOADERD_TEST_KILLS");
	return !value ? 200 : (unsigned)strtoul(value, NULL, 10);
}

static int set_up(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	strcpy(dataset, fixture_dataset(&fixture, "images", 300, FIXTURE_JPEG, 0));
	fixture_start(&fixture, NULL, "--threads", "2", NULL);
	*state = &fixture;
	return 0;
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct baseline {
	unsigned descriptors, mappings;
	uint64_t feeds, bytes; /* from the daemon's status */
};

static struct baseline measure(struct fixture *fixture)
{
	Loaderd__Reply *reply = fixture_status(fixture);
	struct baseline now = {
		.feeds = reply->status->n_feeds,
		.bytes = reply->status->shared_bytes,
	};
	loaderd__reply__free_unpacked(reply, NULL);
	now.descriptors = fixture_descriptors(fixture_worker(fixture));
	now.mappings = fixture_ring_mappings(fixture_worker(fixture));
	return now;
}

/* Waits until the resources have been freed, which happens shortly after the hang-up. */
static void assert_back_to(struct fixture *fixture, struct baseline before)
{
	uint64_t deadline_ms = now_ms() + 60000;
	struct baseline now = measure(fixture);
	/* May be below `before`, which may include resources that were still being freed. */
	while ((now.descriptors > before.descriptors || now.mappings > before.mappings ||
		now.feeds > 0 || now.bytes > 0) &&
	       now_ms() < deadline_ms) {
		usleep(2000);
		now = measure(fixture);
	}
	assert_in_range(now.descriptors, 0, before.descriptors);
	assert_in_range(now.mappings, 0, before.mappings);
	assert_int_equal(now.feeds, 0);
	assert_int_equal(now.bytes, 0);
}

static struct baseline settled(struct fixture *fixture)
{
	Loaderd__Reply *reply = fixture_status(fixture);
	loaderd__reply__free_unpacked(reply, NULL);
	usleep(50000);
	return measure(fixture);
}

/* Starts a client that consumes batches, holds some, and then waits to be killed. */
static pid_t client(struct fixture *fixture)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed *feed;
	struct feed_batch batch = {.size = sizeof(batch)};
	options.slots = 4;
	if (feed_open(&options, &feed, NULL) < 0)
		_exit(1);
	for (unsigned i = 0;; i++) {
		if (feed_next(feed, -1, &batch) < 0)
			_exit(1);
		if (i % 3 != 0)
			feed_release(feed, &batch);
		if (i > 8)
			pause();
	}
}

/*
 * Returns how long daemon and client were runnable but had no CPU, which is not the daemon's fault.
 */
static uint64_t queued_ms(const struct fixture *fixture)
{
	return (fixture_queued_ns(fixture_worker(fixture)) + fixture_queued_ns(getpid())) / 1000000;
}

TEST(killed_clients)
{
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	uint64_t worst_ms = 0, images = 0;
	unsigned count = kill_count();
	srand(7);
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = client(fixture);
		uint64_t kill_at_ms = now_ms() + (unsigned)rand() % 30;
		int status;
		while (now_ms() < kill_at_ms) {
			uint64_t start_ms = now_ms(), queued_before_ms = queued_ms(fixture);
			assert_int_equal(feed_next(feed, 60000, &batch), 0);
			uint64_t waited_ms = now_ms() - start_ms;
			uint64_t others_ms = queued_ms(fixture) - queued_before_ms;
			waited_ms = waited_ms > others_ms ? waited_ms - others_ms : 0;
			worst_ms = waited_ms > worst_ms ? waited_ms : worst_ms;
			images += batch.count;
			assert_int_equal(feed_release(feed, &batch), 0);
		}
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	feed_close(feed);
	print_message("%u clients killed; the other took %llu images and waited %llu ms at worst\n",
		      count, (unsigned long long)images, (unsigned long long)worst_ms);
	assert_true(worst_ms < stall_limit_ms());
	assert_back_to(fixture, before);
}

static void scribble(struct fixture *fixture, int ready)
{
	int fds[2];
	int socket = fixture_open_bare(fixture, dataset, pipeline, fds);
	off_t size = lseek(fds[0], 0, SEEK_END);
	/* The ring is mapped read-only. */
	if (mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) != MAP_FAILED ||
	    ftruncate(fds[0], 0) == 0 || ftruncate(fds[1], 0) == 0 || pwrite(fds[0], "x", 1, 0) > 0)
		_exit(3);
	uint32_t *page = fixture_last_ack();
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	uint8_t message[64];
	request.kind_case = LOADERD__REQUEST__KIND_DOORBELL;
	request.doorbell = &doorbell;
	size_t length = loaderd__request__pack(&request, message);
	if (write(ready, "x", 1) != 1)
		_exit(5);
	uint64_t noise = 88172645463325252ULL;
	for (unsigned round = 0;; round++) {
		for (unsigned i = 0; i < RING_ACK_SIZE / 4; i++) {
			noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
			/* alternate with plausible values: small ones, like batch numbers */
			page[i] = round % 2 ? (uint32_t)noise % 64 : (uint32_t)noise;
		}
		frame_send(socket, message, length, NULL, 0, 0);
	}
}

TEST(scribbling_client)
{
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed *feed = fixture_open(&options);
	uint64_t expected = fixture_hash(feed, 40);
	feed_close(feed);

	int ready[2], status;
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		scribble(fixture, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	feed = fixture_open(&options);
	assert_int_equal(fixture_hash(feed, 40), expected);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* the process is still running */
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	feed_close(feed);
	assert_back_to(fixture, before);
}

/*
 * Sends half a frame; noise; a length above the limit; requests whose replies it does not read;
 * unexpected fds.
 */
TEST(broken_frames)
{
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	static const uint8_t half[] = {100, 0, 0, 0, 1, 2, 3};
	static const uint8_t too_long[] = {0xff, 0xff, 0xff, 0x7f};
	static const uint8_t nonsense[] = {4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
	int stalled[20];
	for (unsigned i = 0; i < 20; i++) {
		stalled[i] = fixture_connect(fixture);
		assert_int_equal(write(stalled[i], half, sizeof(half)), sizeof(half));
	}
	int bad = fixture_connect(fixture);
	assert_int_equal(write(bad, too_long, sizeof(too_long)), sizeof(too_long));
	assert_null(fixture_receive(bad, NULL));
	close(bad);
	bad = fixture_connect(fixture);
	assert_int_equal(write(bad, nonsense, sizeof(nonsense)), sizeof(nonsense));
	assert_null(fixture_receive(bad, NULL));
	close(bad);

	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed *feed = fixture_open(&options);
	assert_true(fixture_hash(feed, 10) != 0);
	feed_close(feed);
	for (unsigned i = 0; i < 20; i++)
		close(stalled[i]);
	assert_back_to(fixture, before);
}

TEST(flood_without_reading)
{
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	int socket = fixture_connect(fixture);
	Loaderd__GetStatus get_status = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	uint8_t message[64];
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get_status;
	size_t length = loaderd__request__pack(&request, message);
	/*
	 * At the end both socket buffers are full: the daemon stops reading from a client that does
	 * not read.
	 */
	unsigned sent = 0;
	for (unsigned idle = 0; idle < 20;) {
		if (frame_send(socket, message, length, NULL, 0, 0) == 0) {
			sent++;
			idle = 0;
		} else {
			usleep(5000);
			idle++;
		}
		assert_true(sent < 1000000);
	}
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed *feed = fixture_open(&options);
	assert_true(fixture_hash(feed, 10) != 0);
	feed_close(feed);
	/* When the client reads again, it gets the replies. */
	Loaderd__Reply *reply = fixture_receive(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_STATUS);
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
	assert_back_to(fixture, before);
}

static void assert_no_error(const Loaderd__Reply *reply)
{
	if (reply->kind_case == LOADERD__REPLY__KIND_ERROR)
		fail_msg("%s", reply->error->text);
}

/* Builds a request for a feed; open_feed must outlive it. */
static Loaderd__Request make_open_request(Loaderd__OpenFeed *open_feed, uint32_t batch_size)
{
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	loaderd__open_feed__init(open_feed);
	open_feed->version = PROTO_VERSION_OLDEST;
	open_feed->dataset = dataset;
	open_feed->pipeline = (char *)pipeline;
	open_feed->batch_size = batch_size;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = open_feed;
	return request;
}

/* Hangs up while the daemon opens the feed, and right after. */
TEST(hang_up_while_opening)
{
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	Loaderd__OpenFeed open_feed;
	const Loaderd__Request request = make_open_request(&open_feed, 256);
	for (unsigned i = 0; i < 50; i++) {
		int socket = fixture_connect(fixture);
		fixture_send(socket, &request);
		usleep(i * 50);
		close(socket);
	}
	assert_back_to(fixture, before);
}

/*
 * A client sends further requests before it has read the reply to OpenFeed. The ring, which another
 * process sends on the same connection, must arrive directly before that reply and must not split
 * another one.
 */
TEST(requests_while_opening)
{
	enum { REQUESTS = 40 };
	struct fixture *fixture = *state;
	struct baseline before = settled(fixture);
	Loaderd__OpenFeed open_feed;
	Loaderd__GetStatus get_status = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	const Loaderd__Request open_request = make_open_request(&open_feed, 16);
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get_status;
	for (unsigned round = 0; round < 20; round++) {
		int socket = fixture_connect(fixture), fds[2];
		unsigned asked = 0, answered = 0, rings = 0;
		bool opened = false;
		fixture_send(socket, &open_request);
		while (!opened || answered < asked) {
			Loaderd__Reply *reply = fixture_receive(socket, fds);
			assert_non_null(reply);
			if (reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
				fixture_send_file(socket, dataset, reply->need_files, 1);
				for (unsigned i = 0; i < REQUESTS; i++, asked++)
					fixture_send(socket, &request);
			}
			answered += reply->kind_case == LOADERD__REPLY__KIND_STATUS;
			opened |= reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED;
			assert_no_error(reply);
			rings += fds[0] >= 0 && fds[1] >= 0;
			assert_true(!opened || rings == 1);
			for (unsigned i = 0; i < 2; i++)
				if (fds[i] >= 0)
					close(fds[i]);
			loaderd__reply__free_unpacked(reply, NULL);
		}
		close(socket);
	}
	assert_back_to(fixture, before);
}

/*
 * Opens feeds on one connection each. After the files, a client sends questions[round] requests
 * before it reads a reply. The ring must wait until the client has read the replies, and all
 * replies must be whole.
 */
static void listen_late(struct fixture *fixture, const unsigned *questions, unsigned rounds)
{
	enum { LATE_US = 20000 };
	static const uint8_t question[] = {2, 0, 0, 0, 0x12, 0}; /* GetStatus */
	struct baseline before = settled(fixture);
	Loaderd__OpenFeed open_feed;
	const Loaderd__Request request = make_open_request(&open_feed, 16);
	/*
	 * The first round only finds out which request for files is the last, because after the
	 * other requests the client could not send further files.
	 */
	bool last_direct = false;
	for (unsigned round = 0; round < rounds; round++) {
		int socket = fixture_connect(fixture), fds[2];
		bool opened = false;
		fixture_send(socket, &request);
		while (!opened) {
			Loaderd__Reply *reply = fixture_receive(socket, fds);
			assert_non_null(reply);
			assert_no_error(reply);
			opened = reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED;
			if (reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
				fixture_send_file(socket, dataset, reply->need_files, 1);
				if (round == 0)
					last_direct = reply->need_files->direct;
				bool last =
					round > 0 && (bool)reply->need_files->direct == last_direct;
				for (unsigned i = 0; last && i < questions[round]; i++)
					if (send(socket, question, sizeof(question),
						 MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(question))
						break;
				usleep(round % 2 ? LATE_US : 0);
			}
			for (unsigned i = 0; i < 2; i++)
				if (fds[i] >= 0)
					close(fds[i]);
			loaderd__reply__free_unpacked(reply, NULL);
		}
		close(socket);
	}
	assert_back_to(fixture, before);
}

/* The replies exceed the socket buffer, and the daemon queues the rest. */
TEST(listen_late_while_opening)
{
	unsigned questions[40];
	for (unsigned i = 0; i < 40; i++)
		questions[i] = 4000;
	listen_late(*state, questions, 40);
}

/* For some number of replies, they fill the socket buffer and none is queued. */
TEST(late_reader_with_full_socket)
{
	unsigned questions[120];
	for (unsigned i = 0; i < 120; i++)
		questions[i] = i;
	listen_late(*state, questions, 120);
}

TEST(status_tells_the_truth)
{
	struct fixture *fixture = *state;
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	options.name = "tested";
	options.slots = 4;
	struct feed *feed = fixture_open(&options);
	fixture_hash(feed, 20);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	fixture_wait_for_slots(fixture, 3); /* the client holds the fourth slot */
	Loaderd__Reply *reply = fixture_status(fixture);
	const Loaderd__FeedStatus *status = reply->status->feeds[0];
	assert_int_equal(reply->status->threads, 2);
	assert_int_equal(reply->status->pid, fixture_worker(fixture));
	assert_string_equal(status->name, "tested");
	assert_string_equal(status->dataset, dataset);
	assert_string_equal(status->pipeline, pipeline);
	assert_int_equal(status->pid, getpid());
	assert_int_equal(status->uid, getuid());
	assert_int_equal(status->slots, 4);
	assert_int_equal(status->slots_held, 1);
	assert_int_equal(status->images, 24 * 32);
	assert_int_equal(status->bad, 0);
	assert_int_equal(status->epoch, 24 / 9);
	assert_int_equal(status->batch, 24 % 9);
	assert_true(status->decode_ns > 0 && status->resize_ns > 0);
	assert_true(status->stall_daemon_ns > 0);
	assert_int_equal(reply->status->shared_bytes, status->bytes);
	loaderd__reply__free_unpacked(reply, NULL);
	feed_close(feed);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return test_run(set_up, fixture_teardown_running);
}
