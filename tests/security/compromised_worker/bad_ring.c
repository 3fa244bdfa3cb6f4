/* Invalid contents of a ring, whose memory a worker shares with the clients. */
#include "tests/security/compromised_worker/bad_feed.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static void publish_in_no_slot(struct bad_feed *d, struct ring_slot *slot)
{
	d->ring.order[(slot->number - 1) % d->ring.layout.slots] = UINT32_MAX;
}

/* The peer holds slot 0, and the worker publishes a batch in it. */
static void publish_in_held_slot(struct bad_feed *d, struct ring_slot *slot)
{
	d->ring.order[(slot->number - 1) % d->ring.layout.slots] = 0;
}

static void set_head(struct bad_feed *d, uint64_t head)
{
	atomic_store(&d->ring.header->head, head);
	bad_feed_send_doorbell(d);
	bad_feed_read_until_closed(d);
}

static void set_head_to_max(struct bad_feed *d)
{
	set_head(d, UINT64_MAX);
}

static void set_head_to_0(struct bad_feed *d)
{
	set_head(d, 0);
}

static void fail_without_terminator(struct bad_feed *d)
{
	memset(d->ring.header->reason, '\x1b', RING_REASON_MAX);
	atomic_store(&d->ring.header->state, RING_FAILED);
	bad_feed_send_doorbell(d);
	bad_feed_read_until_closed(d);
}

static void stop_again(struct bad_feed *d)
{
	if (ring_end(&d->ring, RING_REASON_STOPPING))
		bad_feed_send_doorbell(d);
	bad_feed_read_until_closed(d);
}

/* Threads with deliberate data races, hidden from ThreadSanitizer. */
#define UNRULY __attribute__((no_sanitize("thread")))

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
	return *state;
}

static void *slot_at(const struct bad_feed *d, uint64_t i)
{
	return (char *)d->ring.header + RING_HEADER_SIZE + i * d->ring.layout.slot_size;
}

/* Waits between two stores, which otherwise would be observed as one. */
static void delay(void)
{
	for (volatile unsigned i = 0; i < 20; i++)
		;
}

/*
 * Alternates between two valid numbers of samples: a client that reads the number twice gets
 * contradictory sizes.
 */
UNRULY static void *change_counts(void *argument)
{
	struct bad_feed *d = argument;
	while (!atomic_load(&d->stop)) {
		for (uint32_t i = 0; i < d->ring.layout.slots; i++) {
			volatile struct ring_slot *slot = slot_at(d, i);
			slot->count = d->geometry.batch_size_max - 1;
			delay();
			slot->count = d->geometry.batch_size_max;
			delay();
		}
	}
	return NULL;
}

UNRULY static void *change_slots(void *argument)
{
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		volatile uint32_t *words =
			(void *)slot_at(d, next_random(&state) % d->ring.layout.slots);
		uint32_t word = next_random(&state) % (sizeof(struct ring_slot) / 4);
		uint32_t before = words[word];
		words[word] = (uint32_t)next_random(&state);
		delay();
		words[word] = before;
	}
	return NULL;
}

UNRULY static void *change_sections(void *argument)
{
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		uint32_t i = next_random(&state) % d->ring.layout.slots;
		size_t at =
			RING_SLOT_HEADER_SIZE +
			next_random(&state) % (d->ring.layout.slot_size - RING_SLOT_HEADER_SIZE);
		volatile char *slot = slot_at(d, i);
		slot[at] = (char)next_random(&state);
	}
	return NULL;
}

/* Modifies the header after the client has checked it and taken the first batch. */
UNRULY static void *change_header(void *argument)
{
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	volatile uint32_t *words = (void *)d->ring.header;
	while (!atomic_load(&d->stop) && atomic_load(&d->ring.ack->taken) == 0)
		sched_yield();
	while (!atomic_load(&d->stop))
		words[next_random(&state) % (offsetof(struct ring_header, head) / 4)] =
			(uint32_t)next_random(&state);
	return NULL;
}

UNRULY static void *change_words(void *argument)
{
	struct bad_feed *d = argument;
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
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	while (!atomic_load(&d->stop)) {
		atomic_store(&d->ring.ack->consumer_waits, 1);
		atomic_store(&d->ring.ack->stall_ns, next_random(&state));
		atomic_store(&d->ring.ack->taken, next_random(&state));
	}
	return NULL;
}

const struct row bad_ring_rows[] = {
	{"an honest feed"},
	/* changes of slot headers */
	{"a slot without samples", IN_SLOT(count, 0), .expected = EPROTO},
	{"more samples than there is room for", IN_SLOT(count, 9), .expected = EPROTO},
	{"4294967295 samples", IN_SLOT(count, UINT32_MAX), .expected = EPROTO},
	{"no height", IN_SLOT(height, 0), .expected = EPROTO},
	{"one row too many", IN_SLOT(height, SIDE + 1), .expected = EPROTO},
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
	 .expected = AGENT_ANY, .batches = 2000, .patience_ms = 500},
	{"pixels, labels, numbers and fields that change while they are read",
	 .thread = change_sections, .batches = 2000},
	/* changes of the ring's header, before and after the client checks it */
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
	/* invalid values of words that change in normal operation */
	{"a head far beyond", .after = set_head_to_max, .expected = EPROTO},
	{"a head that goes back", .after = set_head_to_0, .expected = ETIMEDOUT,
	 .patience_ms = 500},
	{"slot 4294967295", .before = publish_in_no_slot, .expected = EPROTO},
	{"the slot that is held", .before = publish_in_held_slot, .expected = EPROTO},
	{"an unknown state", RUNNING_HEADER(state, 99), .after = bad_feed_read_until_closed,
	 .expected = EPROTO},
	{"an end before the end", RUNNING_HEADER(state, RING_END),
	 .after = bad_feed_read_until_closed},
	{"a reason of escapes without an end", .after = fail_without_terminator,
	 .expected = EBADMSG},
	{"a daemon that stops after each third batch", .after = stop_again},
	{"a daemon that says that it waits", RUNNING_HEADER(producer_waits, 1)},
	{"head, state, reason and order that change while they are read", .thread = change_words,
	 .expected = AGENT_ANY, .patience_ms = 500},
	{"the client's own words changed", .thread = change_acks, .batches = 2000},
	{NULL},
};
