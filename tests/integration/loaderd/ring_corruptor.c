/*
 * A client that writes arbitrary data wherever it can: to its ack page, socket, ring and fds. A
 * concurrent client must get the right batches in time, and afterwards the daemon must hold no more
 * resources than before.
 */
#include "format/base/system/clock.h"
#include "proto/client/connection.h"
#include "proto/client/files.h"
#include "proto/ring.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	SECONDS_EACH = 1,
	ATTEMPTS = 3,
	GROWTH_MAX_KIB = 8192,
};

/* Requests encoded as frames. */
static const char ring_mapped[] = "\2\0\0\0\x32\0", doorbell[] = "\2\0\0\0\x22\0";

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static int64_t deadline(void)
{
	return clock_ms() + SECONDS_EACH * 1000;
}

struct hostile {
	const struct feed_options *options;
	struct connection connection;
	int ring_fd, ack_fd;
	const struct ring_header *ring;
	size_t ring_size;
	struct ring_ack *ack;
};

static Loaderd__OpenFeed usual_request(const struct hostile *h)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	open.version = PROTO_VERSION_OLDEST;
	open.dataset = (char *)h->options->dataset;
	open.pipeline = (char *)h->options->pipeline;
	open.batch_size = h->options->batch_size;
	open.shuffle = true;
	open.name = (char *)"corruptor";
	return open;
}

static void send_bytes(const struct hostile *h, const void *bytes, size_t size)
{
	ssize_t n = send(h->connection.fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)n;
}

/* Receives the reply to RingMapped; returns true if it is FeedOpened. */
static bool is_opened(struct hostile *h)
{
	Loaderd__Reply *reply;
	if (connection_reply(&h->connection, NULL, clock_ms() + 10000, &reply, NULL) < 0)
		return false;
	bool opened = reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED;
	loaderd__reply__free_unpacked(reply, NULL);
	return opened;
}

/*
 * Subscribes with the raw protocol, with the usual request if variant is NULL; returns false if
 * refused. The caller reports a writable ring as mapped.
 */
static bool subscribe(struct hostile *h, const Loaderd__OpenFeed *variant)
{
	Loaderd__OpenFeed open = variant ? *variant : usual_request(h);
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply;
	int64_t until_ms = clock_ms() + 10000;
	*h = (struct hostile){
		.options = h->options, .connection = {.fd = -1}, .ring_fd = -1, .ack_fd = -1};
	if (connection_open(&h->connection, h->options->socket, until_ms, NULL) < 0)
		return false;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	const struct file_source source = {.path = open.dataset};
	if (files_request(&h->connection, &request, NULL, &source, 1, &until_ms, &reply, NULL) < 0)
		return false;
	loaderd__reply__free_unpacked(reply, NULL);
	h->ring_fd = frame_take_fd(&h->connection.reader, 0);
	h->ack_fd = frame_take_fd(&h->connection.reader, 1);
	if (h->ring_fd < 0 || h->ack_fd < 0)
		return false;
	h->ring_size = (size_t)lseek(h->ring_fd, 0, SEEK_END);
	h->ring = mmap(NULL, h->ring_size, PROT_READ | (open.writable ? PROT_WRITE : 0), MAP_SHARED,
		       h->ring_fd, 0);
	h->ack = mmap(NULL, RING_ACK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, h->ack_fd, 0);
	if (h->ring == MAP_FAILED || h->ack == MAP_FAILED)
		return false;
	for (size_t at = 0; at < h->ring_size; at += 4096)
		(void)*((const volatile char *)h->ring + at);
	(void)*(const volatile char *)h->ack;
	if (open.writable)
		return true;
	send_bytes(h, ring_mapped, 6);
	return is_opened(h);
}

static void hang_up(struct hostile *h)
{
	if (h->ring)
		munmap((void *)h->ring, h->ring_size);
	if (h->ack)
		munmap(h->ack, RING_ACK_SIZE);
	if (h->ring_fd >= 0)
		close(h->ring_fd);
	if (h->ack_fd >= 0)
		close(h->ack_fd);
	connection_close(&h->connection);
}

/*
 * Writes random words to the ack page and values near the right ones to the acks, and sends a
 * doorbell each time.
 */
static void corrupt_acks(struct hostile *h)
{
	if (!subscribe(h, NULL))
		_exit(10);
	for (int64_t until = deadline(); clock_ms() < until;) {
		for (int round = 0; round < 200; round++) {
			uint64_t head = atomic_load(&h->ring->head);
			uint64_t *words = (uint64_t *)h->ack;
			words[random64() % (RING_ACK_SIZE / 8)] = random64();
			h->ack->acks[random64() % RING_SLOTS_MAX] = head + random64() % 8 - 4;
			if (random64() % 4 == 0)
				h->ack->acks[random64() % 8] = head;
		}
		h->ack->consumer_waits = (uint32_t)random64();
		send_bytes(h, doorbell, 6);
	}
	hang_up(h);
}

/* Sends doorbells as fast as possible and reads none. */
static void flood_doorbells(struct hostile *h)
{
	uint8_t many[6 * 1000];
	for (size_t i = 0; i < sizeof(many); i += 6)
		memcpy(many + i, doorbell, 6);
	if (!subscribe(h, NULL))
		_exit(10);
	for (int64_t until = deadline(); clock_ms() < until;) {
		h->ack->consumer_waits = 1;
		send_bytes(h, many, sizeof(many));
	}
	hang_up(h);
}

/* Sends requests and never reads a reply. */
static void ask_and_not_listen(struct hostile *h)
{
	if (!subscribe(h, NULL))
		_exit(10);
	for (int64_t until = deadline(); clock_ms() < until;)
		send_bytes(h, "\2\0\0\0\x12\0", 6);
	hang_up(h);
}

/* Sends invalid frames and requests, with and without fds, on a new connection each time. */
static void send_garbage(struct hostile *h)
{
	uint8_t noise[4096];
	for (int64_t until = deadline(); clock_ms() < until;) {
		struct connection connection;
		if (connection_open(&connection, h->options->socket, until, NULL) < 0)
			continue;
		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)random64();
		h->connection = connection;
		switch (random64() % 5) {
		case 0:
			send_bytes(h, noise, sizeof(noise));
			break;
		case 1: /* a frame of noise */
			memcpy(noise, "\xfc\x0f\0\0", 4);
			send_bytes(h, noise, sizeof(noise));
			break;
		case 2: /* half a frame, then nothing */
			memcpy(noise, "\xff\xff\x0f\0", 4);
			send_bytes(h, noise, 100);
			break;
		case 3: /* resembles an OpenFeed */
			memcpy(noise, "\x82\0\0\0\x0a\x80", 6);
			noise[6] = 1;
			send_bytes(h, noise, 134);
			break;
		default: { /* unexpected fds */
			int fds[2] = {2, 2};
			for (int i = 0; i < 5; i++)
				frame_send(connection.fd, noise, 1, fds, 2, 0);
		}
		}
		if (random64() % 2 == 0)
			usleep(500);
		connection_close(&connection);
	}
}

/* Sends requests with extreme numbers, and closes immediately what the daemon grants. */
static void ask_too_much(struct hostile *h)
{
	static const uint64_t extremes[] = {0,         1,          2,         255,       1 << 16,
					    INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
	char *endless = malloc(900000);
	memset(endless, '(', 900000 - 1);
	endless[900000 - 1] = '\0';
	char *fields[64];
	for (int i = 0; i < 64; i++)
		fields[i] = endless + 900000 - 100;
#define EXTREME (extremes[random64() % (sizeof(extremes) / sizeof(*extremes))])
	for (int64_t until = deadline(); clock_ms() < until;) {
		Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
		open.version = random64() % 8 == 0 ? (uint32_t)EXTREME : PROTO_VERSION_OLDEST;
		open.dataset =
			(char *)(random64() % 8 == 0 ? "/proc/self/mem" : h->options->dataset);
		open.pipeline = random64() % 16 == 0 ? endless : (char *)"random_resized_crop(32)";
		open.batch_size = random64() % 3 == 0 ? (uint32_t)EXTREME : 16;
		open.slots = random64() % 3 == 0 ? (uint32_t)EXTREME : 2;
		open.epoch = random64() % 3 == 0 ? EXTREME : 0;
		open.batch = random64() % 3 == 0 ? EXTREME : 0;
		open.epoch_end = random64() % 3 == 0 ? EXTREME : 0;
		open.rank = random64() % 3 == 0 ? (uint32_t)EXTREME : 0;
		open.world = random64() % 3 == 0 ? (uint32_t)EXTREME : 0;
		open.last = (Loaderd__LastBatch)(random64() % 3 == 0 ? EXTREME : 0);
		open.bad = (Loaderd__BadSample)(random64() % 3 == 0 ? EXTREME : 0);
		open.field_bytes = random64() % 4 == 0 ? (uint32_t)EXTREME : 0;
		open.n_fields = random64() % 8 == 0 ? random64() % 64 : 0;
		open.fields = fields;
		open.whole_values = random64() % 2;
		open.text_fields = random64() % 2;
		subscribe(h, &open);
		hang_up(h);
	}
	free(endless);
}

/*
 * Tries every way to modify memory that the client must not modify. Each must fail, and the ring
 * must stay as the daemon wrote it.
 */
static void attack_the_seals(struct hostile *h)
{
	if (!subscribe(h, NULL))
		_exit(10);
	off_t size = (off_t)h->ring_size;
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", h->ring_fd);
	int again = open(path, O_RDWR | O_CLOEXEC);
	bool held = mmap(NULL, h->ring_size, PROT_WRITE, MAP_SHARED, h->ring_fd, 0) == MAP_FAILED;
	held &= again < 0 ||
		mmap(NULL, h->ring_size, PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED;
	held &= again < 0 || pwrite(again, "x", 1, 0) < 0;
	held &= mprotect((void *)h->ring, h->ring_size, PROT_READ | PROT_WRITE) < 0;
	held &= pwrite(h->ring_fd, "x", 1, 0) < 0;
	held &= ftruncate(h->ring_fd, 0) < 0 && ftruncate(h->ring_fd, size * 2) < 0;
	held &= fallocate(h->ring_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) < 0;
	held &= fallocate(h->ring_fd, 0, size, 4096) < 0;
	held &= madvise((void *)h->ring, h->ring_size, MADV_REMOVE) < 0;
	held &= ftruncate(h->ack_fd, 0) < 0 && ftruncate(h->ack_fd, 1 << 30) < 0;
	held &= fcntl(h->ack_fd, F_ADD_SEALS, F_SEAL_WRITE) < 0;
	held &= h->ring->magic == RING_MAGIC;
	if (!held)
		_exit(20);
	/* the client may corrupt all of the ack page and punch it out */
	for (int64_t until = deadline(); clock_ms() < until;) {
		fallocate(h->ack_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RING_ACK_SIZE);
		h->ack->acks[random64() % 8] = atomic_load(&h->ring->head);
		send_bytes(h, doorbell, 6);
		usleep(100);
	}
	if (again >= 0)
		close(again);
	hang_up(h);
}

/* Returns true if other ways to write to a mapped ring or to remove its pages fail, too. */
static bool is_sealed(struct hostile *h)
{
	bool held = mmap(NULL, h->ring_size, PROT_WRITE, MAP_SHARED, h->ring_fd, 0) == MAP_FAILED;
	held &= pwrite(h->ring_fd, "x", 1, 0) < 0;
	held &= ftruncate(h->ring_fd, 0) < 0;
	held &= fallocate(h->ring_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  (off_t)h->ring_size) < 0;
	return held && madvise((void *)h->ring, h->ring_size, MADV_REMOVE) < 0;
}

static off_t allocated(int fd)
{
	struct stat status;
	return fstat(fd, &status) < 0 ? -1 : status.st_blocks;
}

/*
 * Releases every batch immediately, so that the daemon produces more. Returns the number of
 * released batches.
 */
static unsigned give_back(struct hostile *h, const struct ring_header *geometry,
			  uint64_t last[RING_SLOTS_MAX])
{
	unsigned count = 0;
	for (uint32_t slot = 0; slot < geometry->slots; slot++) {
		const volatile struct ring_slot *header =
			(const void *)((const char *)h->ring + RING_HEADER_SIZE +
				       slot * geometry->slot_size);
		uint64_t number = header->number;
		count += number != last[slot];
		last[slot] = number;
		atomic_store(&h->ack->acks[slot], number);
	}
	send_bytes(h, doorbell, 6);
	return count;
}

/*
 * Uses a writable ring: punches holes before the daemon may begin, then overwrites the ring while
 * the daemon produces batches. Overwrites batch numbers last, because without them the client
 * cannot release batches.
 */
static void corrupt_ring(struct hostile *h)
{
	enum { BATCHES = 30, PATIENCE_MS = 30000 };
	Loaderd__OpenFeed request = usual_request(h);
	struct ring_header geometry;
	uint64_t last[RING_SLOTS_MAX] = {0};
	unsigned batches = 0;
	int64_t patience = clock_ms() + PATIENCE_MS, until = deadline();
	request.writable = true;
	/* The daemon allocates no page that the client has removed. */
	if (!subscribe(h, &request))
		_exit(10);
	if (fallocate(h->ring_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)h->ring_size) < 0)
		_exit(11);
	send_bytes(h, ring_mapped, 6);
	if (is_opened(h) || allocated(h->ring_fd) != 0)
		_exit(14);
	hang_up(h);
	if (!subscribe(h, &request))
		_exit(15);
	send_bytes(h, ring_mapped, 6);
	if (!is_opened(h) || !is_sealed(h))
		_exit(12);
	memcpy(&geometry, h->ring, sizeof(geometry));
	uint64_t *words = (uint64_t *)h->ring;
	while (clock_ms() < until || (batches < BATCHES && clock_ms() < patience)) {
		batches += give_back(h, &geometry, last);
		for (unsigned i = 0; i < 20000; i++) {
			size_t at = random64() % (i % 2 ? RING_HEADER_SIZE : h->ring_size) / 8 * 8;
			if (at < RING_HEADER_SIZE ||
			    (at - RING_HEADER_SIZE) % geometry.slot_size != 0)
				words[at / 8] = i % 3 ? random64() : random64() % 64;
		}
	}
	if (batches < BATCHES)
		_exit(13);
	for (until = deadline(); clock_ms() < until;) {
		give_back(h, &geometry, last);
		memset(words, (int)random64(), h->ring_size);
	}
	hang_up(h);
}

/*
 * Requests rings and never maps them, maps them twice, or seals them; sends RingMapped without a
 * ring.
 */
static void map_wrongly(struct hostile *h)
{
	Loaderd__OpenFeed request = usual_request(h);
	request.writable = true;
	for (int64_t until = deadline(); clock_ms() < until;) {
		unsigned way = (unsigned)(random64() % 5);
		if (!subscribe(h, way == 0 ? NULL : &request)) {
			hang_up(h); /* more than allowed */
			continue;
		}
		if (way == 1)
			send_bytes(h, doorbell, 6);
		if (way == 2 && fcntl(h->ring_fd, F_ADD_SEALS, F_SEAL_SEAL) < 0)
			_exit(11);
		for (unsigned times = 0; way != 1 && times < way % 3 + 1; times++)
			send_bytes(h, ring_mapped, 6);
		if (random64() % 2 == 0)
			usleep(500);
		hang_up(h);
	}
}

/* Opens many connections that send nothing. */
static void open_idle_connections(struct hostile *h)
{
	for (int64_t until = deadline(); clock_ms() < until;) {
		struct connection many[200];
		int count = 0;
		for (int i = 0; i < 200; i++)
			count += connection_open(&many[count], h->options->socket, clock_ms() + 100,
						 NULL) == 0;
		for (int i = 0; i < count; i++)
			connection_close(&many[i]);
	}
}

static const struct attack {
	const char *name;
	void (*run)(struct hostile *hostile);
} attacks[] = {
	{"random acks", corrupt_acks},
	{"doorbells", flood_doorbells},
	{"questions without listening", ask_and_not_listen},
	{"garbage", send_garbage},
	{"impossible requests", ask_too_much},
	{"attacks on the seals", attack_the_seals},
	{"a writable ring", corrupt_ring},
	{"rings mapped wrongly", map_wrongly},
	{"silent connections", open_idle_connections},
};

static int attack(const struct feed_options *options, const struct attack *attack)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct hostile hostile = {.options = options};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		attack->run(&hostile);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

TEST(ring_corruptor_affects_no_other_client)
{
	struct fixture fixture;
	fixture_init(&fixture);
	const char *dataset = fixture_dataset(&fixture, "corrupted", 600, FIXTURE_JPEG, 0);
	fixture_start(&fixture, NULL, "--threads", "2", "--log-level", "error", NULL);
	struct feed_options options =
		fixture_options(&fixture, dataset, "random_resized_crop(32) hflip(0.5)");
	struct control_client *control = control_client_start(&fixture, &options);
	struct resource_counts before = count_resources(&fixture), warm = before;
	unsigned stalls = 0;
	for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++) {
		double longest_ms = 0;
		for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
			unsigned phase = control_client_phase(control);
			assert_int_equal(attack(&options, &attacks[i]), 0);
			longest_ms = control_client_longest_ms(control);
			print_message(
				"%-28s %5llu batches for the other one, longest wait %.1f ms\n",
				attacks[i].name, (unsigned long long)control->phase_batches[phase],
				longest_ms);
			if (longest_ms <= CONTROL_STALL_MAX_MS)
				break;
		}
		stalls += longest_ms > CONTROL_STALL_MAX_MS;
		control_client_wait(control, 10);
		wait_resources_released(&fixture, &before);
		if (i == 0)
			warm = count_resources(&fixture);
	}
	struct resource_counts after = count_resources(&fixture);
	print_message("daemon before and after: descriptors %u %u, ring mappings %u %u, anonymous "
		      "KiB %llu %llu\n",
		      before.descriptors, after.descriptors, before.ring_mappings,
		      after.ring_mappings, (unsigned long long)warm.anonymous_kib,
		      (unsigned long long)after.anonymous_kib);
	if (!sanitized()) {
		assert_int_equal(stalls, 0);
		assert_true(after.anonymous_kib <= warm.anonymous_kib + GROWTH_MAX_KIB);
	}
	control_client_finish(control);
	assert_int_equal(fixture_stop(&fixture, SIGTERM), 0);
	fixture_deinit(&fixture);
}
