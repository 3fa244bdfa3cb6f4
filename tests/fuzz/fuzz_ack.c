/*
 * A malicious client writes arbitrary values to its ack page, or to the header of a writable ring,
 * between any two operations of the producer. The input is a list of steps: two bytes select the
 * operation, and writes take eight more bytes. The producer may begin only free slots, and its
 * counters must stay within bounds.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/proto/fake_ring.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS_MAX = 5 };

struct fuzz_state {
	struct ring_producer producer;
	uint64_t last[SLOTS_MAX]; /* per slot: number of the last batch begun in it */
};

static void check_begun(struct fuzz_state *s, const struct ring_slot *slot)
{
	size_t offset = (size_t)((const char *)slot - (const char *)s->producer.header);
	size_t index = (offset - RING_HEADER_SIZE) / s->producer.layout.slot_size;
	assert(index < s->producer.layout.slots);
	assert((offset - RING_HEADER_SIZE) % s->producer.layout.slot_size == 0);
	assert(slot->number == s->producer.begun);
	/* the slot's previous batch must have been published before the slot is reused */
	assert(s->last[index] <= s->producer.published);
	s->last[index] = slot->number;
}

static size_t step(struct fuzz_state *s, const uint8_t *data, size_t size)
{
	uint64_t word;
	struct ring_ack *ack = s->producer.ack;
	uint32_t slot = data[1] % SLOTS_MAX;
	switch (data[0] % 8) {
	case 0:
	case 1: {
		struct ring_slot *begun = ring_begin(&s->producer);
		if (begun)
			check_begun(s, begun);
		break;
	}
	case 2:
		ring_publish(&s->producer);
		break;
	case 3: /* near a valid ack */
		atomic_store(&ack->acks[slot],
			     s->producer.published + (uint64_t)(data[1] / SLOTS_MAX) - 25);
		break;
	case 4: /* a valid ack, or the number of an unpublished batch */
		atomic_store(&ack->acks[slot], s->producer.number[slot % s->producer.layout.slots]);
		break;
	case 5:
		if (size < 10)
			break;
		memcpy(&word, data + 2, sizeof(word));
		((volatile uint64_t *)ack)[data[1] * 2 % (RING_ACK_SIZE / 8)] = word;
		return 10;
	case 6:
		ring_producer_arm(&s->producer);
		break;
	default:
		if (data[1] == 0)
			ring_end(&s->producer, "fuzz");
		else if (data[1] == 1)
			madvise(ack, RING_ACK_SIZE, MADV_REMOVE);
		else if (data[1] == 2)
			memset(s->producer.header, data[0], RING_HEADER_SIZE);
		else
			memset(ack, data[1], RING_ACK_SIZE);
	}
	return 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3)
		return 0;
	struct fuzz_state s = {0};
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, 1 + data[0] % SLOTS_MAX, 1, 1);
	if (fake_ring_init(&s.producer, &geometry) < 0 || fake_ring_start(&s.producer) < 0)
		return 0;
	for (size_t used = 1; used + 2 <= size;) {
		used += step(&s, data + used, size - used);
		assert(s.producer.published <= s.producer.begun);
		assert(s.producer.begun - s.producer.published <= s.producer.layout.slots);
		assert(ring_outstanding(&s.producer) <= s.producer.layout.slots);
	}
	ring_producer_deinit(&s.producer);
	return 0;
}
