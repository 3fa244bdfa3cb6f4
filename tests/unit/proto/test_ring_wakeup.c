/* The ring's wake-up protocol, between threads and between processes (proto/SPEC.md, "Ring"). */
#include "tests/unit/proto/ring_pair.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

/*
 * qemu 7.2 runs Arm's stlr and ldar without the ordering between them that memory_order_seq_cst
 * requires and processors guarantee. Two threads with one atomic store and one load each
 * demonstrate it.
 */
static void skip_where_order_is_lost(void)
{
	if (getenv("MESON_EXE_WRAPPER"))
		skip();
}

/*
 * Stress test: both sides wait as often as they can, on an fd, with doorbells of one byte. A lost
 * wake-up would block both forever; the poll timeout turns it into a failure.
 */
enum { STRESS_BATCHES = 40000, LOST_AFTER_MS = 60000 };

static bool wait_doorbell(int fd)
{
	char bytes[64];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;
	do {
		r = poll(&p, 1, LOST_AFTER_MS);
	} while (r < 0 && errno == EINTR);
	return r == 1 && read(fd, bytes, sizeof(bytes)) > 0;
}

static void ring_doorbell(int fd)
{
	/* A full socket is fine: the peer will read its contents and check the ring afterwards. */
	ssize_t n = send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)n;
}

static bool produce(struct ring_producer *producer, int fd, unsigned *ret_waits)
{
	uint64_t seed = 7;
	unsigned waits = 0;
	for (uint64_t n = 1; n <= STRESS_BATCHES; n++) {
		struct ring_slot *slot;
		while (!(slot = ring_begin(producer))) {
			ring_producer_arm(producer);
			if ((slot = ring_begin(producer)))
				break;
			waits++;
			if (!wait_doorbell(fd))
				return false;
		}
		slot->epoch = n * 3;
		slot->count = 5;
		memset((char *)producer->header + RING_HEADER_SIZE +
			       ((char *)slot - (char *)producer->header - RING_HEADER_SIZE) +
			       producer->header->image_offset,
		       (int)(n & 0xff), producer->header->image_size_max);
		if (ring_publish(producer))
			ring_doorbell(fd);
		if (next_random(&seed) % 64 == 0)
			sched_yield();
	}
	if (ring_end(producer, NULL))
		ring_doorbell(fd);
	*ret_waits = waits;
	return true;
}

static bool slot_is_whole(const struct ring_consumer *consumer, const struct ring_slot *slot,
			  uint64_t n)
{
	const uint8_t *image = (const uint8_t *)slot + consumer->header->image_offset;
	bool whole = slot->number == n && slot->epoch == n * 3;
	for (uint64_t i = 0; i < consumer->header->image_size_max; i++)
		whole &= image[i] == (n & 0xff);
	return whole;
}

/* Takes all batches, holding up to two of them and releasing them out of order. */
static bool consume(struct ring_consumer *consumer, int fd, unsigned *ret_waits)
{
	uint64_t seed = 99, n = 0, held = 0;
	unsigned waits = 0;
	for (;;) {
		const struct ring_slot *slot = ring_take(consumer);
		if (!slot) {
			ring_consumer_arm(consumer, 1);
			uint32_t state = atomic_load(&consumer->header->state);
			slot = ring_take(consumer);
			if (!slot && state != RING_RUNNING)
				break;
		}
		if (!slot) {
			waits++;
			if (!wait_doorbell(fd))
				return false;
			continue;
		}
		if (!slot_is_whole(consumer, slot, ++n))
			return false;
		if (held == 0 && consumer->layout.slots > 1 && next_random(&seed) % 2 == 0) {
			held = n;
			continue;
		}
		if (ring_ack(consumer, n) > 0)
			ring_doorbell(fd);
		if (held != 0 && ring_ack(consumer, held) > 0)
			ring_doorbell(fd);
		held = 0;
	}
	*ret_waits = waits;
	return n == STRESS_BATCHES;
}

struct side {
	struct ring_producer *producer;
	int fd;
	bool good;
	unsigned waits;
};

static void *produce_thread(void *argument)
{
	struct side *side = argument;
	side->good = produce(side->producer, side->fd, &side->waits);
	return NULL;
}

/* Both ends use one mapping, so that ThreadSanitizer recognizes accesses to the same memory. */
TEST(no_wakeup_is_lost_between_threads)
{
	skip_where_order_is_lost();
	/*
	 * with one slot, both sides wait for each other at every batch, so no later doorbell can
	 * replace a lost one
	 */
	for (uint32_t slots = 1; slots <= 4; slots++) {
		struct pair pair;
		int sockets[2];
		pair_init(&pair, slots);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
		struct ring_consumer consumer = {
			.header = pair.producer.header,
			.control = pair.producer.control,
			.ack = pair.producer.ack,
			.layout.slots = slots,
			.layout.slot_size = pair.producer.layout.slot_size,
		};
		struct side side = {.producer = &pair.producer, .fd = sockets[0]};
		pthread_t thread;
		unsigned waits = 0;
		assert_int_equal(pthread_create(&thread, NULL, produce_thread, &side), 0);
		bool good = consume(&consumer, sockets[1], &waits);
		pthread_join(thread, NULL);
		print_message("%u slots: %d batches, client waited %u times, daemon %u times\n",
			      slots, STRESS_BATCHES, waits, side.waits);
		assert_true(good);
		assert_true(side.good);
		close(sockets[0]);
		close(sockets[1]);
		pair_deinit(&pair);
	}
}

TEST(no_wakeup_is_lost_between_processes)
{
	skip_where_order_is_lost();
	struct pair pair;
	int sockets[2];
	pair_init(&pair, 3);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	pid_t child = fork();
	if (child == 0) {
		unsigned waits;
		_exit(consume(&pair.consumer, sockets[1], &waits) ? 0 : 1);
	}
	unsigned waits = 0;
	int status = -1;
	assert_true(produce(&pair.producer, sockets[0], &waits));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(sockets[0]);
	close(sockets[1]);
	pair_deinit(&pair);
}

/*
 * The two races in isolation: when publish coincides with arm-and-take (or ack with arm-and-begin),
 * at least one side must detect the other. The threads synchronize at a counter, then diverge by a
 * random few nanoseconds.
 */
enum { RACES_MIN = 128, RACES = 300000, RACE_TIME_MS = 3000 };

struct race {
	struct ring_producer *producer;
	struct ring_consumer *consumer;
	_Atomic uint32_t arrived;
	_Atomic bool stop;
	uint8_t noticed[2][2]; /* [parity of the turn][side] */
	unsigned rounds, lost[2], both[2];
};

static bool meet(struct race *race, uint32_t turn)
{
	atomic_fetch_add(&race->arrived, 1);
	for (unsigned spins = 1; atomic_load(&race->arrived) < 2 * turn; spins++) {
		if (atomic_load(&race->stop))
			return false;
		if (spins % 4096 == 0)
			sched_yield();
	}
	return true;
}

static void drift(uint64_t *seed)
{
	for (volatile uint32_t i = (uint32_t)(next_random(seed) % 24); i > 0; i--)
		;
}

static void *race_consumer(void *argument)
{
	struct race *race = argument;
	uint64_t seed = 12345;
	for (uint32_t turn = 1;; turn += 2) {
		if (!meet(race, turn))
			return NULL;
		drift(&seed);
		ring_consumer_arm(race->consumer, 1);
		const struct ring_slot *slot = ring_take(race->consumer);
		race->noticed[1][1] = slot != NULL;
		if (!meet(race, turn + 1))
			return NULL;
		/*
		 * In either case the batch is published now. Releasing it races with a producer
		 * that waits for the slot.
		 */
		uint64_t number = slot ? slot->number : ring_take(race->consumer)->number;
		ring_consumer_arm(race->consumer, 0);
		if (!meet(race, turn + 2))
			return NULL;
		drift(&seed);
		race->noticed[0][1] = (uint8_t)ring_ack(race->consumer, number);
		if (!meet(race, turn + 3))
			return NULL;
		turn += 2;
	}
}

static void race_round(struct race *race, uint32_t turn, uint64_t *seed)
{
	meet(race, turn);
	drift(seed);
	race->noticed[1][0] = (uint8_t)ring_publish(race->producer);
	meet(race, turn + 1);
	race->lost[1] += !race->noticed[1][0] && !race->noticed[1][1];
	race->both[1] += race->noticed[1][0] && race->noticed[1][1];
	meet(race, turn + 2);
	drift(seed);
	ring_producer_arm(race->producer);
	struct ring_slot *slot = ring_begin(race->producer);
	race->noticed[0][0] = slot != NULL;
	meet(race, turn + 3);
	race->lost[0] += !race->noticed[0][0] && !race->noticed[0][1];
	race->both[0] += race->noticed[0][0] && race->noticed[0][1];
	if (!slot)
		assert_non_null(ring_begin(race->producer));
}

TEST(races_are_noticed_by_one_side)
{
	skip_where_order_is_lost();
	struct pair pair;
	pair_init(&pair, 1);
	struct race race = {.producer = &pair.producer, .consumer = &pair.consumer};
	uint64_t seed = 54321;
	pthread_t thread;
	assert_non_null(ring_begin(&pair.producer));
	assert_int_equal(pthread_create(&thread, NULL, race_consumer, &race), 0);
	int64_t until = now_ms() + RACE_TIME_MS;
	for (; race.rounds < RACES &&
	       (race.rounds < RACES_MIN || race.rounds % 64 != 0 || now_ms() < until);
	     race.rounds++)
		race_round(&race, 1 + 4 * race.rounds, &seed);
	atomic_store(&race.stop, true);
	pthread_join(thread, NULL);
	print_message("%u races: batch lost %u, noticed twice %u; ack lost %u, noticed twice %u\n",
		      race.rounds, race.lost[1], race.both[1], race.lost[0], race.both[0]);
	assert_int_equal(race.lost[0] + race.lost[1], 0);
	pair_deinit(&pair);
}

struct releasing {
	struct ring_consumer *consumer;
	int fd;
	_Atomic uint64_t queue[8];
	_Atomic int done;
};

static void *release_thread(void *argument)
{
	struct releasing *r = argument;
	for (uint64_t released = 0; released < STRESS_BATCHES;) {
		for (int i = 0; i < 8; i++) {
			uint64_t number = atomic_exchange(&r->queue[i], 0);
			if (number == 0)
				continue;
			if (ring_ack(r->consumer, number) > 0)
				ring_doorbell(r->fd);
			released++;
		}
		sched_yield();
	}
	return NULL;
}

/* One thread takes batches, another releases them. */
TEST(any_thread_gives_back)
{
	struct pair pair;
	int sockets[2];
	pair_init(&pair, 4);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	struct side side = {.producer = &pair.producer, .fd = sockets[0]};
	struct releasing releasing = {.consumer = &pair.consumer, .fd = sockets[1]};
	pthread_t producer, releaser;
	assert_int_equal(pthread_create(&producer, NULL, produce_thread, &side), 0);
	assert_int_equal(pthread_create(&releaser, NULL, release_thread, &releasing), 0);
	for (uint64_t n = 1; n <= STRESS_BATCHES;) {
		const struct ring_slot *slot = ring_take(&pair.consumer);
		if (!slot) {
			ring_consumer_arm(&pair.consumer, 1);
			slot = ring_take(&pair.consumer);
		}
		if (!slot) {
			assert_true(wait_doorbell(sockets[1]));
			continue;
		}
		assert_int_equal(slot->number, n);
		uint64_t empty = 0;
		for (int i = 0; !atomic_compare_exchange_weak(&releasing.queue[i % 8], &empty, n);
		     i++)
			empty = 0;
		n++;
	}
	pthread_join(producer, NULL);
	pthread_join(releaser, NULL);
	assert_true(side.good);
	assert_int_equal(pair.consumer.held_count, 0);
	assert_int_equal(ring_outstanding(&pair.producer), 0);
	close(sockets[0]);
	close(sockets[1]);
	pair_deinit(&pair);
}
